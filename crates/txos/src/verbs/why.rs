use anyhow::Result;
use txos_core::TxId;
use txos_store::Loss;

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
    // Each attempt of a program's transaction has an id of its own.
    let is = |one: TxId, loss: &Option<Loss>| {
        one == id || loss.as_ref().is_some_and(|loss| loss.attempts.contains(&id))
    };
    let running = state.transactions()?.into_iter().find(|tx| is(tx.meta.id, &tx.meta.loss));
    let ended = state.history()?.into_iter().rev().find(|entry| is(entry.id, &entry.loss));
    let known = running.is_some() || ended.is_some();
    let loss = running.and_then(|tx| tx.meta.loss).or_else(|| ended.and_then(|entry| entry.loss));
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
