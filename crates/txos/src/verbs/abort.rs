use anyhow::Result;
use txos_core::TxId;
use txos_store::Outcome;

use crate::{
    exit::Exit,
    manager::{kept::Kept, lock_and_recover},
    state,
    text::say,
};

/// Options of `txos abort`.
#[derive(Debug, clap::Args)]
pub struct Args {
    /// The transaction
    id: TxId,
}

/// Aborts a transaction that was kept: nothing of it happens, and nothing is left.
pub fn run(args: Args) -> Result<Exit> {
    let state = state::open()?;
    let _lock = lock_and_recover(&state, &format!("txos abort {}", args.id), &|| false)?;
    let kept = Kept::open(&state, args.id)?;
    let entry = kept.log_entry(Outcome::Aborted);
    kept.prepared.abort()?;
    state.log(&entry)?;
    say(format!("transaction {} is aborted, nothing was changed", args.id));
    Ok(Exit::Success)
}
