//! The life of a transaction: attempts, until one commits or none can.
//!
//! ```text
//! begin ─▶ attempt ─▶ extract ─▶ stage ─▶ commit ─▶ deferred services
//!    ▲        │          │                   │
//!    │        │ command  │ --dry-run         │ conflict
//!    │        ▼ failed   ▼                   ▼
//!    │      abort      abort     retries left? ──no──▶ abort, exit 75
//!    └───────────────────────────────yes──────┘
//! ```
//!
//! # Invariants
//!
//! - Nothing outside the state directory changes before the commit record, and after the record the
//!   commit is finished, whatever signal comes.
//! - Each end has one way out: [`Transaction::run`] gives the [`Exit`], the log gets one line, and
//!   the streams are finished exactly once an attempt.
//! - A retry starts from nothing: fresh layers, fresh view, the same standard input.

pub mod attempt;
mod cap;
mod decide;
pub mod kept;
mod limits;
mod options;
mod report;
mod services;
mod setup;
mod signals;
mod transaction;

pub use decide::{tell_services, told, validate_workset};
pub use limits::Limits;
pub use options::{Finish, Linger, Options};
pub use report::{Report, ReportFile, painted, print_conflicts, summary};

use std::{ops::ControlFlow, sync::mpsc::channel};

use anyhow::Result;
use txos_store::{ExclusiveLock, RecoveryReport, StateDir};

use crate::{
    exit::Exit,
    text::{count, printable, say},
};

/// Runs a command as one transaction.
///
/// # Errors
/// If txos itself fails; nothing was changed then.
pub fn run(options: Options) -> Result<Exit> {
    let (sender, events) = channel();
    let interrupts = signals::Interrupts::listen(sender.clone())?;
    match transaction::Transaction::begin(options, interrupts.clone(), (sender, events)) {
        Ok(transaction) => transaction.run(),
        Err(error) => match interrupts.pending() {
            Some(signal) => {
                say(format!("signal {signal} before the transaction began: {error:#}"));
                Ok(Exit::Signal(signal))
            }
            None => Err(error),
        },
    }
}

/// Takes the lock of the state directory, saying for whom it waits, and finishes or discards what
/// a crash left. `cancelled` ends the wait.
///
/// # Errors
/// If the state directory cannot be used, or the wait was ended.
pub fn lock_and_recover(
    state: &StateDir,
    command: &str,
    cancelled: &dyn Fn() -> bool,
) -> Result<ExclusiveLock> {
    let mut said = None;
    let lock = state.lock_exclusive(command, |holder| {
        if cancelled() {
            return ControlFlow::Break(());
        }
        let line = format!("waiting for {holder}");
        if said.as_ref() != Some(&line) {
            say(&line);
            said = Some(line);
        }
        ControlFlow::Continue(())
    })?;
    let report = txos_store::recover_locked(state, &lock)?;
    if !report.is_empty() {
        tell_recovery(&report);
    }
    Ok(lock)
}

/// Says what recovery did, for people.
pub fn tell_recovery(report: &RecoveryReport) {
    for finished in &report.finished {
        let operations = count(finished.operations, "operation");
        say(format!("recovery finished transaction {} ({operations})", finished.id));
        for kept in &finished.kept {
            say(format!("  {}", decide::told(kept)));
        }
    }
    for id in &report.discarded {
        say(format!("recovery discarded transaction {id}, which had not committed"));
    }
    for pending in &report.pending {
        say(format!("transaction {} waits: {}", pending.id, printable(&pending.reason)));
    }
}
