use crate::exit::Exit;
use anyhow::Result;
/// Options.
#[derive(Debug, clap::Args)]
pub struct Args {
    id: u64,
}
/// Run.
pub fn run(args: Args) -> Result<Exit> {
    let _ = args.id;
    Ok(Exit::Failure)
}
