use anyhow::Result;
use txos_core::TxId;
use txos_domain::DomainError;

use crate::{
    exit::Exit,
    manager::{lock, tell_recovery},
    state,
    text::say,
    verbs::print,
};

/// Options of `txos recover`.
#[derive(Debug, clap::Args)]
pub struct Args {
    /// Print what was done as JSON
    #[arg(long)]
    json: bool,
    /// Give up what this transaction, which is committed, changed on file systems and in directories that
    /// never come back, and finish the rest
    #[arg(long, value_name = "ID")]
    give_up: Option<TxId>,
}

/// Finishes or discards what a crash left. What runs is left alone; a commit is waited for.
pub fn run(args: Args) -> Result<Exit> {
    let state = state::open()?;
    let lock = lock(&state, "txos recover", &|| false)?;
    let mut report = txos_store::recover_locked(&state, &lock)?;
    if let Some(id) = args.give_up {
        // What was recovered is told whether or not there is anything to give up.
        match txos_store::give_up(&state, &lock, id) {
            Ok(given_up) => {
                report.pending = given_up.pending;
                report.finished.extend(given_up.finished);
            }
            Err(error) => {
                tell_recovery(&report);
                return Err(error.into());
            }
        }
    }
    let swept = txos_domain::sweep();
    for group in swept.iter().flatten() {
        say(format!("{} was left standing still, and runs again", group.display()));
    }
    if args.json {
        print(format_args!("{}\n", crate::text::json_pretty(&report)?))?;
    } else if report.is_empty() {
        print(format_args!("nothing to recover\n"))?;
    } else {
        tell_recovery(&report);
    }
    match swept {
        // No domains here, no pauses.
        Ok(_) | Err(DomainError::Unavailable { .. }) => Ok(Exit::Success),
        Err(error) => Err(error.into()),
    }
}
