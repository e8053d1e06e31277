use std::sync::mpsc::channel;

use anyhow::Result;
use txos_core::TxId;
use txos_store::Outcome;

use crate::{
    exit::Exit,
    manager::{Interrupts, kept::Kept, lock_and_recover},
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
    let (sender, _events) = channel();
    // What is begun is brought to its end; only the wait for others can be ended by a signal.
    let interrupts = Interrupts::listen(sender)?;
    let state = state::open()?;
    let command = format!("txos abort {}", args.id);
    let _lock = match lock_and_recover(&state, &command, &|| interrupts.pending().is_some()) {
        Ok(lock) => lock,
        Err(error) => {
            let Some(signal) = interrupts.pending() else { return Err(error) };
            say(format!("signal {signal}: transaction {} stays kept", args.id));
            return Ok(Exit::Signal(signal));
        }
    };
    let kept = Kept::open(&state, args.id)?;
    let entry = kept.log_entry(Outcome::Aborted);
    kept.prepared.abort()?;
    state.log(&entry)?;
    say(format!("transaction {} is aborted, nothing was changed", args.id));
    Ok(Exit::Success)
}
