//! Command line: a verb is a file.

mod litmus;
mod reproduce;
mod run;
mod speed;

use std::io::{ErrorKind, Write};

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
    /// Run the litmus tests of tables 1 to 3 and section 5.3.
    Litmus(litmus::Litmus),
    /// Measure simulated instructions a second on this host.
    Speed(speed::Speed),
    /// Run all experiments and write the report.
    Reproduce(reproduce::Reproduce),
}

/// Does what was asked; false if a check found something wrong.
///
/// # Errors
/// Bad input, or a run whose figures may not be used.
pub fn run(args: Args) -> anyhow::Result<bool> {
    match args.verb {
        Verb::Run(v) => v.run(),
        Verb::Litmus(v) => v.run(),
        Verb::Speed(v) => v.run(),
        Verb::Reproduce(v) => v.run(),
    }
}

/// Prints `text`; a reader that has gone away (`| head`) is no error.
fn say(text: &str) -> anyhow::Result<()> {
    match std::io::stdout().write_all(text.as_bytes()) {
        Err(e) if e.kind() == ErrorKind::BrokenPipe => Ok(()),
        other => Ok(other?),
    }
}
