use anyhow::Result;
use txos_store::TxState;

use crate::{
    exit::Exit,
    state,
    text::printable,
    verbs::{print, when},
};

/// Options of `txos ps`.
#[derive(Debug, clap::Args)]
pub struct Args {
    /// Print one JSON value a line
    #[arg(long)]
    json: bool,
}

/// Lists the transactions that run or are kept.
pub fn run(args: Args) -> Result<Exit> {
    for status in state::open()?.transactions()? {
        if args.json {
            print(format_args!("{}\n", serde_json::to_string(&status)?))?;
            continue;
        }
        let what = match (status.meta.state, status.alive) {
            (TxState::Prepared, _) => "kept",
            (TxState::Running, true) => "running",
            (TxState::Running, false) => "crashed",
        };
        print(format_args!(
            "{:>6}  {}  {what:<8}  process {}  {}\n",
            status.meta.id,
            when(u64::try_from(status.meta.started.sec).unwrap_or(0) * 1000),
            status.meta.pid,
            printable(&status.meta.command),
        ))?;
    }
    Ok(Exit::Success)
}
