//! Section 6: os_prio never inverts priority, and the pipeline gains from a scheduler that knows
//! about transactions.

use metatm::config::{KernelKind, SchedKind};
use metatm::htm::policy::Policy;
use metatm::stats::Rule;
use metatm::workload::Workload;
use metatm::{Config, SimError};

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
    let (mut conflicts, mut inverted) = ([0, 0], 0);
    for w in Workload::TABLE5 {
        for (i, kernel) in [KernelKind::Ss, KernelKind::Cx].into_iter().enumerate() {
            for sched in [SchedKind::Default, SchedKind::Aware] {
                let at = |policy| Config { kernel, ..cfg(policy, sched) };
                let seen = w.run(&at(Policy::OsPrio)).expect("run").managed();
                let name = w.name();
                assert_eq!((seen.inversions, seen.policy_inversions), (0, 0), "{name} {kernel:?}");
                conflicts[i] += seen.conflicts;
                inverted += w.run(&at(Policy::SizeMatters)).expect("run").managed().inversions;
            }
        }
    }
    assert!(conflicts.iter().all(|n| *n > 1_000), "os_prio must have been asked: {conflicts:?}");
    assert!(inverted > 0, "or the counter counts nothing");
}

#[test]
fn under_os_prio_only_spinners_are_inverted() {
    let c =
        Config { kernel: KernelKind::Cx, scale: 100, ..cfg(Policy::OsPrio, SchedKind::Default) };
    let s = Workload::Mixed.run(&c).expect("run");
    for rule in Rule::ALL.into_iter().filter(|r| !matches!(r, Rule::Spinner | Rule::Plain)) {
        assert_eq!(s.by(rule).inversions, 0, "{}", rule.describe());
    }
    assert!(s.by(Rule::Xcas).conflicts > 0 && s.by(Rule::Spinner).conflicts > 0);
}

#[test]
fn without_the_spinner_rule_section_5_3_comes_back() {
    for policy in [Policy::SizeMatters, Policy::OsPrio] {
        let c = Config {
            kernel: KernelKind::Cx,
            spinner_yields: false,
            watchdog: 2_000_000,
            ..cfg(policy, SchedKind::Default)
        };
        let found = Workload::Mixed.run(&c).map(|s| s.end);
        assert!(matches!(found, Err(SimError::NoProgress { .. })), "{policy:?}: {found:?}");
    }
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
