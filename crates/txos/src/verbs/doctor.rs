use anyhow::Result;
use txos_doctor::{Status, examine};

use crate::{exit::Exit, verbs::print};

/// Options of `txos doctor`.
#[derive(Debug, clap::Args)]
pub struct Args {
    /// Print the examination as JSON
    #[arg(long)]
    json: bool,
}

/// Says what this machine grants; ends with status 1 if something is missing.
pub fn run(args: Args) -> Result<Exit> {
    let report = examine(&txos_store::default_directory()?);
    if args.json {
        print(format_args!("{}\n", crate::text::json_pretty(&report)?))?;
    } else {
        print(format_args!("{report}"))?;
    }
    let missing = report.probes.iter().any(|probe| probe.status == Status::Missing);
    Ok(if missing { Exit::Limited } else { Exit::Success })
}
