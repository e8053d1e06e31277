//! A verb is a file: its options and its action.

pub mod abort;
pub mod commit;
pub mod completions;
pub mod diff;
pub mod doctor;
pub mod enter;
pub mod helper;
pub mod log;
pub mod ps;
pub mod recover;
pub mod run;
pub mod show;
pub mod syscalls;

use std::{fmt, io::Write};

use anyhow::{Context, Result};

use crate::{cli::Verb, exit::Exit};

/// Runs the verb.
pub fn dispatch(verb: Verb) -> Result<Exit> {
    match verb {
        Verb::Run(args) => run::run(*args),
        Verb::Diff(args) => diff::run(args),
        Verb::Show(args) => show::run(args),
        Verb::Commit(args) => commit::run(args),
        Verb::Abort(args) => abort::run(args),
        Verb::Ps(args) => ps::run(args),
        Verb::Log(args) => log::run(args),
        Verb::Recover(args) => recover::run(args),
        Verb::Doctor(args) => doctor::run(args),
        Verb::Syscalls(args) => syscalls::run(args),
        Verb::Completions(args) => completions::run(args),
        Verb::Enter(args) => enter::run(args),
    }
}

/// Prints to standard output. A reader that has gone is no error: it has seen enough.
fn print(text: fmt::Arguments<'_>) -> Result<()> {
    match std::io::stdout().write_fmt(text) {
        Err(error) if error.kind() != std::io::ErrorKind::BrokenPipe => {
            Err(error).context("cannot write to standard output")
        }
        _ => Ok(()),
    }
}

/// A point in time, given in milliseconds since 1970, as UTC.
fn when(ms: u64) -> String {
    let time = std::time::UNIX_EPOCH + std::time::Duration::from_millis(ms);
    humantime::format_rfc3339_seconds(time).to_string()
}
