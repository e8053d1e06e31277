//! Paired measurements of txos against native execution.
//!
//! One invocation runs every row: the same command natively and inside `txos run`, in turns, each
//! on its own fresh copy of the same input. What is printed is the median of each and their ratio,
//! beside the goal. The table goes to standard output as Markdown, and with the raw figures to
//! `report.json`, `report.md` and the plots in the output directory.
//!
//! Nothing here is a test: a missed goal is reported, not failed.

mod context;
mod helper;
mod inputs;
mod measure;
mod memory;
mod plot;
mod report;
mod rows;
mod session;

use std::path::PathBuf;

use anyhow::{Result, bail};
use clap::{Parser, Subcommand};

use crate::context::Context;
use crate::report::Report;

/// Measures txos against native execution, in pairs.
#[derive(Parser)]
#[command(name = "txos-bench")]
struct Args {
    /// Rows to measure; all of them if none is named.
    rows: Vec<String>,
    /// Fewer rounds: a first impression in a few minutes.
    #[arg(long)]
    quick: bool,
    /// List the rows and stop.
    #[arg(long)]
    list: bool,
    /// Where inputs are cached and results are written.
    #[arg(long, default_value = concat!(env!("CARGO_MANIFEST_DIR"), "/out"))]
    out: PathBuf,
    /// The binary to measure; by default $TXOS_BIN, then the one beside this program.
    #[arg(long)]
    txos: Option<PathBuf>,
    #[command(subcommand)]
    helper: Option<Internal>,
}

/// What the measured commands run, natively as well as inside a transaction.
#[derive(Subcommand)]
enum Internal {
    /// One of the workloads of this program.
    #[command(hide = true)]
    Helper(helper::Helper),
}

fn main() -> Result<()> {
    let args = Args::parse();
    if let Some(Internal::Helper(helper)) = args.helper {
        return helper.run();
    }
    let all = rows::all();
    if args.list {
        all.iter().for_each(|row| println!("{:12} {}", row.name, row.title));
        return Ok(());
    }
    for name in &args.rows {
        if !all.iter().any(|row| row.name == *name) {
            bail!("no row is named '{name}'; --list names them");
        }
    }
    if !rustix::process::geteuid().is_root() {
        bail!("the rows compare root's transactions with root's commands: run it as root");
    }
    let context = Context::new(&args.out, args.txos, args.quick)?;
    let mut report = Report::new(&context)?;
    for row in all {
        if args.rows.is_empty() || args.rows.iter().any(|name| name == row.name) {
            eprintln!("measuring {}", row.title);
            report.add(&row, (row.measure)(&context));
            context.clean_up();
        }
    }
    report.write(&context)
}
