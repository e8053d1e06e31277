//! `metatm run`: one workload, one machine, one seed.

use std::fmt::Write;
use std::time::Instant;

use metatm::Config;
use metatm::kernel::site::Site;
use metatm::stats::{Rule, Stats};
use metatm::workload::Workload;

/// Arguments of `metatm run`.
#[derive(Debug, clap::Args)]
pub struct Run {
    /// bonnie++, config, dpunish, find, mab, pmake, pipeline or mixed.
    workload: String,
    /// A parameter, as KEY=VALUE; an unknown key lists them all.
    #[arg(long = "set", value_name = "KEY=VALUE")]
    set: Vec<String>,
    /// Show the counters of each critical region too.
    #[arg(long)]
    regions: bool,
}

/// Applies `KEY=VALUE` settings.
///
/// # Errors
/// No `=`, no such key, or a bad value.
pub fn settings(cfg: &mut Config, set: &[String]) -> anyhow::Result<()> {
    for s in set {
        let (key, value) = s
            .split_once('=')
            .ok_or_else(|| anyhow::anyhow!("\"{s}\" is no KEY=VALUE; try cpus=8"))?;
        cfg.set(key, value)?;
    }
    Ok(())
}

impl Run {
    /// Runs the workload and prints its counters.
    ///
    /// # Errors
    /// Bad input, or a run whose figures may not be used.
    pub fn run(self) -> anyhow::Result<bool> {
        let workload = Workload::parse(&self.workload)?;
        let mut cfg = Config::default();
        settings(&mut cfg, &self.set)?;
        let start = Instant::now();
        let stats = workload.run(&cfg)?;
        super::say(&counters(&stats, start.elapsed().as_secs_f64()))?;
        if self.regions {
            super::say(&regions(&stats))?;
        }
        Ok(true)
    }
}

fn counters(s: &Stats, seconds: f64) -> String {
    let mut out = String::new();
    let total: u64 = s.cycles.iter().sum();
    let share = |n: u64, of: u64| 100.0 * n as f64 / of.max(1) as f64;
    let _ = writeln!(out, "cycles          {:>14}", s.end);
    let _ = writeln!(
        out,
        "instructions    {:>14}  {:.1} M/s simulated, {:.1} M references/s",
        s.instrs,
        s.instrs as f64 / seconds / 1e6,
        s.refs as f64 / seconds / 1e6
    );
    let _ = writeln!(out, "host seconds    {seconds:>14.2}");
    for (name, c) in ["user", "sys", "irq", "iowait", "idle"].iter().zip(s.cycles) {
        let _ = writeln!(out, "{name:<15} {:>13.2}%", share(c, total));
    }
    let _ = writeln!(
        out,
        "misses          {:>14}  L1 data, {} L1 code, {} on the bus",
        s.l1d_misses, s.l1i_misses, s.bus
    );
    let _ = writeln!(out, "acquires        {:>14}  {} contended", s.acquires, s.contended);
    let _ = writeln!(out, "test and set    {:>14}", s.test_and_set);
    let _ = writeln!(out, "tests           {:>14}", s.tests);
    let _ = writeln!(out, "commits         {:>14}  {} in interrupts", s.commits, s.commits_irq);
    let _ = writeln!(
        out,
        "restarts        {:>14}  {:?}, at most {}",
        s.all_restarts(),
        s.restarts,
        s.most_restarts
    );
    for rule in Rule::ALL {
        let d = s.by(rule);
        let _ = writeln!(
            out,
            "conflicts       {:>14}  {} inverted, {} against real time: {}",
            d.conflicts,
            d.inversions,
            d.policy_inversions,
            rule.describe()
        );
    }
    let _ = writeln!(out, "overflows       {:>14}", s.overflows);
    let _ = writeln!(
        out,
        "a transaction   {:>14.1}  instructions, {:.1} cycles",
        s.commit_instrs as f64 / s.commits.max(1) as f64,
        s.commit_cycles as f64 / s.commits.max(1) as f64
    );
    let _ = writeln!(
        out,
        "synchronization {:>13.2}%  of kernel time; acquiring {:.2}, restarts {:.2}, overflow {:.2}",
        share(s.sync_cycles(), s.kernel()),
        share(s.acquire_cycles, s.kernel()),
        share(s.restart_cycles(), s.kernel()),
        share(s.virt_cycles, s.kernel())
    );
    let _ = writeln!(
        out,
        "I/O             {:>14}  {} cancelled, mean depth {:.2}",
        s.io,
        s.io_cancelled,
        s.io_depth as f64 / s.io_cancelled.max(1) as f64
    );
    let _ = writeln!(
        out,
        "switches        {:>14}  {} interrupts, {} system calls, {} descheduled",
        s.switches, s.interrupts, s.syscalls, s.descheduled
    );
    out
}

fn regions(s: &Stats) -> String {
    let mut out = String::new();
    let _ = writeln!(
        out,
        "{:<26} {:>9} {:>9} {:>5} {:>7} {:>7}",
        "region", "entries", "in tx", "most", "io", "excl"
    );
    for (i, r) in s.regions.iter().enumerate().filter(|(_, r)| r.entries > 0) {
        let _ = writeln!(
            out,
            "{:<26} {:>9} {:>9} {:>5} {:>7} {:>7}",
            Site::name_of(i),
            r.entries,
            r.tx_entries,
            r.most,
            r.io,
            r.exclusive.iter().sum::<u64>()
        );
    }
    out
}
