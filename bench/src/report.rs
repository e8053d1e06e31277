//! The table: what was measured, beside its goal.

use std::fmt;
use std::fs;
use std::process::Command;

use anyhow::{Context as _, Result};
use serde::Serialize;

use crate::context::Context;
use crate::measure::{Pairs, median};
use crate::rows::Row;

/// What a row's figure is held against.
#[derive(Clone, Copy, Debug, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Goal {
    /// At most so many times the native figure.
    Ratio(f64),
    /// At most this, in the figure's unit.
    AtMost(f64),
    /// Shown without a goal.
    None,
}

/// The unit of a figure.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Unit {
    /// Recorded in seconds, shown in milliseconds where short.
    Seconds,
    /// Mebibytes.
    MiB,
}

/// One line of the table.
#[derive(Clone, Debug, Serialize)]
pub struct Figure {
    /// What was measured.
    pub what: String,
    /// Its unit.
    pub unit: Unit,
    /// Its goal.
    pub goal: Goal,
    /// The raw figures, in the order of the runs.
    pub pairs: Pairs,
    /// What has to be known beside it.
    pub note: Option<String>,
}

impl Figure {
    /// A time, native against txos, with the ratio that is the goal.
    pub fn ratio(what: impl Into<String>, pairs: Pairs, goal: f64) -> Self {
        Self { what: what.into(), unit: Unit::Seconds, goal: Goal::Ratio(goal), pairs, note: None }
    }

    /// The same, with a note.
    pub fn note(mut self, note: impl Into<String>) -> Self {
        self.note = Some(note.into());
        self
    }

    /// The medians' ratio, where there is a native figure.
    pub fn times(&self) -> Option<f64> {
        let ratio = median(&self.pairs.txos) / median(&self.pairs.native);
        ratio.is_finite().then_some(ratio)
    }

    /// Whether the goal was reached; `None` without one, or without figures.
    pub fn met(&self) -> Option<bool> {
        match self.goal {
            Goal::Ratio(goal) => self.times().map(|ratio| ratio <= goal),
            Goal::AtMost(goal) => {
                let figure = median(&self.pairs.txos);
                (!figure.is_nan()).then_some(figure <= goal)
            }
            Goal::None => None,
        }
    }

    fn show(&self, value: f64) -> String {
        match self.unit {
            _ if value.is_nan() => "–".to_owned(),
            Unit::Seconds if value < 1e-3 => format!("{:.0} µs", value * 1e6),
            Unit::Seconds if value < 1.0 => format!("{:.1} ms", value * 1e3),
            Unit::Seconds => format!("{value:.2} s"),
            Unit::MiB => format!("{value:.1} MiB"),
        }
    }
}

impl fmt::Display for Figure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let native = self.show(median(&self.pairs.native));
        let txos = self.show(median(&self.pairs.txos));
        let times = self.times().map_or("–".to_owned(), |ratio| format!("{ratio:.2}×"));
        let goal = match self.goal {
            Goal::Ratio(goal) => format!("{goal}×"),
            Goal::AtMost(goal) => self.show(goal),
            Goal::None => "–".to_owned(),
        };
        let met = match self.met() {
            Some(true) => "met",
            Some(false) => "**missed**",
            None => "–",
        };
        let rounds = self.pairs.txos.len();
        let what = &self.what;
        let note = self.note.as_ref().map_or(String::new(), |note| format!(" ({note})"));
        write!(f, "| {what}{note} | {native} | {txos} | {times} | {goal} | {met} | {rounds} |")
    }
}

/// A row that gave no figures.
#[derive(Debug, Serialize)]
struct Fault {
    row: &'static str,
    error: String,
}

/// Everything that one invocation measured.
#[derive(Debug, Serialize)]
pub struct Report {
    date: String,
    machine: String,
    quick: bool,
    figures: Vec<Figure>,
    faults: Vec<Fault>,
}

impl Report {
    /// An empty one, for this machine and day.
    pub fn new(context: &Context) -> Result<Self> {
        Ok(Self {
            date: today()?,
            machine: machine(),
            quick: context.rounds == 1,
            figures: Vec::new(),
            faults: Vec::new(),
        })
    }

    /// Takes what a row measured, or why it did not, and prints it to standard error at once.
    pub fn add(&mut self, row: &Row, measured: Result<Vec<Figure>>) {
        match measured {
            Ok(figures) => {
                figures.iter().for_each(|figure| eprintln!("  {figure}"));
                self.figures.extend(figures);
            }
            Err(error) => {
                eprintln!("  failed: {error:#}");
                self.faults.push(Fault { row: row.name, error: format!("{error:#}") });
            }
        }
    }

    /// Prints the table and writes it beside the raw figures.
    pub fn write(&self, context: &Context) -> Result<()> {
        let text = self.to_string();
        print!("{text}");
        let put = |name: &str, text: &str| {
            let path = context.out.join(name);
            fs::write(&path, text).with_context(|| format!("writing {}", path.display()))
        };
        put("report.md", &text)?;
        put("report.json", &serde_json::to_string_pretty(self)?)
    }
}

impl fmt::Display for Report {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let rounds = if self.quick { "quick run" } else { "full run" };
        writeln!(f, "{}, {}, {rounds}; medians.\n", self.date, self.machine)?;
        writeln!(f, "| measured | native | txos | ratio | goal | | rounds |")?;
        writeln!(f, "|---|---:|---:|---:|---:|---|---:|")?;
        self.figures.iter().try_for_each(|figure| writeln!(f, "{figure}"))?;
        for fault in &self.faults {
            writeln!(f, "| {}: failed: {} | – | – | – | – | – | 0 |", fault.row, fault.error)?;
        }
        Ok(())
    }
}

fn today() -> Result<String> {
    let output = Command::new("date").args(["-u", "+%Y-%m-%d"]).output()?;
    Ok(String::from_utf8_lossy(&output.stdout).trim().to_owned())
}

/// The kind of machine, without its name.
fn machine() -> String {
    let uname = rustix::system::uname();
    let processors = std::thread::available_parallelism().map_or(0, usize::from);
    let memory = rustix::system::sysinfo();
    let gib = memory.totalram as f64 * f64::from(memory.mem_unit) / f64::from(1 << 30);
    format!(
        "{} {} {}, {processors} processors, {gib:.0} GiB of memory",
        uname.sysname().to_string_lossy(),
        uname.release().to_string_lossy(),
        uname.machine().to_string_lossy(),
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    fn figure(goal: Goal, native: &[f64], txos: &[f64]) -> Figure {
        let pairs = Pairs { native: native.to_vec(), txos: txos.to_vec() };
        Figure { what: "x".into(), unit: Unit::Seconds, goal, pairs, note: None }
    }

    #[test]
    fn goals() {
        assert_eq!(figure(Goal::Ratio(1.5), &[1.0], &[1.4]).met(), Some(true));
        assert_eq!(figure(Goal::Ratio(1.5), &[1.0], &[1.6]).met(), Some(false));
        assert_eq!(figure(Goal::AtMost(0.015), &[], &[0.010]).met(), Some(true));
        assert_eq!(figure(Goal::AtMost(0.015), &[], &[]).met(), None);
        assert_eq!(figure(Goal::None, &[1.0], &[9.0]).met(), None);
    }

    #[test]
    fn a_line_of_the_table() {
        let line = figure(Goal::Ratio(1.05), &[2.0], &[2.5]).to_string();
        assert_eq!(line, "| x | 2.00 s | 2.50 s | 1.25× | 1.05× | **missed** | 1 |");
        let line = figure(Goal::AtMost(0.015), &[], &[0.01]).to_string();
        assert_eq!(line, "| x | – | 10.0 ms | – | 15.0 ms | met | 1 |");
    }
}
