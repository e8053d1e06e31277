use anyhow::Result;
use txos_core::TxId;

use crate::{
    exit::Exit,
    manager::kept,
    text::printable,
    verbs::{log, print, ps, recovered, unknown, when},
};

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
    let Some(state) = recovered()? else { return Err(unknown(args.id)) };
    if let Some(report) = kept::report(&state, args.id)? {
        if args.json {
            print(format_args!("{}\n", crate::text::json_pretty(&report)?))?;
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
        if args.json {
            print(format_args!("{}\n", crate::text::json_pretty(&status)?))?;
        } else {
            print(format_args!(
                "transaction {}: {}\ncommand:  {}\nretries:  {}\n",
                args.id,
                ps::state_and_process(&state, &status)?,
                printable(&status.meta.command),
                status.meta.retries,
            ))?;
        }
        return Ok(Exit::Success);
    }
    let Some(entry) = state.history()?.into_iter().find(|entry| entry.id == args.id) else {
        return Err(unknown(args.id));
    };
    if args.json {
        print(format_args!("{}\n", crate::text::json_pretty(&entry)?))?;
        return Ok(Exit::Success);
    }
    print(format_args!(
        "transaction {}: {}{}\ncommand:  {}\nbegan:    {}\nended:    {}\nretries:  {}\nchanges:  {}\n",
        args.id,
        log::word(entry.outcome),
        entry.status.map_or_else(String::new, |status| format!(", exit status {status}")),
        printable(&entry.command),
        when(entry.started_ms),
        when(entry.ended_ms),
        entry.retries,
        entry.changes,
    ))?;
    if !entry.note.is_empty() {
        print(format_args!("note:     {}\n", printable(&entry.note)))?;
    }
    if entry.loss.is_some() {
        print(format_args!("lost:     see `txos why {}`\n", args.id))?;
    }
    Ok(Exit::Success)
}
