//! `metatm reproduce`: all experiments, and the report.

use std::path::PathBuf;
use std::time::Instant;

use metatm::experiment::Effort;
use metatm::report::{self, Report};

/// Arguments of `metatm reproduce`.
#[derive(Debug, clap::Args)]
pub struct Reproduce {
    /// Fewer seeds, smaller workloads, extremes of each sweep: about a minute.
    #[arg(long)]
    quick: bool,
    /// Where to write report.md, report.html and plots/.
    #[arg(long, default_value = "metatm-report")]
    out: PathBuf,
    /// Host threads.
    #[arg(long, default_value_t = 2)]
    threads: usize,
    /// Perturbed runs for each point, instead of the mode's own number.
    #[arg(long)]
    seeds: Option<u64>,
}

impl Reproduce {
    /// Runs everything; false if a litmus test failed.
    ///
    /// # Errors
    /// Bad input, a run whose figures may not be used, or a report that cannot be written.
    pub fn run(self) -> anyhow::Result<bool> {
        anyhow::ensure!((1..=64).contains(&self.threads), "--threads must be between 1 and 64");
        let mut effort =
            if self.quick { Effort::quick(self.threads) } else { Effort::full(self.threads) };
        if let Some(seeds) = self.seeds {
            anyhow::ensure!((1..=100).contains(&seeds), "--seeds must be between 1 and 100");
            effort.seeds = seeds;
        }
        Report::prepare(&self.out)?;
        let start = Instant::now();
        let report = report::reproduce(effort, &|what, done, total| {
            if done % 50 == 0 || done == total {
                eprintln!("{what}: {done} of {total} runs, {:.0} s", start.elapsed().as_secs_f64());
            }
        })?;
        report.write(&self.out)?;
        let held = report.claims.iter().filter(|c| c.holds).count();
        super::say(&format!(
            "{held} of {} comparisons agree; {} written in {:.0} s\n",
            report.claims.len(),
            self.out.join("report.html").display(),
            start.elapsed().as_secs_f64()
        ))?;
        Ok(report.litmus_failures == 0)
    }
}
