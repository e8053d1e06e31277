use std::{
    ffi::OsString,
    fs::OpenOptions,
    os::unix::fs::OpenOptionsExt,
    path::{Path, PathBuf},
    time::Duration,
};

use anyhow::{Result, bail, ensure};
use clap::ValueEnum;
use txos_effects::{Host, OnUnsupported, streams::OutputMode};

use super::{BesideOptions, ReportFile, limits::Limits};

/// What happens when the command has ended well.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Finish {
    /// Its changes are committed.
    Commit,
    /// They are shown, and committed if the user says so.
    Review,
    /// They are shown, and nothing happens.
    DryRun,
    /// They are prepared for a later decision.
    Keep,
}

/// What happens to processes that outlive the command.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Linger {
    /// The transaction goes on until they have ended
    Wait,
    /// They are killed, then the transaction ends
    Kill,
    /// The transaction is aborted
    Abort,
}

/// How a transaction is to be run.
#[derive(Debug)]
pub struct Options {
    /// What happens when the command has ended well.
    pub finish: Finish,
    /// How many times it is run again after a conflict, at the most.
    pub retries: u32,
    /// Whether the end waits until the changes are on disk.
    pub durable: bool,
    /// Where non-empty, only these directories can be written.
    pub trees: Vec<PathBuf>,
    /// Paths let through to the machine.
    pub live: Vec<PathBuf>,
    /// Files that can be appended to, outside the transaction.
    pub exempt_logs: Vec<PathBuf>,
    /// Paths below which reads are not validated.
    pub relax: Vec<PathBuf>,
    /// Whether the network is let through.
    pub allow_net: bool,
    /// Whether what comes over the network is recorded, so that a retry sees the same bytes.
    pub record: bool,
    /// Hosts that may be connected to.
    pub allow_hosts: Vec<Host>,
    /// What a call does that cannot be isolated.
    pub on_unsupported: OnUnsupported,
    /// When output appears.
    pub output: OutputMode,
    /// Where the report is written.
    pub report: Option<ReportFile>,
    /// Longest time that the transaction may run, over all attempts.
    pub timeout: Option<Duration>,
    /// How high it ranks in conflicts with other transactions.
    pub priority: i32,
    /// How much may be used.
    pub limits: Limits,
    /// How those are dealt with who use no transaction.
    pub beside: BesideOptions,
    /// What happens to processes that outlive the command.
    pub linger: Linger,
    /// Descriptors that the command inherits.
    pub pass_fds: Vec<i32>,
    /// Whether only errors are told.
    pub quiet: bool,
    /// The command and its arguments.
    pub command: Vec<OsString>,
}

impl Options {
    /// The command as words for a person.
    pub fn command_line(&self) -> String {
        let words = self.command.iter().map(|word| {
            let word = word.to_string_lossy();
            let plain = |c: char| c.is_ascii_alphanumeric() || "-_./=:,+@%".contains(c);
            if !word.is_empty() && word.chars().all(plain) {
                word.into_owned()
            } else {
                format!("'{}'", word.replace('\'', r"'\''"))
            }
        });
        words.collect::<Vec<_>>().join(" ")
    }
}

/// A log outside of the transaction, made if it is absent; its path without links.
///
/// # Errors
/// If it is no regular file that the user may append to.
pub fn exempt_log(log: &Path) -> Result<PathBuf> {
    // The opening of a pipe that nobody reads would wait.
    let mut options = OpenOptions::new();
    options.append(true).create(true).custom_flags(libc::O_NONBLOCK);
    let regular = "it must be a regular file";
    let file = match options.open(log) {
        Err(error) if error.raw_os_error() == Some(libc::ENXIO) => bail!(regular),
        opened => opened?,
    };
    ensure!(file.metadata()?.is_file(), regular);
    // Without links, because it is let through at its place and not at its names.
    Ok(log.canonicalize()?)
}
