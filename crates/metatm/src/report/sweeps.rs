//! The sensitivity sweeps: one table for each way to run a constant.

use super::{Section, Table};
use crate::config::Config;
use crate::experiment::Effort;
use crate::experiment::stat::mean;
use crate::experiment::suite::percent;
use crate::experiment::sweep::{Setup, Swept, seeds};
use crate::stats::{Rule, Stats};

/// Positions of the variants of [`Setup::Application`].
const LOCKS: usize = 0;
const SS: usize = 1;
const CX: usize = 2;

fn restarts(s: &Stats) -> f64 {
    percent(s.all_restarts(), s.commits)
}

fn sync(s: &Stats) -> f64 {
    percent(s.sync_cycles(), s.kernel())
}

/// All sections.
pub(super) fn sections(swept: &[Swept], effort: Effort) -> Vec<Section> {
    Setup::ALL
        .into_iter()
        .map(|setup| {
            let rows: Vec<&Swept> = swept.iter().filter(|s| s.setup == setup).collect();
            let (title, text, t) = match setup {
                Setup::Application => application(&rows),
                Setup::Pipeline => pipeline(&rows),
                Setup::Mixed => mixed(&rows),
            };
            let values = if effort.full_sweep { "all values" } else { "the extreme values" };
            let text = format!(
                "{text} {values} of each constant, {} runs each, the others at their defaults.",
                seeds(setup, effort)
            );
            Section { title: title.into(), text, tables: vec![t], plots: Vec::new() }
        })
        .collect()
}

type Part = (&'static str, String, Table);

fn application(rows: &[&Swept]) -> Part {
    let mut t = Table::new(&[
        "constant",
        "value",
        "workload",
        "sync under Linux",
        "sync change SS",
        "kernel time change CX",
        "restarts per 100 commits CX",
        "inversions SS",
        "against real time SS",
    ]);
    let change = |s: &Swept| s.change(LOCKS, SS, |s| s.sync_cycles() as f64);
    for s in rows {
        let inverted = |s: &Stats| percent(s.managed().inversions, s.managed().conflicts);
        let policy = |s: &Stats| percent(s.managed().policy_inversions, s.managed().conflicts);
        t.row([
            s.key.to_owned(),
            s.value.to_owned(),
            s.workload.name().to_owned(),
            format!("{:.1} %", s.mean(LOCKS, sync)),
            format!("{:+.0} %", change(s)),
            format!("{:+.1} %", s.change(LOCKS, CX, |s| s.kernel() as f64)),
            format!("{:.1}", s.mean(CX, restarts)),
            format!("{:.1} %", s.mean(SS, inverted)),
            format!("{:.2} %", s.mean(SS, policy)),
        ]);
    }
    let changes: Vec<f64> = rows.iter().map(|s| change(s).value).collect();
    let worst = changes.iter().copied().fold(f64::MIN, f64::max);
    let d = Config::default();
    let text = format!(
        "Applications on 16 processors. Defaults: c2c {}, upgrade {}, work {}, backoff base {} and \
         cap {}, abort {}, virtualization {}, quantum {}. The change of synchronization time by \
         TxLinux-SS is {:.0} % on average and {worst:+.0} % in the worst case. Shown are",
        d.c2c,
        d.upgrade,
        d.work,
        d.backoff_base,
        d.backoff_cap,
        d.abort_cost,
        d.virt_cost,
        d.quantum,
        mean(&changes)
    );
    ("Sensitivity: applications", text, t)
}

fn pipeline(rows: &[&Swept]) -> Part {
    let mut t = Table::new(&[
        "constant",
        "value",
        "million cycles",
        "restarts per 100 commits",
        "most restarts of one",
        "change of time by aware",
        "change of restarts by aware",
        "descheduled",
    ]);
    let time = |s: &Stats| s.end as f64;
    for s in rows {
        t.row([
            s.key.to_owned(),
            s.value.to_owned(),
            format!("{:.1}", s.mean(0, |s| s.end as f64 / 1e6)),
            format!("{:.0}", s.mean(0, restarts)),
            most(&s.runs[0]),
            format!("{:+.1} %", s.change(0, 1, time)),
            format!("{:+.1} %", s.change(0, 1, |s| s.all_restarts() as f64)),
            format!("{:.0}", s.mean(1, |s| s.descheduled as f64).value),
        ]);
    }
    let gains = rows.iter().filter(|s| s.change(0, 1, time).value < 0.0).count();
    let text = format!(
        "The pipeline on 8 processors: the scheduler's constants, and those that need many restarts. \
         The aware scheduler gains on average in {gains} of {} rows. polite_base and polite_waits \
         are varied under policy=polite, reward_large with large=8. Shown are",
        rows.len()
    );
    ("Sensitivity: contention and the aware scheduler", text, t)
}

fn mixed(rows: &[&Swept]) -> Part {
    let mut t = Table::new(&[
        "constant",
        "value",
        "outcome",
        "million cycles",
        "restarts per 100 commits",
        "most restarts of one",
        "xcas refused per 100 acquires",
        "spinners that gave way per 100 commits",
        "inversions",
    ]);
    for s in rows {
        let done = s.runs[0].len();
        let outcome = match s.stuck {
            0 => "done".to_owned(),
            n => format!("{n} of {} stuck", n + done),
        };
        let cells = |s: &Swept| {
            let inverted = |s: &Stats| percent(s.managed().inversions, s.managed().conflicts);
            [
                format!("{:.1}", s.mean(0, |s| s.end as f64 / 1e6)),
                format!("{:.0}", s.mean(0, restarts)),
                most(&s.runs[0]),
                format!("{:.0}", s.mean(0, |s| percent(s.xcas_refused, s.acquires))),
                format!("{:.1}", s.mean(0, |s| percent(s.by(Rule::Spinner).conflicts, s.commits))),
                format!("{:.2} %", s.mean(0, inverted)),
            ]
        };
        let cells = if done > 0 { cells(s) } else { std::array::from_fn(|_| "-".to_owned()) };
        let head = [s.key.to_owned(), s.value.to_owned(), outcome];
        t.row(head.into_iter().chain(cells));
    }
    let text = "cxspinlocks in every mode on 16 processors (TxLinux-CX, workload mixed), which meet \
                as in section 5.3: what decides between exclusive and optimistic threads. The \
                inversions under os-prio are spinners that gave way, by the rule that resolves the \
                deadlock; \"stuck\" is a deadlock or livelock that the watchdog ended. Shown are";
    ("Sensitivity: locks and transactions", text.into(), t)
}

fn most(runs: &[Stats]) -> String {
    runs.iter().map(|s| s.most_restarts).max().unwrap_or(0).to_string()
}
