use std::sync::{Arc, mpsc::channel};

use anyhow::{Result, bail};
use txos_core::TxId;
use txos_effects::services::run_deferred;
use txos_store::{NoDomain, Outcome, StoreError};

use crate::{
    exit::Exit,
    manager::{
        self, Interrupts,
        kept::{Kept, Turn, Waited},
        lock_and_recover, print_conflicts, tell_services,
    },
    state,
    text::{printable, say},
};

/// Options of `txos commit`.
#[derive(Debug, clap::Args)]
pub struct Args {
    /// The transaction
    id: TxId,

    /// Do not wait until the changes are on disk
    #[arg(long)]
    nondurable: bool,
}

/// Commits a transaction that was kept; one that meets a conflict stays kept, and so does one whose
/// commit a signal ends before it is decided. After that no signal ends it.
pub fn run(args: Args) -> Result<Exit> {
    let (sender, _events) = channel();
    let interrupts = Interrupts::listen(sender)?;
    match commit(&args, &interrupts)? {
        Some(exit) => Ok(exit),
        None => {
            let signal = interrupts.pending().unwrap_or(libc::SIGTERM);
            say(format!("signal {signal}: transaction {} stays kept", args.id));
            Ok(Exit::Signal(signal))
        }
    }
}

/// `None` if a signal came before the decision.
fn commit(args: &Args, interrupts: &Interrupts) -> Result<Option<Exit>> {
    let cancelled = || interrupts.pending().is_some();
    let state = state::open()?;
    let command = format!("txos commit {}", args.id);
    let lock = || match lock_and_recover(&state, &command, &cancelled) {
        Ok(lock) => Ok(Some(lock)),
        Err(_) if cancelled() => Ok(None),
        Err(error) => Err(error),
    };
    // First what a crash left: it may have come in the middle of this very commit.
    let Some(first) = lock()? else { return Ok(None) };
    drop(first);
    let mut kept = Kept::open(&state, args.id)?;
    let requests = kept.requests()?;
    let (deferred, lost) = kept.deferred();
    if let Some(reason) = deferred.in_the_way() {
        bail!("transaction {} stays kept: {reason}", args.id);
    }
    let workset = Arc::new(kept.workset()?);
    let turn = match Turn::wait_for(&state, &kept, Arc::clone(&workset), &command, &cancelled)? {
        Waited::Turn(turn) => turn,
        Waited::Cancelled => return Ok(None),
        Waited::Lost(lost) => {
            say(format!("transaction {} lost to {lost}; it stays kept:", args.id));
            print_conflicts(&[lost.conflict()]);
            return Ok(Some(Exit::Conflict));
        }
    };
    let Some(mut lock) = lock()? else { return Ok(None) };
    lock.set_transaction(Some(args.id))?;
    let entry = kept.log_entry(Outcome::Committed);
    let mut failed = Ok(());
    let mut interrupted = false;
    let mut validate = |_| {
        if cancelled() {
            interrupted = true;
            return Err(Vec::new());
        }
        match manager::validate_workset(&state, &workset) {
            Ok(conflicts) if conflicts.is_empty() => Ok(()),
            Ok(conflicts) => Err(conflicts),
            Err(error) => {
                failed = Err(error);
                Err(Vec::new())
            }
        }
    };
    let result = kept.prepared.commit(&lock, &mut validate, &mut NoDomain, !args.nondurable);
    failed?;
    if interrupted {
        return Ok(None);
    }
    match result {
        Ok(committed) => {
            turn.committed();
            // It is committed: what fails from here on is told.
            if let Err(error) = state.log(&entry) {
                say(format!("{error}"));
            }
            for kept in &committed.kept {
                say(kept);
            }
            for line in lost.into_iter().chain(deferred.release()) {
                say(printable(&line));
            }
            tell_services(&run_deferred(&requests));
            say(format!(
                "transaction {} is committed: {}",
                args.id,
                manager::summary(&kept.report.changes)
            ));
            if let Some(line) = manager::unfinished(&committed) {
                say(line);
            }
            Ok(Some(Exit::Success))
        }
        Err(StoreError::Conflict(conflicts)) => {
            say(format!(
                "what transaction {} had read was changed meanwhile; it stays kept:",
                args.id
            ));
            print_conflicts(&conflicts);
            Ok(Some(Exit::Conflict))
        }
        Err(error) => Err(error.into()),
    }
}
