use std::collections::BTreeMap;

use anyhow::Result;

use crate::{
    contention::{self, Stats},
    exit::Exit,
    text::count,
    verbs::{print, recovered},
};

/// Options of `txos stats`.
#[derive(Debug, clap::Args)]
pub struct Args {
    /// Print JSON
    #[arg(long)]
    json: bool,
}

/// Shows what was counted since the state directory was made.
pub fn run(args: Args) -> Result<Exit> {
    let stats = match recovered()? {
        Some(state) => contention::stats(state.path())?,
        None => Stats::default(),
    };
    if args.json {
        print(format_args!("{}\n", crate::text::json_pretty(&stats)?))?;
        return Ok(Exit::Success);
    }
    print(format_args!(
        "attempts   {}\ncommitted  {}\nkept       {}\ndry runs   {}\naborted    {}, {} of them to another \
         transaction\n",
        stats.attempts, stats.committed, stats.kept, stats.dry_runs, stats.aborted, stats.lost
    ))?;
    print(format_args!(
        "waits      {}, {:.3} s in all, {:.3} s the longest\n",
        stats.waits,
        stats.waited_us as f64 / 1e6,
        stats.longest_wait_us as f64 / 1e6
    ))?;
    conflicts("between transactions", &stats.between)?;
    conflicts("with others", &stats.outside)?;
    if !stats.pauses.is_empty() {
        print(format_args!("pauses of a domain:\n"))?;
    }
    for (exponent, pauses) in &stats.pauses {
        let microseconds = 1_u64.checked_shl(*exponent).unwrap_or(u64::MAX);
        print(format_args!("  up to {microseconds:>8} µs  {}\n", count(*pauses, "pause")))?;
    }
    Ok(Exit::Success)
}

fn conflicts(whose: &str, counts: &BTreeMap<String, u64>) -> Result<()> {
    if !counts.is_empty() {
        print(format_args!("conflicts {whose}:\n"))?;
    }
    for (facet, number) in counts {
        print(format_args!("  {facet:<22}{number:>8}\n"))?;
    }
    Ok(())
}
