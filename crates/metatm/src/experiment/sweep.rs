//! Sensitivity: each constant that the paper leaves open is varied alone, and the headline results
//! are taken again.

use super::suite::percent;
use super::{Effort, Job, run_all};
use crate::config::{Config, KernelKind};
use crate::error::Result;
use crate::stats::Stats;
use crate::workload::Workload;

/// The constants and their values; the default is among them or between them.
const VALUES: &[(&str, &[&str])] = &[
    ("c2c", &["50", "100", "200", "400"]),
    ("upgrade", &["16", "100", "200", "400"]),
    ("work", &["400", "600", "800", "1200", "1600"]),
    ("backoff", &["none", "linear", "exponential"]),
    ("backoff_base", &["16", "64", "256", "1024"]),
    ("backoff_cap", &["2", "5", "8", "12"]),
    ("fallback_restarts", &["4", "32", "256"]),
    ("abort_cost", &["0", "20", "100"]),
    ("virt_cost", &["0", "500", "5000"]),
    ("policy", &["timestamp", "size-matters", "os-prio", "eager", "polite"]),
    ("cycles_per_us", &["50", "100", "200"]),
    ("hz", &["250", "1000"]),
    ("perturb", &["0", "20", "100"]),
    ("icache", &["false", "true"]),
    ("overflow", &["virtualize", "exclusive"]),
    ("io_restart", &["per-level", "all-levels"]),
    ("xcas", &["judge", "caller-wins", "tx-wins"]),
    ("spinner_yields", &["false", "true"]),
    ("workload_seed", &["1", "2", "3"]),
];

/// One value of one constant, and what came of it.
#[derive(Debug, Clone)]
pub struct Swept {
    /// The constant.
    pub key: &'static str,
    /// Its value.
    pub value: &'static str,
    /// The workload on which it was varied.
    pub workload: Workload,
    /// Synchronization in percent of kernel time under locks.
    pub locks_sync: f64,
    /// Change of synchronization time from locks to the subsystem kernel, in percent.
    pub ss_sync_change: f64,
    /// Change of kernel time from locks to the cxspinlock kernel, in percent.
    pub cx_kernel_change: f64,
    /// Restarts for each hundred commits, cxspinlock kernel.
    pub cx_restarts: f64,
}

/// The workload in which constant `key` matters: the one with overflows, the one with most I/O
/// under locks, else one in between.
fn workload_for(key: &str) -> Workload {
    match key {
        "virt_cost" | "overflow" => Workload::Bonnie,
        "io_restart" | "xcas" | "spinner_yields" => Workload::Config,
        _ => Workload::Mab,
    }
}

/// Runs the sweeps at 16 processors.
///
/// # Errors
/// A run whose figures may not be used.
pub fn run(effort: Effort) -> Result<Vec<Swept>> {
    let mut points = Vec::new();
    for (key, values) in VALUES {
        for (i, value) in values.iter().enumerate() {
            if effort.full_sweep || i == 0 || i + 1 == values.len() {
                points.push((*key, *value));
            }
        }
    }
    let mut jobs = Vec::new();
    for (key, value) in &points {
        for kernel in [KernelKind::Locks, KernelKind::Ss, KernelKind::Cx] {
            let workload = workload_for(key);
            // bonnie++ overflows in directories of the standard size only.
            let most = if workload == Workload::Bonnie { 100 } else { 50 };
            let scale = effort.scale.min(most);
            let mut cfg = Config { kernel, scale, perturb: 5, ..Config::default() };
            if *key == "overflow" && kernel != KernelKind::Cx {
                // A naked transaction cannot fall back to a lock.
                jobs.push(Job { workload, cfg });
                continue;
            }
            cfg.set(key, value)?;
            jobs.push(Job { workload, cfg });
        }
    }
    let stats = run_all(&jobs, effort.threads, &|_| {})?;
    Ok(points.iter().zip(stats.chunks(3)).map(|(p, s)| swept(p, &s[0], &s[1], &s[2])).collect())
}

fn swept(p: &(&'static str, &'static str), locks: &Stats, ss: &Stats, cx: &Stats) -> Swept {
    let change = |a: u64, b: u64| percent(b, a) - 100.0;
    Swept {
        key: p.0,
        value: p.1,
        workload: workload_for(p.0),
        locks_sync: percent(locks.sync_cycles(), locks.kernel()),
        ss_sync_change: change(locks.sync_cycles(), ss.sync_cycles()),
        cx_kernel_change: change(locks.kernel(), cx.kernel()),
        cx_restarts: percent(cx.all_restarts(), cx.commits),
    }
}
