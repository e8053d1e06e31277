//! Causes of disagreements with the paper: each is what a probe's runs say, or "unexplained".
//!
//! A sentence says how far the difference goes away when one property of the model is changed. It
//! is put together from the figures, so it cannot claim what the runs do not show.

use super::{Section, Table, paper};
use crate::experiment::probe::{CLOCK_READS, DIRS, Probes, ROWS, Saturated, WAITING};
use crate::experiment::stat::{Mean, mean};
use crate::stats::Stats;

/// For claims about the mechanism: not a difference, but a defect.
pub(super) const DEFECT: &str = "a defect of this build";

/// No run supports a cause.
pub(super) const UNEXPLAINED: &str = "unexplained";

/// Failed test-and-sets for 100 acquires.
pub(super) fn failed(s: &Stats) -> f64 {
    100.0 * s.test_and_set as f64 / s.acquires.max(1) as f64
}

/// Inner loops for each failed test-and-set.
pub(super) fn tests_each(s: &Stats) -> f64 {
    s.tests as f64 / s.test_and_set.max(1) as f64
}

/// How much of the way from `ours` to `wanted` the value `then` goes, in words.
fn reach(ours: f64, then: f64, wanted: f64) -> &'static str {
    let way = (then - ours) / (wanted - ours);
    match way {
        w if w >= 0.8 => "explains it",
        w if w >= 0.25 => "explains part of it",
        _ => "does not explain it",
    }
}

fn at<'a>(saturated: &'a [Saturated], key: &str) -> Option<&'a Saturated> {
    saturated.iter().find(|s| s.setting.key == key && s.setting.value != "0")
}

/// A sentence about what becomes of `f` at 32 processors under other settings.
fn saturated(p: &Probes, unit: &str, wanted: f64, f: impl Fn(&Saturated) -> Mean) -> String {
    let Some(ours) = p.saturated.first().map(&f) else { return UNEXPLAINED.into() };
    let told = ["skew", "bus"].into_iter().filter_map(|key| at(&p.saturated, key)).map(|s| {
        let then = f(s);
        let verdict = reach(ours.value, then.value, wanted);
        format!("{}: {:.1} {unit}, which {verdict}", s.setting.what, then.value)
    });
    let told: Vec<_> = told.collect();
    format!("probe, here {:.1} {unit}; {}", ours.value, told.join("; "))
}

pub(super) fn sync_at_32(p: &Probes) -> String {
    saturated(p, "% (bonnie++)", paper::SYNC_RANGE.1, |s| s.bonnie)
}

pub(super) fn ss_at_32(p: &Probes) -> String {
    saturated(p, "%", paper::SYNC_CHANGE[1], |s| s.ss_sync)
}

pub(super) fn cx_at_32(p: &Probes) -> String {
    saturated(p, "%", paper::CX_CHANGE[1], |s| s.cx_kernel)
}

pub(super) fn bonnie(p: &Probes) -> String {
    let Some((ours, _)) = p.dirs.first() else { return UNEXPLAINED.into() };
    let told = DIRS.iter().zip(&p.dirs).skip(1).map(|(dirs, (then, most))| {
        let verdict = reach(ours.value, then.value, 100.0);
        format!("{dirs}: {:+.0} %, at most {most} restarts, which {verdict}", then.value)
    });
    let told: Vec<_> = told.collect();
    format!(
        "probe, directories among the 32 instances, here 32: {:+.0} %; {}",
        ours.value,
        told.join("; ")
    )
}

pub(super) fn clock(p: &Probes) -> String {
    let told = CLOCK_READS.iter().zip(&p.clock);
    let told: Vec<_> = told.map(|(n, (time, _))| format!("{n}: {time}")).collect();
    let most = p.clock.iter().map(|(time, _)| *time).max().unwrap_or(0);
    let verdict = if most >= 24 { "explains it" } else { "does not explain it" };
    format!(
        "probe, most threads in do_gettimeofday by its calls in each system call: {}, which {verdict}",
        told.join(", ")
    )
}

pub(super) fn herd(p: &Probes, f: fn(&Stats) -> f64, wanted: impl Fn(&[f64; 3]) -> f64) -> String {
    let average = |setting: usize| {
        let values: Vec<f64> = p
            .waiting
            .iter()
            .map(|row| mean(&row[setting].iter().map(f).collect::<Vec<_>>()).value)
            .collect();
        mean(&values).value
    };
    let papers: Vec<f64> = ROWS.iter().filter_map(|r| row6(*r)).map(|r| wanted(&r)).collect();
    let (ours, then, paper) = (average(0), average(2), mean(&papers).value);
    format!(
        "probe, averages of four rows: here {ours:.1}, paper {paper:.1}; {}: {then:.1}, which {}",
        WAITING[2].what,
        reach(ours, then, paper)
    )
}

/// Linux's counts in the paper's table 6.
fn row6((workload, cpus): (crate::workload::Workload, usize)) -> Option<[f64; 3]> {
    paper::TABLE6.iter().find(|r| (r.0, r.1) == (workload, cpus)).map(|r| r.2)
}

/// The probes' own section.
pub(super) fn section(p: &Probes) -> Section {
    let mut waiting = Table::new(&[
        "run",
        "setting",
        "contended per 100 acquires",
        "t&s per 100",
        "t&s per contended",
        "test per t&s",
        "synchronization",
    ]);
    for (row, by_setting) in ROWS.iter().zip(&p.waiting) {
        let name = format!("{} {}", row.0.name(), row.1);
        for (setting, runs) in WAITING.iter().zip(by_setting) {
            let cell = |f: fn(&Stats) -> f64, digits: usize| {
                format!("{:.digits$}", mean(&runs.iter().map(f).collect::<Vec<_>>()))
            };
            waiting.row([
                name.clone(),
                setting.what.to_owned(),
                cell(|s| 100.0 * s.contended as f64 / s.acquires.max(1) as f64, 2),
                cell(failed, 2),
                cell(|s| s.test_and_set as f64 / s.contended.max(1) as f64, 2),
                cell(tests_each, 0),
                cell(|s| 100.0 * s.sync_cycles() as f64 / s.kernel().max(1) as f64, 1) + " %",
            ]);
        }
        if let Some([acquires, failed, tests]) = row6(*row) {
            waiting.row([
                name,
                "**paper**".to_owned(),
                format!("at most {:.2}", 100.0 * failed / acquires),
                format!("{:.2}", 100.0 * failed / acquires),
                "at least 1".to_owned(),
                format!("{:.0}", tests / failed),
                String::new(),
            ]);
        }
    }
    let mut at_32 = Table::new(&[
        "setting, 32 processors",
        "synchronization of bonnie++, Linux",
        "sync change SS, average",
        "kernel time change CX, average",
    ]);
    for s in &p.saturated {
        at_32.row([
            s.setting.what.to_owned(),
            format!("{:.1} %", s.bonnie),
            format!("{:+.0} %", s.ss_sync),
            format!("{:+.1} %", s.cx_kernel),
        ]);
    }
    let mut dirs = Table::new(&["directories of bonnie++", "sync change SS", "most restarts"]);
    for (n, (change, most)) in DIRS.iter().zip(&p.dirs) {
        dirs.row([(*n).to_owned(), format!("{change:+.0} %"), most.to_string()]);
    }
    let mut clock = Table::new(&[
        "reads of the clock in each system call",
        "most threads in do_gettimeofday",
        "in any region",
    ]);
    for (n, (time, most)) in CLOCK_READS.iter().zip(&p.clock) {
        clock.row([(*n).to_owned(), time.to_string(), most.to_string()]);
    }
    Section {
        title: "Probes: what is behind the differences".into(),
        text: "Runs that change one property of the model each. First, waiting for spinlocks under \
               Linux. The paper has 447 to 2580 tests for each failed test-and-set: waits of \
               thousands of cycles with few attempts. Three things can lie behind a difference \
               from that: the rush of all waiters at a release (a pause before the attempt takes \
               it away), how finely the simulated processors are interleaved (turns), and how often \
               an acquire meets a held lock at all (the first column of figures). The rows show how \
               much each does; what none of them changes stays unexplained. Then the other \
               differences that a property of the model might explain."
            .into(),
        tables: vec![waiting, at_32, dirs, clock],
        plots: Vec::new(),
    }
}
