//! The report: what the paper says beside what was measured, in HTML and Markdown with SVG plots.
//!
//! Nothing here knows a result: tables are computed from counters of runs that were just made, and
//! the paper's numbers are in `paper` alone. A claim says which number or sign it compares, whether
//! the model was calibrated on it, and whether it holds.

mod causes;
mod claims;
mod figures;
mod html;
mod markdown;
pub mod paper;
mod priority;
mod svg;
mod sweeps;
mod tables;

use std::path::Path;

use crate::error::{Result, SimError};
use crate::experiment::probe::Probes;
use crate::experiment::suite::Suite;
use crate::experiment::sweep::Swept;
use crate::experiment::{Effort, Progress, probe, sweep};
use crate::litmus;

/// A table of text.
#[derive(Debug, Default)]
pub struct Table {
    /// Column heads.
    pub head: Vec<String>,
    /// Rows.
    pub rows: Vec<Vec<String>>,
}

impl Table {
    fn new(head: &[&str]) -> Self {
        Self { head: head.iter().map(|s| (*s).to_owned()).collect(), rows: Vec::new() }
    }

    fn row(&mut self, cells: impl IntoIterator<Item = String>) {
        self.rows.push(cells.into_iter().collect());
    }
}

/// A plot: file name and SVG text.
#[derive(Debug)]
pub struct Plot {
    /// Name of its file below `plots/`.
    pub file: String,
    /// What it shows.
    pub title: String,
    /// The picture.
    pub svg: String,
}

/// A part of the report.
#[derive(Debug, Default)]
pub struct Section {
    /// Heading.
    pub title: String,
    /// What was done and how to read it.
    pub text: String,
    /// Its tables.
    pub tables: Vec<Table>,
    /// Its plots.
    pub plots: Vec<Plot>,
}

/// How a claim relates to the model.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Basis {
    /// Follows from the mechanism; nothing was fitted.
    Mechanism,
    /// The guest code was written to it, so that it holds says only that it still is.
    Construction,
    /// The model was fitted to it, so that it holds is no evidence.
    Calibrated,
    /// Predicted from the fitted model: sign and rank count, not the amount.
    Predicted,
}

/// One comparison with the paper.
#[derive(Debug)]
pub struct Claim {
    /// Where in the paper.
    pub source: &'static str,
    /// What is compared.
    pub what: String,
    /// The paper's value.
    pub paper: String,
    /// Ours.
    pub measured: String,
    /// How it relates to the model.
    pub basis: Basis,
    /// Whether it holds.
    pub holds: bool,
    /// If not, why: what a probe's runs say, or that it is unexplained.
    pub why: String,
}

/// A whole report.
#[derive(Debug)]
pub struct Report {
    /// Litmus tests that failed; 0 in a sound build.
    pub litmus_failures: usize,
    /// The comparisons.
    pub claims: Vec<Claim>,
    /// The parts.
    pub sections: Vec<Section>,
}

/// The outcome of every litmus test.
pub struct LitmusRun(pub Vec<(litmus::Case, litmus::Outcome)>);

impl LitmusRun {
    /// Runs all.
    pub fn run() -> Self {
        Self(
            litmus::all()
                .into_iter()
                .map(|c| {
                    let o = (c.run)();
                    (c, o)
                })
                .collect(),
        )
    }

    /// Those that failed.
    pub fn failures(&self) -> usize {
        self.0.iter().filter(|(_, o)| o.is_err()).count()
    }
}

/// Runs everything and puts the report together.
///
/// # Errors
/// A run whose figures may not be used.
pub fn reproduce(effort: Effort, progress: &Progress<'_>) -> Result<Report> {
    let litmus = LitmusRun::run();
    let counts = litmus::counts()?;
    let suite = Suite::run(effort, progress)?;
    let probes = probe::run(effort, progress)?;
    let swept = sweep::run(effort, progress)?;
    Ok(build(effort, &litmus, &counts, &suite, &probes, &swept))
}

fn build(
    effort: Effort,
    litmus: &LitmusRun,
    counts: &litmus::Counts,
    suite: &Suite,
    probes: &Probes,
    swept: &[Swept],
) -> Report {
    let mut sections = tables::litmus_sections(litmus);
    sections.push(tables::table4(suite));
    sections.push(tables::table5(suite));
    sections.push(tables::table6(suite));
    sections.push(tables::table7(suite));
    sections.push(figures::figure4(suite));
    sections.push(figures::figure5(suite));
    sections.push(figures::figure6(suite));
    sections.push(figures::section74(suite, counts));
    sections.push(priority::figure7(suite));
    sections.push(figures::figure8(suite));
    sections.push(figures::figure9(suite));
    sections.push(causes::section(probes));
    sections.extend(sweeps::sections(swept, effort));
    Report {
        litmus_failures: litmus.failures(),
        claims: claims::all(litmus, counts, suite, probes),
        sections,
    }
}

impl Report {
    /// Makes the directories that [`Self::write`] writes to, so that a bad one is known before
    /// anything has run.
    ///
    /// # Errors
    /// One of them cannot be made.
    pub fn prepare(dir: &Path) -> Result<()> {
        let plots = dir.join("plots");
        std::fs::create_dir_all(&plots).map_err(|e| failed(&plots, &e))
    }

    /// Writes `report.md`, `report.html` and `plots/` into `dir`.
    ///
    /// # Errors
    /// A file cannot be written.
    pub fn write(&self, dir: &Path) -> Result<()> {
        Self::prepare(dir)?;
        let plots = dir.join("plots");
        for plot in self.sections.iter().flat_map(|s| &s.plots) {
            save(&plots.join(&plot.file), &plot.svg)?;
        }
        save(&dir.join("report.md"), &markdown::render(self))?;
        save(&dir.join("report.html"), &html::render(self))
    }
}

fn failed(path: &Path, e: &std::io::Error) -> SimError {
    SimError::Output { path: path.display().to_string(), reason: e.to_string() }
}

fn save(path: &Path, text: &str) -> Result<()> {
    std::fs::write(path, text).map_err(|e| failed(path, &e))
}

/// Heading and introduction common to both formats.
const INTRO: &str = "Each run is execution-driven, deterministic for its seed, and was checked for \
isolation, values (the kernel's own invariants) and progress; a run that fails a check ends the \
reproduction without a report. Intervals are 95 % over runs of the same work that differ in the \
machine's chance alone (perturbed bus latencies, and so backoff); where an average over workloads is given, its interval is over the workloads. The \
workloads are synthetic models of the paper's programs and their amounts are scaled \
down, so for the application rows only signs and ranks are compared. One constant, the length of \
the kernel's paths outside of its critical regions, was calibrated, on one row: synchronization of \
bonnie++ at 16 processors under Linux lies at the top of figure 4's range of 1 to 14 %. Everything \
else is predicted.";

/// How a claim's basis is called.
fn basis(b: Basis) -> &'static str {
    match b {
        Basis::Mechanism => "mechanism",
        Basis::Construction => "by construction",
        Basis::Calibrated => "calibrated",
        Basis::Predicted => "predicted",
    }
}
