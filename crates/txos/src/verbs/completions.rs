use anyhow::Result;
use clap::CommandFactory;
use clap_complete::{Shell, generate};

use crate::{cli::Cli, exit::Exit};

/// Options of `txos completions`.
#[derive(Debug, clap::Args)]
pub struct Args {
    /// The shell
    shell: Shell,
}

/// Prints a completion script.
pub fn run(args: Args) -> Result<Exit> {
    generate(args.shell, &mut Cli::command(), "txos", &mut std::io::stdout());
    Ok(Exit::Success)
}
