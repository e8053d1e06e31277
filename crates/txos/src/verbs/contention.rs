//! The hidden verb of the contention manager's process.

use std::{os::fd::RawFd, path::PathBuf};

use anyhow::Result;
use txos_domain::{Domains, leave};

use crate::{contention, exit::Exit, inherited};

/// Options of the hidden verb.
#[derive(Debug, clap::Args)]
pub struct Args {
    /// The state directory
    state: PathBuf,
}

/// Where whoever starts it puts the listening socket.
const LISTENER: RawFd = 0;
/// Where whoever starts it puts the locked file.
const LOCK: RawFd = 1;

/// Serves a state directory until nobody needs it.
pub fn run(args: Args) -> Result<Exit> {
    close_others(&[LISTENER, LOCK, 2]);
    leave_domain();
    contention::run(&args.state, inherited::descriptor(LISTENER), inherited::descriptor(LOCK))?;
    Ok(Exit::Success)
}

/// Moves this process out of the domain that it was started in, if it was: who waits for its answers
/// cannot be frozen, and who is held with it would be held by it.
pub fn leave_domain() {
    let left = Domains::find().and_then(|domains| leave(domains.hierarchy(), false));
    if let Err(error) = left {
        tracing::debug!(%error, "not out of a domain");
    }
}

/// Closes what else was inherited from whoever happened to start the manager: a pipe that it held
/// would not end for those who read it.
#[allow(unsafe_code)] // the descriptors are known by number alone
fn close_others(ours: &[RawFd]) {
    let open: Vec<RawFd> = std::fs::read_dir("/proc/self/fd")
        .into_iter()
        .flatten()
        .filter_map(|entry| entry.ok()?.file_name().to_str()?.parse().ok())
        .collect();
    for fd in open.into_iter().filter(|fd| !ours.contains(fd)) {
        // SAFETY: this is the first thing that this process does with descriptors, on its only
        // thread: nothing in it knows or uses any other. One that is closed already (the
        // directory's own) gives an error.
        unsafe { libc::close(fd) };
    }
}
