use anyhow::{Result, anyhow};
use txos_core::contention::Policy;

use crate::{
    contention,
    exit::Exit,
    manager::recover_if_free,
    state,
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
    if let Some(policy) = policy {
        let state = state::open()?;
        recover_if_free(&state)?;
        contention::set_policy(state.path(), policy)?;
        return Ok(Exit::Success);
    }
    let policy = match recovered()? {
        Some(state) => contention::policy(state.path())?,
        None => Policy::default(),
    };
    print(format_args!("{policy}\n"))?;
    Ok(Exit::Success)
}
