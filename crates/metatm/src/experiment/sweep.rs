//! Sensitivity: each constant that the paper leaves open is varied alone, on a workload in which it
//! matters, and the headline results are taken again.

use super::stat::{Mean, mean};
use super::{Effort, Job, Progress, run_each};
use crate::config::{Config, KernelKind, SchedKind};
use crate::error::{Result, SimError};
use crate::htm::policy::Policy;
use crate::stats::Stats;
use crate::workload::Workload;

/// What is run for each value, and which results are looked at.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Setup {
    /// An application on 16 processors under the three kernels.
    Application,
    /// The pipeline on 8 processors under both schedulers.
    Pipeline,
    /// The mixture of cxspinlock sections on 16 processors under TxLinux-CX.
    Mixed,
}

impl Setup {
    /// All.
    pub const ALL: [Self; 3] = [Self::Application, Self::Pipeline, Self::Mixed];

    /// Runs for one value and seed.
    fn variants(self) -> usize {
        match self {
            Self::Application => 3,
            Self::Pipeline => 2,
            Self::Mixed => 1,
        }
    }
}

/// Values of one constant; the default is among them or between them.
struct Constant {
    key: &'static str,
    values: &'static [&'static str],
}

macro_rules! constants {
    ($($key:literal: $($value:literal)+;)+) => {
        &[$(Constant { key: $key, values: &[$($value),+] }),+]
    };
}

const APPLICATION: &[Constant] = constants! {
    "c2c": "50" "100" "200" "400";
    "upgrade": "16" "100" "200" "400";
    "bus": "0" "20" "40";
    "skew": "0" "300" "1000";
    "late": "false" "true";
    "work": "400" "550" "700" "1000" "1400";
    "backoff": "none" "linear" "exponential";
    "backoff_base": "16" "64" "256" "1024";
    "backoff_cap": "2" "5" "8" "12";
    "abort_cost": "0" "20" "100";
    "virt_cost": "0" "500" "5000";
    "overflow": "virtualize" "exclusive";
    "policy": "timestamp" "size-matters" "os-prio" "eager" "polite";
    "cycles_per_us": "50" "100" "200";
    "hz": "250" "1000";
    "quantum": "1" "10" "50";
    "daemon_ticks": "1" "3" "10";
    "dma_us": "0" "30" "300";
    "wire_us": "0" "12" "1000";
    "perturb": "0" "20" "100";
    "icache": "false" "true";
    "bonnie_dirs": "1" "4" "32";
    "clock_reads": "0" "2" "8";
    "workload_seed": "1" "2" "3";
};

const PIPELINE: &[Constant] = constants! {
    "quantum": "2" "5" "10" "50";
    "average": "0" "1" "3" "15";
    "large": "8" "64" "1000";
    "reward_active": "0" "2" "5";
    "reward_large": "0" "1" "5";
    "penalty": "0" "3" "8";
    "fallback_restarts": "1" "4" "32" "256";
    "backoff": "none" "linear" "exponential";
    "backoff_base": "16" "64" "256" "1024";
    "backoff_cap": "2" "5" "8" "12";
    "abort_cost": "0" "20" "100";
    "polite_base": "8" "32" "128";
    "polite_waits": "0" "2" "4" "8";
    "policy": "timestamp" "size-matters" "os-prio" "eager" "polite";
};

const MIXED: &[Constant] = constants! {
    "spinner_yields": "false" "true";
    "xcas": "judge" "caller-wins" "tx-wins";
    "fallback_restarts": "1" "4" "32" "256";
    "io_restart": "per-level" "all-levels";
    "backoff": "none" "linear" "exponential";
    "policy": "timestamp" "size-matters" "os-prio" "eager" "polite";
};

/// One value of one constant, and what came of it.
#[derive(Debug)]
pub struct Swept {
    /// What was run.
    pub setup: Setup,
    /// The constant.
    pub key: &'static str,
    /// Its value.
    pub value: &'static str,
    /// The workload on which it was varied.
    pub workload: Workload,
    /// Runs that went through, by variant (kernel or scheduler), then by seed.
    pub runs: Vec<Vec<Stats>>,
    /// Runs that ended in a deadlock or livelock.
    pub stuck: usize,
}

impl Swept {
    /// Mean of `f` over the runs of `variant`.
    pub fn mean(&self, variant: usize, f: impl Fn(&Stats) -> f64) -> Mean {
        mean(&self.runs[variant].iter().map(f).collect::<Vec<_>>())
    }

    /// Change of `f` from variant `a` to variant `b` in percent, run by run.
    pub fn change(&self, a: usize, b: usize, f: impl Fn(&Stats) -> f64) -> Mean {
        let pairs = self.runs[a].iter().zip(&self.runs[b]);
        let usable = pairs.filter(|(a, _)| f(a) != 0.0);
        mean(&usable.map(|(a, b)| 100.0 * (f(b) / f(a) - 1.0)).collect::<Vec<_>>())
    }
}

/// The workload in which constant `key` matters.
fn workload_for(setup: Setup, key: &str) -> Workload {
    match (setup, key) {
        (Setup::Pipeline, _) => Workload::Pipeline,
        (Setup::Mixed, _) => Workload::Mixed,
        // It alone overflows L1, and only in directories of the standard size.
        (_, "virt_cost" | "overflow" | "bonnie_dirs") => Workload::Bonnie,
        // It alone uses the network, and the disk most.
        (_, "dma_us" | "wire_us") => Workload::Find,
        // Its threads compute and fork, so that quanta end.
        (_, "quantum") => Workload::Config,
        _ => Workload::Mab,
    }
}

/// The runs of one value and seed.
fn jobs(setup: Setup, key: &str, value: &str, effort: Effort, seed: u64) -> Result<Vec<Job>> {
    let workload = workload_for(setup, key);
    let base = Config { seed, ..Config::default() };
    let variants: Vec<Config> = match setup {
        Setup::Application => {
            let most = if workload == Workload::Bonnie { 100 } else { 50 };
            let base = Config { scale: effort.scale.min(most), perturb: 5, ..base };
            [KernelKind::Locks, KernelKind::Ss, KernelKind::Cx]
                .map(|kernel| Config { kernel, ..base.clone() })
                .into()
        }
        Setup::Pipeline => {
            let scale = effort.scale.clamp(10, 100);
            let base = Config { cpus: 8, kernel: KernelKind::Ss, scale, perturb: 20, ..base };
            [SchedKind::Default, SchedKind::Aware]
                .map(|sched| Config { sched, ..base.clone() })
                .into()
        }
        Setup::Mixed => {
            let scale = effort.scale.min(100);
            // Short, so that a deadlock is found soon; nothing here waits as long otherwise.
            vec![Config { kernel: KernelKind::Cx, scale, perturb: 20, watchdog: 2_000_000, ..base }]
        }
    };
    variants
        .into_iter()
        .map(|mut cfg| {
            match key {
                "polite_base" | "polite_waits" => cfg.policy = Policy::Polite,
                // The pipeline's transactions count as large from here on.
                "reward_large" => cfg.large = 8,
                _ => {}
            }
            // A naked transaction cannot fall back to a lock.
            if key != "overflow" || cfg.kernel == KernelKind::Cx {
                cfg.set(key, value)?;
            }
            Ok(Job { workload, cfg })
        })
        .collect()
}

/// Runs the sweeps.
///
/// # Errors
/// A run whose figures may not be used. A deadlock of [`Setup::Mixed`] is a result.
pub fn run(effort: Effort, progress: &Progress<'_>) -> Result<Vec<Swept>> {
    let mut points = Vec::new();
    for (setup, constants) in Setup::ALL.into_iter().zip([APPLICATION, PIPELINE, MIXED]) {
        for Constant { key, values } in constants {
            for (i, value) in values.iter().enumerate() {
                if effort.full_sweep || i == 0 || i + 1 == values.len() {
                    points.push((setup, *key, *value));
                }
            }
        }
    }
    // The default is a value of every constant: such runs are made once.
    let mut unique: Vec<Job> = Vec::new();
    let mut wanted = Vec::new();
    for (setup, key, value) in &points {
        for seed in 1..=seeds(*setup, effort) {
            for job in jobs(*setup, key, value, effort, seed)? {
                let known = unique.iter().position(|j| *j == job);
                wanted.push(known.unwrap_or(unique.len()));
                if known.is_none() {
                    unique.push(job);
                }
            }
        }
    }
    let results = run_each(&unique, effort.threads, &|done, of| progress("sweeps", done, of));
    let mut wanted = wanted.into_iter();
    let mut swept = Vec::new();
    for (setup, key, value) in points {
        let mut s = Swept {
            setup,
            key,
            value,
            workload: workload_for(setup, key),
            runs: vec![Vec::new(); setup.variants()],
            stuck: 0,
        };
        let runs = setup.variants() * seeds(setup, effort) as usize;
        for (i, job) in wanted.by_ref().take(runs).enumerate() {
            match &results[job] {
                Ok(stats) => s.runs[i % setup.variants()].push(stats.clone()),
                Err(SimError::NoProgress { .. }) if setup == Setup::Mixed => s.stuck += 1,
                Err(e) => return Err(e.clone()),
            }
        }
        swept.push(s);
    }
    Ok(swept)
}

/// Perturbed runs for each value: schedules of the pipeline differ most.
pub fn seeds(setup: Setup, effort: Effort) -> u64 {
    let most = if setup == Setup::Pipeline { 5 } else { 3 };
    effort.seeds.min(most)
}
