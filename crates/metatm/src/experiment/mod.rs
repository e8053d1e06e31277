//! Experiments: which runs, on how many host threads, and what is computed from their counters.

pub mod probe;
pub mod stat;
pub mod suite;
pub mod sweep;

use std::sync::atomic::{AtomicUsize, Ordering};

use crate::config::Config;
use crate::error::Result;
use crate::stats::Stats;
use crate::workload::Workload;

/// How much to run.
#[derive(Debug, Clone, Copy)]
pub struct Effort {
    /// Perturbed runs for each point.
    pub seeds: u64,
    /// Workload scale in percent.
    pub scale: u32,
    /// Host threads.
    pub threads: usize,
    /// Sweep every value, or only the extremes of each constant.
    pub full_sweep: bool,
}

impl Effort {
    /// The whole reproduction.
    pub fn full(threads: usize) -> Self {
        Self { seeds: 5, scale: 150, threads, full_sweep: true }
    }

    /// A look at everything in about a minute.
    pub fn quick(threads: usize) -> Self {
        Self { seeds: 2, scale: 25, threads, full_sweep: false }
    }
}

/// One run to do.
#[derive(Debug, Clone, PartialEq)]
pub struct Job {
    /// Its workload.
    pub workload: Workload,
    /// Its machine and kernel.
    pub cfg: Config,
}

/// Told after each run: what the runs are for, how many are done, of how many.
pub type Progress<'a> = dyn Fn(&str, usize, usize) + Sync + 'a;

/// Runs all jobs on `threads` host threads; the counters in the order of the jobs.
///
/// Runs are independent and each is deterministic, so the number of threads changes no figure.
///
/// # Errors
/// The first run that failed, by order of the jobs.
pub fn run_all(
    jobs: &[Job],
    threads: usize,
    progress: &(dyn Fn(usize, usize) + Sync),
) -> Result<Vec<Stats>> {
    run_each(jobs, threads, progress).into_iter().collect()
}

/// Like [`run_all`], but each job has its own outcome.
pub fn run_each(
    jobs: &[Job],
    threads: usize,
    progress: &(dyn Fn(usize, usize) + Sync),
) -> Vec<Result<Stats>> {
    let (next, done) = (AtomicUsize::new(0), AtomicUsize::new(0));
    let (sender, receiver) = std::sync::mpsc::channel();
    std::thread::scope(|s| {
        for _ in 0..threads.max(1) {
            let sender = sender.clone();
            s.spawn(|| {
                let sender = sender;
                loop {
                    let i = next.fetch_add(1, Ordering::Relaxed);
                    let Some(job) = jobs.get(i) else { break };
                    // Cannot fail: the receiver lives until all threads have ended.
                    let _ = sender.send((i, job.workload.run(&job.cfg)));
                    progress(done.fetch_add(1, Ordering::Relaxed) + 1, jobs.len());
                }
            });
        }
    });
    drop(sender);
    let mut results: Vec<(usize, Result<Stats>)> = receiver.into_iter().collect();
    results.sort_by_key(|(i, _)| *i);
    results.into_iter().map(|(_, stats)| stats).collect()
}
