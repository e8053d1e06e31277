use anyhow::Result;

use crate::{exit::Exit, manager::tell_recovery, state, text::say, verbs::print};

/// Options of `txos recover`.
#[derive(Debug, clap::Args)]
pub struct Args {
    /// Print what was done as JSON
    #[arg(long)]
    json: bool,
}

/// Finishes or discards what a crash left.
pub fn run(args: Args) -> Result<Exit> {
    let report = txos_store::recover(&state::open()?)?;
    if args.json {
        print(format_args!("{}\n", serde_json::to_string_pretty(&report)?))?;
    } else if let Some(holder) = &report.busy {
        say(format!("nothing was looked at: the state directory is in use by {holder}"));
    } else if report.is_empty() {
        print(format_args!("nothing to recover\n"))?;
    } else {
        tell_recovery(&report);
    }
    Ok(if report.busy.is_some() { Exit::Failure } else { Exit::Success })
}
