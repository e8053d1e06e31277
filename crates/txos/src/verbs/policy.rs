use anyhow::{Result, anyhow};
use txos_core::contention::Policy;

use crate::{
    contention,
    exit::Exit,
    verbs::{print, recovered},
};

/// Options of `txos policy`.
#[derive(Debug, clap::Args)]
#[command(
    after_help = "osprio: the higher --priority, then scheduling class and nice value, then \
    the older (default). timestamp: the older. sizematters: the one that has read more."
)]
pub struct Args {
    /// The policy from now on: osprio, timestamp or sizematters
    name: Option<String>,
}

/// Shows or sets the policy, for what runs and what comes.
pub fn run(args: Args) -> Result<Exit> {
    let policy = args.name.map(|name| name.parse::<Policy>().map_err(|error| anyhow!(error)));
    let policy = policy.transpose()?;
    let state = recovered()?;
    match policy {
        Some(policy) => contention::set_policy(state.path(), policy)?,
        None => print(format_args!("{}\n", contention::policy(state.path())?))?,
    }
    Ok(Exit::Success)
}
