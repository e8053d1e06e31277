//! Command line: a verb is a file.

mod run;

use clap::{Parser, Subcommand};

/// A deterministic multi-processor simulator with hardware transactional memory.
#[derive(Debug, Parser)]
#[command(version)]
pub struct Args {
    #[command(subcommand)]
    verb: Verb,
}

#[derive(Debug, Subcommand)]
enum Verb {
    /// Run one workload and print what it counted.
    Run(run::Run),
}

/// Does what was asked; false if a check found something wrong.
///
/// # Errors
/// Bad input, or a run whose figures may not be used.
pub fn run(args: Args) -> anyhow::Result<bool> {
    match args.verb {
        Verb::Run(v) => v.run(),
    }
}
