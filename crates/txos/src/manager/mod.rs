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

mod answer;
pub mod attempt;
mod beside;
mod cap;
mod culprit;
mod decide;
mod deferred;
pub mod kept;
mod limits;
mod options;
mod report;
mod services;
mod setup;
mod signals;
mod transaction;

pub use beside::{BesideOptions, Towards};
pub use decide::{tell_services, unfinished, validate_workset};
pub use deferred::Deferred;
pub use limits::Limits;
pub use options::{Finish, Linger, Options, exempt_log};
pub use report::{Report, ReportFile, Reported, painted, print_conflicts, summary};
pub use signals::Interrupts;

use std::{
    ops::ControlFlow,
    sync::mpsc::channel,
    time::{Duration, Instant},
};

use anyhow::Result;
use txos_core::TxId;
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
    let mut early = options.report.as_ref().map(ReportFile::again).transpose()?;
    let mut report = Report::new(NO_ID, &options);
    match transaction::Transaction::begin(options, interrupts.clone(), (sender, events)) {
        Ok(transaction) => transaction.run(),
        Err(error) => {
            let signal = interrupts.pending();
            let exit = signal.map_or_else(|| Exit::of_error(&error), Exit::Signal);
            report.outcome = Reported::Failed;
            report.reason = format!("{error:#}");
            report.exit_status = exit.code();
            if let Some(Err(failed)) = early.as_mut().map(|file| file.write(&report)) {
                say(format!("{failed:#}"));
            }
            match signal {
                Some(signal) => {
                    say(format!("signal {signal} before the transaction began: {error:#}"));
                    Ok(exit)
                }
                None => Err(error),
            }
        }
    }
}

/// In the report of a transaction that failed before it had an id; ids begin at 1.
const NO_ID: TxId = TxId(0);

/// Finishes or discards what a crash left, unless someone commits or recovers just now: he has done
/// it, or does it.
///
/// # Errors
/// If the state directory cannot be used.
pub fn recover_if_free(state: &StateDir) -> Result<()> {
    let report = txos_store::recover(state)?;
    if !report.is_empty() {
        tell_recovery(&report);
    }
    Ok(())
}

/// Takes the lock that each commit takes, and finishes or discards what a crash left, saying what
/// was done. `cancelled` ends the wait. Says for whom it waits if that takes long.
///
/// # Errors
/// If the state directory cannot be used, or the wait was ended.
pub fn lock_and_recover(
    state: &StateDir,
    command: &str,
    cancelled: &dyn Fn() -> bool,
) -> Result<ExclusiveLock> {
    let lock = lock(state, command, cancelled)?;
    let report = txos_store::recover_locked(state, &lock)?;
    if !report.is_empty() {
        tell_recovery(&report);
    }
    Ok(lock)
}

/// Takes the lock as [`lock_and_recover`], and recovers nothing.
///
/// # Errors
/// If the state directory cannot be used, or the wait was ended.
pub fn lock(
    state: &StateDir,
    command: &str,
    cancelled: &dyn Fn() -> bool,
) -> Result<ExclusiveLock> {
    const LONG: Duration = Duration::from_millis(500);
    let (began, mut said) = (Instant::now(), None);
    let lock = state.lock_exclusive(command, |holder| {
        if cancelled() {
            return ControlFlow::Break(());
        }
        let line = format!("waiting for {holder}");
        if began.elapsed() >= LONG && said.as_ref() != Some(&line) {
            say(&line);
            said = Some(line);
        }
        ControlFlow::Continue(())
    })?;
    Ok(lock)
}

/// Says what recovery did, for people.
pub fn tell_recovery(report: &RecoveryReport) {
    for finished in &report.finished {
        let operations = count(finished.operations, "operation");
        say(format!("recovery finished transaction {} ({operations})", finished.id));
        for kept in &finished.kept {
            say(format!("  {kept}"));
        }
    }
    for id in &report.discarded {
        say(format!("recovery discarded transaction {id}, which had not committed"));
    }
    for pending in &report.pending {
        say(format!("transaction {} waits: {}", pending.id, printable(&pending.reason)));
    }
}
