//! Probes: runs that test what might explain a difference from the paper. Each changes one
//! property of the model and looks whether the difference goes away.

use super::stat::{Mean, mean};
use super::suite::{PERTURB, percent};
use super::{Effort, Job, Progress, run_all};
use crate::config::{Config, KernelKind};
use crate::error::Result;
use crate::kernel::site::Site;
use crate::stats::Stats;
use crate::workload::Workload;

/// A property of the model, changed by one parameter.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Setting {
    /// What it is, in words.
    pub what: &'static str,
    /// The parameter.
    pub key: &'static str,
    /// Its value.
    pub value: &'static str,
}

const fn setting(what: &'static str, key: &'static str, value: &'static str) -> Setting {
    Setting { what, key, value }
}

/// The model as it is, for comparison.
pub const AS_IS: Setting = setting("the model as it is", "skew", "0");

/// Processors take turns, as in a simulator that runs one after the other for a while.
pub const TURNS: Setting = setting("processors in turns of 1000 cycles", "skew", "1000");

/// How waiting for spinlocks may differ from the model as it is.
pub const WAITING: [Setting; 6] = [
    AS_IS,
    TURNS,
    setting("processors in turns of 3000 cycles", "skew", "3000"),
    setting("accesses hold the bus for 40 cycles", "bus", "40"),
    setting("waiters pause up to 2000 cycles", "spin_backoff", "2000"),
    setting("accesses take effect before their miss, not after", "late", "false"),
];

/// The rows of table 6 on which waiting is looked at.
pub const ROWS: [(Workload, usize); 4] =
    [(Workload::Bonnie, 16), (Workload::Mab, 16), (Workload::Mab, 32), (Workload::Find, 32)];

/// How many directories the instances of bonnie++ share.
pub const DIRS: [&str; 3] = ["32", "4", "1"];

/// Reads of the clock in each system call.
pub const CLOCK_READS: [&str; 3] = ["0", "8", "30"];

/// Results for all workloads at 32 processors under one setting.
#[derive(Debug, Clone, Copy)]
pub struct Saturated {
    /// The setting.
    pub setting: Setting,
    /// Synchronization in percent of kernel time, Linux: bonnie++.
    pub bonnie: Mean,
    /// Change of synchronization time by TxLinux-SS, average over the workloads.
    pub ss_sync: Mean,
    /// Change of kernel time by TxLinux-CX, average over the workloads.
    pub cx_kernel: Mean,
}

/// What came of all probes.
#[derive(Debug)]
pub struct Probes {
    /// Runs of Linux, by [`ROWS`], then by [`WAITING`], then by seed.
    pub waiting: Vec<Vec<Vec<Stats>>>,
    /// At 32 processors.
    pub saturated: Vec<Saturated>,
    /// Change of bonnie++'s synchronization time by TxLinux-SS at 16 processors, and the most
    /// restarts of one transaction there, by [`DIRS`].
    pub dirs: Vec<(Mean, u32)>,
    /// Most threads at once in `do_gettimeofday`, and in any region, of mab at 32 processors under
    /// TxLinux-CX, by [`CLOCK_READS`].
    pub clock: Vec<(u32, u32)>,
}

/// Runs for each probe.
pub fn seeds(effort: Effort) -> u64 {
    effort.seeds.min(3)
}

/// The runs of one point of a probe.
fn runs(
    (workload, cpus): (Workload, usize),
    kernel: KernelKind,
    (key, value): (&str, &str),
    effort: Effort,
) -> Result<Vec<Job>> {
    (1..=seeds(effort))
        .map(|seed| {
            let scale = effort.scale.min(50);
            let mut cfg =
                Config { cpus, kernel, seed, scale, perturb: PERTURB, ..Config::default() };
            cfg.set(key, value)?;
            Ok(Job { workload, cfg })
        })
        .collect()
}

fn change(a: &[Stats], b: &[Stats], f: fn(&Stats) -> u64) -> Mean {
    let pairs = a.iter().zip(b).filter(|(a, _)| f(a) > 0);
    mean(&pairs.map(|(a, b)| percent(f(b), f(a)) - 100.0).collect::<Vec<_>>())
}

/// Runs all probes.
///
/// # Errors
/// A run whose figures may not be used.
pub fn run(effort: Effort, progress: &Progress<'_>) -> Result<Probes> {
    use KernelKind::{Cx, Locks, Ss};
    let saturated = [WAITING[0], WAITING[1], WAITING[3]];
    let mut jobs = Vec::new();
    for row in ROWS {
        for s in WAITING {
            jobs.extend(runs(row, Locks, (s.key, s.value), effort)?);
        }
    }
    for s in saturated {
        for workload in Workload::TABLE5 {
            for kernel in [Locks, Ss, Cx] {
                jobs.extend(runs((workload, 32), kernel, (s.key, s.value), effort)?);
            }
        }
    }
    for dirs in DIRS {
        for kernel in [Locks, Ss] {
            jobs.extend(runs((Workload::Bonnie, 16), kernel, ("bonnie_dirs", dirs), effort)?);
        }
    }
    for reads in CLOCK_READS {
        jobs.extend(runs((Workload::Mab, 32), Cx, ("clock_reads", reads), effort)?);
    }
    let stats = run_all(&jobs, effort.threads, &|done, of| progress("probes", done, of))?;
    let mut points = stats.chunks(seeds(effort) as usize);
    let mut next = || points.next().unwrap_or_default();
    Ok(Probes {
        waiting: ROWS.map(|_| WAITING.map(|_| next().to_vec()).into()).into(),
        saturated: saturated.map(|s| at_saturation(s, &mut next)).into(),
        dirs: DIRS
            .map(|_| {
                let (linux, ss) = (next(), next());
                let most = ss.iter().map(|s| s.most_restarts).max().unwrap_or(0);
                (change(linux, ss, Stats::sync_cycles), most)
            })
            .into(),
        clock: CLOCK_READS
            .map(|_| {
                let runs = next();
                let most = |s: &Stats| s.regions.iter().map(|r| r.most).max().unwrap_or(0);
                let time = |s: &Stats| s.regions.get(Site::TimeRead as usize).map_or(0, |r| r.most);
                (runs.iter().map(time).max().unwrap_or(0), runs.iter().map(most).max().unwrap_or(0))
            })
            .into(),
    })
}

fn at_saturation<'a>(setting: Setting, next: &mut impl FnMut() -> &'a [Stats]) -> Saturated {
    let (mut ss_sync, mut cx_kernel, mut bonnie) = (Vec::new(), Vec::new(), Mean::default());
    for workload in Workload::TABLE5 {
        let (linux, ss, cx) = (next(), next(), next());
        ss_sync.push(change(linux, ss, Stats::sync_cycles).value);
        cx_kernel.push(change(linux, cx, Stats::kernel).value);
        if workload == Workload::Bonnie {
            let share = linux.iter().map(|s| percent(s.sync_cycles(), s.kernel()));
            bonnie = mean(&share.collect::<Vec<_>>());
        }
    }
    Saturated { setting, bonnie, ss_sync: mean(&ss_sync), cx_kernel: mean(&cx_kernel) }
}
