use std::sync::Arc;

use anyhow::{Result, bail};
use txos_core::TxId;
use txos_effects::services::run_deferred;
use txos_store::{NoDomain, Outcome, StoreError};

use crate::{
    exit::Exit,
    manager::{
        self,
        kept::{Kept, Turn},
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

/// Commits a transaction that was kept; one that meets a conflict stays kept.
pub fn run(args: Args) -> Result<Exit> {
    let state = state::open()?;
    let command = format!("txos commit {}", args.id);
    // First what a crash left: it may have come in the middle of this very commit.
    drop(lock_and_recover(&state, &command, &|| false)?);
    let mut kept = Kept::open(&state, args.id)?;
    let requests = kept.requests()?;
    let (deferred, lost) = kept.deferred();
    if let Some(reason) = deferred.in_the_way() {
        bail!("transaction {} stays kept: {reason}", args.id);
    }
    let workset = Arc::new(kept.workset()?);
    let turn = match Turn::wait_for(&state, &kept, Arc::clone(&workset), &command)? {
        Ok(turn) => turn,
        Err(lost) => {
            say(format!("transaction {} lost to {lost}; it stays kept:", args.id));
            print_conflicts(&[lost.conflict()]);
            return Ok(Exit::Conflict);
        }
    };
    let mut lock = lock_and_recover(&state, &command, &|| false)?;
    lock.set_transaction(Some(args.id))?;
    let entry = kept.log_entry(Outcome::Committed);
    let mut failed = None;
    let mut validate = |_| match manager::validate_workset(&state, &workset) {
        Ok(conflicts) if conflicts.is_empty() => Ok(()),
        Ok(conflicts) => Err(conflicts),
        Err(error) => {
            failed = Some(error);
            Err(Vec::new())
        }
    };
    let result = kept.prepared.commit(&lock, &mut validate, &mut NoDomain, !args.nondurable);
    if let Some(error) = failed {
        return Err(error);
    }
    match result {
        Ok(committed) => {
            turn.committed();
            // It is committed: what fails from here on is told.
            if let Err(error) = state.log(&entry) {
                say(format!("{error}"));
            }
            for kept in &committed.kept {
                say(manager::told(kept));
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
            Ok(Exit::Success)
        }
        Err(StoreError::Conflict(conflicts)) => {
            say(format!(
                "what transaction {} had read was changed meanwhile; it stays kept:",
                args.id
            ));
            print_conflicts(&conflicts);
            Ok(Exit::Conflict)
        }
        Err(error) => Err(error.into()),
    }
}
