//! Section 6: os_prio never inverts priority, and the pipeline gains from a scheduler that knows
//! about transactions.

use metatm::Config;
use metatm::config::{KernelKind, SchedKind};
use metatm::htm::policy::Policy;
use metatm::workload::Workload;

fn cfg(policy: Policy, sched: SchedKind) -> Config {
    Config {
        cpus: 8,
        kernel: KernelKind::Ss,
        scale: 20,
        policy,
        sched,
        perturb: 10,
        ..Config::default()
    }
}

#[test]
fn os_prio_never_inverts_and_size_matters_does() {
    let (mut judged, mut inverted) = (0, 0);
    for w in Workload::TABLE5 {
        for sched in [SchedKind::Default, SchedKind::Aware] {
            let s = w.run(&cfg(Policy::OsPrio, sched)).expect("run");
            assert_eq!((s.inversions, s.policy_inversions), (0, 0), "{}", w.name());
            judged += s.judged;
            inverted += w.run(&cfg(Policy::SizeMatters, sched)).expect("run").inversions;
        }
    }
    assert!(judged > 1_000, "os_prio must have been asked: {judged}");
    assert!(inverted > 0, "or the counter counts nothing");
}

#[test]
fn the_aware_scheduler_cuts_the_pipelines_restarts() {
    let runs = |sched| -> (u64, u64) {
        let (mut time, mut restarts) = (0, 0);
        for seed in 1..=4 {
            let c = Config { cpus: 4, scale: 100, seed, ..cfg(Policy::SizeMatters, sched) };
            let s = Workload::Pipeline.run(&c).expect("run");
            time += s.end;
            restarts += s.all_restarts();
        }
        (time, restarts)
    };
    let (plain, aware) = (runs(SchedKind::Default), runs(SchedKind::Aware));
    assert!(aware.0 < plain.0, "time {} against {}", aware.0, plain.0);
    assert!(aware.1 < plain.1, "restarts {} against {}", aware.1, plain.1);
}
