use anyhow::{Result, bail};
use txos_core::TxId;

use crate::{exit::Exit, manager::kept, state, text::printable, verbs::print};

/// Options of `txos show`.
#[derive(Debug, clap::Args)]
pub struct Args {
    /// The transaction
    id: TxId,

    /// Print the whole report as JSON
    #[arg(long)]
    json: bool,
}

/// Shows what is known of a transaction: the report of one that is kept, the log line of one that
/// has ended, and the beginning of one that runs.
pub fn run(args: Args) -> Result<Exit> {
    let state = state::open()?;
    if let Some(report) = kept::report(&state, args.id)? {
        if args.json {
            print(format_args!("{}\n", serde_json::to_string_pretty(&report)?))?;
            return Ok(Exit::Success);
        }
        print(format_args!(
            "transaction {}: kept\ncommand:  {}\nattempts: {}\nread:     {} objects\nchanges:  {}\n",
            report.id,
            printable(&report.command.join(" ")),
            report.attempts,
            report.read_objects,
            crate::manager::summary(&report.changes),
        ))?;
        for change in &report.changes {
            print(format_args!("  {change}\n"))?;
        }
        return Ok(Exit::Success);
    }
    if let Some(status) = state.transactions()?.into_iter().find(|tx| tx.meta.id == args.id) {
        print(format_args!("{}\n", serde_json::to_string_pretty(&status)?))?;
        return Ok(Exit::Success);
    }
    match state.history()?.into_iter().find(|entry| entry.id == args.id) {
        Some(entry) => print(format_args!("{}\n", serde_json::to_string_pretty(&entry)?))?,
        None => bail!("no transaction {}: see `txos ps` and `txos log`", args.id),
    }
    Ok(Exit::Success)
}
