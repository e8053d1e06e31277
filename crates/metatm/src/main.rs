//! The `metatm` command: runs workloads, litmus tests and the whole reproduction.

mod cli;

use clap::Parser;

fn main() -> std::process::ExitCode {
    let args = cli::Args::parse();
    match cli::run(args) {
        Ok(true) => std::process::ExitCode::SUCCESS,
        Ok(false) => std::process::ExitCode::FAILURE,
        Err(e) => {
            eprintln!("metatm: {e:#}");
            std::process::ExitCode::from(2)
        }
    }
}
