use anyhow::Result;
use clap::CommandFactory;
use clap_complete::{Shell, generate};

use crate::{cli::Cli, exit::Exit, verbs::print};

/// Options of `txos completions`.
#[derive(Debug, clap::Args)]
pub struct Args {
    /// The shell
    shell: Shell,
}

/// Prints a completion script.
pub fn run(args: Args) -> Result<Exit> {
    let mut script = Vec::new();
    generate(args.shell, &mut Cli::command(), "txos", &mut script);
    print(format_args!("{}", String::from_utf8_lossy(&script)))?;
    Ok(Exit::Success)
}
