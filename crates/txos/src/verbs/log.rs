use anyhow::Result;
use txos_store::Outcome;

use crate::{
    exit::Exit,
    text::{count, printable, shortened},
    verbs::{print, recovered, when},
};

/// Options of `txos log`.
#[derive(Debug, clap::Args)]
pub struct Args {
    /// Show at most the last N
    #[arg(long, short = 'n', value_name = "N", default_value_t = 20)]
    lines: usize,

    /// Print one JSON value a line
    #[arg(long)]
    json: bool,
}

/// Lists the transactions that have ended, the last one last.
pub fn run(args: Args) -> Result<Exit> {
    let Some(state) = recovered()? else { return Ok(Exit::Success) };
    let history = state.history()?;
    let skipped = history.len().saturating_sub(args.lines);
    for entry in &history[skipped..] {
        if args.json {
            print(format_args!("{}\n", crate::text::json(entry)?))?;
            continue;
        }
        let outcome = word(entry.outcome);
        let took = entry.ended_ms.saturating_sub(entry.started_ms) as f64 / 1000.0;
        let retries = match entry.retries {
            0 => String::new(),
            retries => format!(", retried {}", count(u64::from(retries), "time")),
        };
        print(format_args!(
            "{:>6}  {}  {outcome:<9}  {:>8.1} s  {}{retries}  {}\n",
            entry.id,
            when(entry.started_ms),
            took,
            count(entry.changes, "change"),
            printable(&shortened(&entry.command)),
        ))?;
    }
    Ok(Exit::Success)
}

/// How a transaction ended, in a word.
pub fn word(outcome: Outcome) -> &'static str {
    match outcome {
        Outcome::Committed => "committed",
        Outcome::Aborted => "aborted",
        Outcome::Conflicted => "conflict",
        Outcome::Discarded => "discarded",
        Outcome::Recovered => "recovered",
        Outcome::Failed => "failed",
    }
}
