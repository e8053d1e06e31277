//! A verb is a file: its options and its action.

pub mod abort;
pub mod commit;
pub mod completions;
pub mod contention;
pub mod diff;
pub mod doctor;
pub mod domain;
pub mod enter;
pub mod exec;
pub mod helper;
pub mod log;
pub mod policy;
pub mod ps;
pub mod recover;
pub mod run;
pub mod session;
pub mod show;
pub mod stats;
pub mod syscalls;
pub mod watchdog;
pub mod why;

use std::{fmt, io::Write};

use anyhow::{Context, Result, anyhow};
use txos_core::TxId;
use txos_store::StateDir;

use crate::{cli::Verb, exit::Exit, manager::recover_if_free, state, text::say};

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
        Verb::Why(args) => why::run(args),
        Verb::Stats(args) => stats::run(args),
        Verb::Policy(args) => policy::run(args),
        Verb::Manager(args) => contention::run(args),
        Verb::Recover(args) => recover::run(args),
        Verb::Doctor(args) => doctor::run(args),
        Verb::Domain(args) => domain::run(args),
        Verb::Syscalls(args) => syscalls::run(args),
        Verb::Completions(args) => completions::run(args),
        Verb::Exec(args) => exec::run(args),
        Verb::Enter(args) => enter::run(args),
        Verb::Watchdog(args) => watchdog::run(args),
        Verb::Session(args) => session::run(args),
    }
}

/// Opens the state directory for who only wants to look; `None` where there is none yet, and looking
/// makes none. Finishes or discards what a crash left, as every start of a verb that uses one does, and
/// shows what is there also where that fails.
fn recovered() -> Result<Option<StateDir>> {
    let Some(state) = state::open_if_there()? else { return Ok(None) };
    if let Err(error) = recover_if_free(&state) {
        say(format!("cannot recover what a crash left: {error:#}"));
    }
    Ok(Some(state))
}

/// The error of a verb that was asked for a transaction which nobody knows.
fn unknown(id: TxId) -> anyhow::Error {
    anyhow!("no transaction {id}: see `txos ps` and `txos log`")
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
