//! The main body of runs: every workload on every kernel, policy and scheduler that a table or
//! figure of the paper needs.

use std::collections::HashMap;

use super::stat::{Mean, mean};
use super::{Effort, Job, Progress, run_all};
use crate::config::{Config, KernelKind, SchedKind};
use crate::error::Result;
use crate::htm::policy::Policy;
use crate::stats::Stats;
use crate::workload::Workload;

/// Most cycles by which a bus access is perturbed in runs for confidence intervals.
pub const PERTURB: u32 = 20;

/// Which runs belong together: they differ in the seed alone.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Point {
    /// Workload.
    pub workload: Workload,
    /// Processors.
    pub cpus: usize,
    /// Kernel.
    pub kernel: KernelKind,
    /// Scheduler.
    pub sched: SchedKind,
    /// Contention policy.
    pub policy: Policy,
}

impl Point {
    /// The paper's default policy and scheduler.
    pub fn plain(workload: Workload, cpus: usize, kernel: KernelKind) -> Self {
        Self { workload, cpus, kernel, sched: SchedKind::Default, policy: Policy::SizeMatters }
    }

    fn job(self, seed: u64, scale: u32) -> Job {
        // The pipeline's threads must outlive several quanta, or no scheduler has a say.
        let scale = if self.workload == Workload::Pipeline { scale.max(100) } else { scale };
        let cfg = Config {
            cpus: self.cpus,
            kernel: self.kernel,
            sched: self.sched,
            policy: self.policy,
            seed,
            scale,
            perturb: PERTURB,
            ..Config::default()
        };
        Job { workload: self.workload, cfg }
    }
}

/// Processor counts of the paper's main experiments.
pub const CPUS: [usize; 2] = [16, 32];

/// Processor counts of figure 9.
pub const PIPELINE_CPUS: [usize; 3] = [4, 8, 16];

/// All points.
pub fn points() -> Vec<Point> {
    let mut all = Vec::new();
    for workload in Workload::TABLE5 {
        for cpus in CPUS {
            for kernel in [KernelKind::Locks, KernelKind::Ss, KernelKind::Cx] {
                all.push(Point::plain(workload, cpus, kernel));
            }
            for sched in [SchedKind::Default, SchedKind::Aware] {
                for policy in [Policy::SizeMatters, Policy::OsPrio, Policy::Timestamp] {
                    let p = Point { workload, cpus, kernel: KernelKind::Ss, sched, policy };
                    let wanted = policy != Policy::Timestamp || sched == SchedKind::Default;
                    if wanted && !all.contains(&p) {
                        all.push(p);
                    }
                }
                let plain = Point::plain(workload, cpus, KernelKind::Cx);
                all.push(Point { sched, policy: Policy::OsPrio, ..plain });
            }
        }
    }
    for cpus in PIPELINE_CPUS {
        for sched in [SchedKind::Default, SchedKind::Aware] {
            let plain = Point::plain(Workload::Pipeline, cpus, KernelKind::Ss);
            all.push(Point { sched, ..plain });
        }
    }
    all
}

/// The counters of all runs.
pub struct Suite {
    runs: HashMap<Point, Vec<Stats>>,
}

impl Suite {
    /// Runs everything.
    ///
    /// # Errors
    /// A run whose figures may not be used: the report is not written then.
    pub fn run(effort: Effort, progress: &Progress<'_>) -> Result<Self> {
        let points = points();
        let jobs: Vec<Job> = points
            .iter()
            .flat_map(|p| (1..=effort.seeds).map(|seed| p.job(seed, effort.scale)))
            .collect();
        let stats = run_all(&jobs, effort.threads, &|done, of| progress("experiments", done, of))?;
        let mut runs = HashMap::new();
        for (p, s) in points.iter().zip(stats.chunks(effort.seeds as usize)) {
            runs.insert(*p, s.to_vec());
        }
        Ok(Self { runs })
    }

    /// The runs of a point; none if it is not part of the suite.
    pub fn at(&self, p: Point) -> &[Stats] {
        self.runs.get(&p).map_or(&[], Vec::as_slice)
    }

    /// Mean of `f` over the runs of a point.
    pub fn mean(&self, p: Point, f: impl Fn(&Stats) -> f64) -> Mean {
        mean(&self.at(p).iter().map(f).collect::<Vec<_>>())
    }

    /// Change of `f` from point `a` to point `b` in percent, run by run (equal seeds paired).
    pub fn change(&self, a: Point, b: Point, f: impl Fn(&Stats) -> f64) -> Mean {
        let pairs = self.at(a).iter().zip(self.at(b));
        let changes: Vec<f64> =
            pairs.filter(|(a, _)| f(a) != 0.0).map(|(a, b)| 100.0 * (f(b) / f(a) - 1.0)).collect();
        mean(&changes)
    }

    /// All runs with their points.
    pub fn all(&self) -> impl Iterator<Item = (&Point, &Stats)> {
        self.runs.iter().flat_map(|(p, runs)| runs.iter().map(move |s| (p, s)))
    }
}

/// `n` in percent of `of`; 0 if `of` is 0.
pub fn percent(n: u64, of: u64) -> f64 {
    if of == 0 { 0.0 } else { 100.0 * n as f64 / of as f64 }
}
