//! What a transaction says of itself: the JSON report, and the summary for people.

use std::{
    collections::BTreeMap,
    fs::{File, OpenOptions},
    io::{Write, stderr},
    path::PathBuf,
    time::Duration,
};

use anyhow::{Context, Result};
use serde::{Deserialize, Serialize};
use txos_core::{Conflict, TxId};
use txos_effects::{services::ServiceOutcome, supervisor::EffectsReport};
use txos_store::{Change, ChangeKind};

use super::Options;
use crate::text::{colour, count, json_pretty, printable, say, size};

/// How a transaction ended, as its report says.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Reported {
    /// Its delta was applied.
    Committed,
    /// It was given up by its command, its user or a signal.
    Aborted,
    /// It was given up because of what others changed.
    Conflict,
    /// It waits for a decision.
    Kept,
    /// It was to change nothing.
    DryRun,
    /// txos itself failed.
    Failed,
}

/// The whole report of a transaction (`--json FILE`, `txos show ID`).
#[derive(Debug, Serialize, Deserialize)]
pub struct Report {
    /// Its id.
    pub id: TxId,
    /// What it ran.
    pub command: Vec<String>,
    /// How it ended: `committed`, `aborted`, `conflict`, `kept`, `dry-run`, `failed`.
    pub outcome: Reported,
    /// Why, in a sentence; empty for a plain commit.
    pub reason: String,
    /// Exit status of txos.
    pub exit_status: u8,
    /// How many times the command was run.
    pub attempts: u32,
    /// Whether the commit waited for the disk.
    pub durable: bool,
    /// What isolation was given.
    pub isolation: String,
    /// What was found changed, attempt by attempt.
    pub conflicts: Vec<Vec<Conflict>>,
    /// The changes.
    pub changes: Vec<Change>,
    /// What changes in small text files, as unified diffs; of a transaction that is kept.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub text: String,
    /// What else a person should know of the commit, as sentences.
    pub notes: Vec<String>,
    /// Objects read, in the last attempt.
    pub read_objects: u64,
    /// Objects of those that were not validated (`--relax`).
    pub relaxed: u64,
    /// The prefixes below which they were relaxed.
    pub relaxed_below: Vec<String>,
    /// Memory that the workset took, in bytes.
    pub workset_bytes: u64,
    /// Paths that were let through, outside the transaction (`--live`, `--allow`).
    pub live: Vec<String>,
    /// Whether the network was let through, outside the transaction.
    pub network: bool,
    /// Descriptors that were open before, and were not there inside, or not whole; a sentence each.
    #[serde(default)]
    pub descriptors: Vec<String>,
    /// Calls that were refused or let through.
    pub effects: EffectsReport,
    /// Service requests that were made after the commit.
    pub services: Vec<ServiceOutcome>,
    /// Held output that could not be written.
    pub stream_errors: Vec<String>,
    /// Seconds, by phase.
    pub seconds: BTreeMap<String, f64>,
}

impl Report {
    /// The report of a transaction that begins.
    pub(super) fn new(id: TxId, options: &Options) -> Report {
        let lossy = |text: &std::ffi::OsStr| text.to_string_lossy().into_owned();
        Report {
            id,
            command: options.command.iter().map(|word| lossy(word)).collect(),
            outcome: Reported::Aborted,
            reason: String::new(),
            exit_status: 0,
            attempts: 0,
            durable: options.durable,
            isolation: String::new(),
            conflicts: Vec::new(),
            changes: Vec::new(),
            text: String::new(),
            notes: Vec::new(),
            read_objects: 0,
            relaxed: 0,
            relaxed_below: options.relax.iter().map(|path| lossy(path.as_os_str())).collect(),
            workset_bytes: 0,
            live: options
                .live
                .iter()
                .chain(&options.exempt_logs)
                .map(|path| lossy(path.as_os_str()))
                .collect(),
            network: options.allow_net || options.record || !options.allow_hosts.is_empty(),
            descriptors: Vec::new(),
            effects: Default::default(),
            services: Vec::new(),
            stream_errors: Vec::new(),
            seconds: BTreeMap::new(),
        }
    }

    /// Adds to the time of a phase.
    pub(super) fn time(&mut self, phase: &'static str, took: Duration) {
        *self.seconds.entry(phase.to_owned()).or_default() += took.as_secs_f64();
    }
}

/// Where the report goes. Opened before the command runs: a path that cannot be written is found
/// out while nothing has happened yet.
#[derive(Debug)]
pub struct ReportFile {
    file: File,
    path: PathBuf,
}

impl ReportFile {
    /// Opens `path`, creates it if it is absent, and empties it: what an earlier transaction reported is
    /// not this one's.
    ///
    /// # Errors
    /// If it cannot be written.
    pub fn open(path: PathBuf) -> Result<ReportFile> {
        let file = OpenOptions::new().create(true).write(true).truncate(false).open(&path);
        let file =
            file.with_context(|| format!("cannot write the report to {}", path.display()))?;
        // A pipe or a terminal has no length to set.
        let _ = file.set_len(0);
        Ok(ReportFile { file, path })
    }

    /// A second hold of the same file.
    ///
    /// # Errors
    /// If the process has too many files open.
    pub fn again(&self) -> Result<ReportFile> {
        let file = self.file.try_clone().context("cannot hold the report's file")?;
        Ok(ReportFile { file, path: self.path.clone() })
    }

    /// Replaces what the file holds by `report`, as JSON.
    ///
    /// # Errors
    /// If it cannot be written.
    pub fn write(&mut self, report: &Report) -> Result<()> {
        let mut text = json_pretty(report).context("cannot make the report")?;
        text.push('\n');
        // A pipe or a terminal has no length to set.
        let _ = self.file.set_len(0);
        self.file
            .write_all(text.as_bytes())
            .with_context(|| format!("cannot write the report to {}", self.path.display()))
    }
}

/// Prints changes for people: one line each, sorted by name.
pub fn print_changes(changes: &[Change], notes: &[String]) {
    let colour = colour();
    for change in changes {
        // Where standard error is closed or full there is nobody to tell.
        let _ = writeln!(stderr(), "  {}", painted(change, colour));
    }
    for note in notes {
        say(format!("note: {}", printable(note)));
    }
}

/// A change as a line, its first word in colour.
pub fn painted(change: &Change, colour: bool) -> String {
    let line = change.to_string();
    match line.split_once(' ') {
        Some((word, rest)) if colour => {
            format!("\x1b[{}m{word}\x1b[0m {rest}", describe(&change.kind).1)
        }
        _ => line,
    }
}

/// A kind of change as a word, and its colour on a terminal.
fn describe(kind: &ChangeKind) -> (&'static str, &'static str) {
    match kind {
        ChangeKind::Created => ("created", "32"),
        ChangeKind::Modified => ("modified", "33"),
        ChangeKind::Replaced => ("replaced", "33"),
        ChangeKind::Removed => ("removed", "31"),
        ChangeKind::Renamed { .. } => ("renamed", "36"),
        ChangeKind::Linked { .. } => ("linked", "36"),
        ChangeKind::Metadata => ("metadata", "35"),
    }
}

/// The changes in a few words: `12 created, 3 modified (1.2 MiB)`.
pub fn summary(changes: &[Change]) -> String {
    let mut counts: BTreeMap<&str, u64> = BTreeMap::new();
    let mut bytes = 0;
    for change in changes {
        *counts.entry(describe(&change.kind).0).or_default() += 1;
        if !matches!(change.kind, ChangeKind::Removed | ChangeKind::Metadata) {
            bytes += change.size_after.unwrap_or(0);
        }
    }
    if counts.is_empty() {
        return "no changes".to_owned();
    }
    let parts: Vec<String> = counts.iter().map(|(word, n)| format!("{n} {word}")).collect();
    format!("{} ({})", parts.join(", "), size(bytes))
}

/// Conflicts for people: the first few, and how many more.
pub fn print_conflicts(conflicts: &[Conflict]) {
    const SHOWN: usize = 5;
    for conflict in conflicts.iter().take(SHOWN) {
        say(format!("  {}", printable(&conflict.to_string())));
    }
    if conflicts.len() > SHOWN {
        say(format!("  and {}", count((conflicts.len() - SHOWN) as u64, "more object")));
    }
}
