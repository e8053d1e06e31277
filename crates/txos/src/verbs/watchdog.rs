//! The hidden verb that a watchdog of pauses runs (see `txos_domain::Watchdog`).

use std::{
    ffi::OsStr,
    path::{Path, PathBuf},
    sync::Arc,
};

use anyhow::{Context, Result};

use crate::{
    exit::Exit,
    manager::lock_and_recover,
    state,
    text::{printable, say},
};

/// Options of the hidden verb.
#[derive(Debug, clap::Args)]
pub struct Args {
    /// The state directory whose commits are to be finished
    state: PathBuf,
    /// Which of the two it is
    role: String,
}

/// Watches until txos has ended.
pub fn run(args: Args) -> Result<Exit> {
    let program = std::env::current_exe().context("cannot find the txos program")?;
    let words = [OsStr::new("__watchdog"), args.state.as_os_str()];
    let path = args.state.clone();
    let finish = Arc::new(move || {
        if let Err(error) = finish(&path) {
            say(printable(&format!("{error:#}")));
        }
    });
    txos_domain::serve(&args.role, (&program, &words), finish)?;
    Ok(Exit::Success)
}

/// Finishes what a dead txos had decided. Whoever holds the state just then has finished it before
/// anything else, or dies too.
fn finish(path: &Path) -> Result<()> {
    let state = state::open_at(path)?;
    lock_and_recover(&state, "a watchdog", &|| false).map(drop)
}
