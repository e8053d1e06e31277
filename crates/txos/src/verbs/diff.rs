use std::io::IsTerminal;

use anyhow::{Result, bail};
use txos_core::TxId;

use crate::{
    exit::Exit,
    manager::{kept, painted},
    verbs::{print, recovered, unknown},
};

/// Options of `txos diff`.
#[derive(Debug, clap::Args)]
pub struct Args {
    /// The transaction
    id: TxId,

    /// Show what changes in small text files
    #[arg(long)]
    text: bool,

    /// Print the changes as JSON
    #[arg(long, conflicts_with = "text")]
    json: bool,
}

/// Shows the changes of a transaction that was kept.
pub fn run(args: Args) -> Result<Exit> {
    let Some(state) = recovered()? else { return Err(unknown(args.id)) };
    let Some(report) = kept::report(&state, args.id)? else {
        bail!("transaction {} is not kept: see `txos ps`", args.id);
    };
    if args.json {
        print(format_args!("{}\n", crate::text::json_pretty(&report.changes)?))?;
        return Ok(Exit::Success);
    }
    let colour = std::io::stdout().is_terminal() && std::env::var_os("NO_COLOR").is_none();
    for change in &report.changes {
        print(format_args!("{}\n", painted(change, colour)))?;
    }
    if args.text {
        print(format_args!("{}", report.text))?;
    }
    for note in &report.notes {
        print(format_args!("note: {}\n", crate::text::printable(note)))?;
    }
    Ok(Exit::Success)
}
