use anyhow::Result;
use txos_core::TxId;

use crate::{
    exit::Exit,
    text::printable,
    verbs::{print, recovered, unknown},
};

/// Options of `txos why`.
#[derive(Debug, clap::Args)]
pub struct Args {
    /// The transaction
    id: TxId,

    /// Print JSON
    #[arg(long)]
    json: bool,
}

/// Says why a transaction lost the last time, also if it has committed since.
pub fn run(args: Args) -> Result<Exit> {
    let id = args.id;
    let Some(state) = recovered()? else { return Err(unknown(id)) };
    let running = state.transactions()?.into_iter().find(|tx| tx.meta.id == id);
    let ended = state.history()?.into_iter().rev().find(|entry| entry.id == id);
    let (loss, known) = match (running, ended) {
        (Some(tx), _) => (tx.meta.loss, true),
        (None, Some(entry)) => (entry.loss, true),
        (None, None) => (None, false),
    };
    match loss {
        None if !known => return Err(unknown(id)),
        None if args.json => print(format_args!("null\n"))?,
        None => print(format_args!("transaction {id} has not lost to anybody\n"))?,
        Some(loss) if args.json => {
            print(format_args!("{}\n", crate::text::json_pretty(&loss)?))?;
        }
        Some(loss) => {
            print(format_args!("transaction {id}, attempt {}:\n", loss.attempt))?;
            for conflict in &loss.conflicts {
                print(format_args!("  {}\n", printable(&conflict.to_string())))?;
            }
            print(format_args!("caused by {}\n", printable(&loss.by)))?;
        }
    }
    Ok(Exit::Success)
}
