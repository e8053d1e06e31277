//! Every workload on every kernel: runs end, audits hold, one seed is one run.

use metatm::Config;
use metatm::config::{KernelKind, SchedKind};
use metatm::workload::Workload;

fn cfg(kernel: KernelKind, cpus: usize) -> Config {
    Config { kernel, cpus, scale: 10, disk_us: 500, ..Config::default() }
}

#[test]
fn every_workload_runs_on_every_kernel() {
    for w in Workload::ALL {
        for kernel in [KernelKind::Locks, KernelKind::Ss, KernelKind::Cx] {
            let own = matches!(w, Workload::Pipeline | Workload::Mixed);
            if own && kernel == KernelKind::Locks {
                continue;
            }
            let c = cfg(kernel, 4);
            let s = w.run(&c).unwrap_or_else(|e| panic!("{} on {kernel:?}: {e}", w.name()));
            assert!(s.end > 0);
        }
    }
}

#[test]
fn one_seed_is_one_run() {
    let c = Config { sched: SchedKind::Aware, perturb: 10, ..cfg(KernelKind::Cx, 6) };
    let a = Workload::Config.run(&c).expect("run");
    assert_eq!(a, Workload::Config.run(&c).expect("run"));
    let other = Config { seed: 9, ..c };
    assert_ne!(a.end, Workload::Config.run(&other).expect("run").end);
}
