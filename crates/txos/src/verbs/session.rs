//! The hidden verb of the session: what a program starts that begins a transaction and finds none.

use std::os::fd::{OwnedFd, RawFd};

use anyhow::Result;
use txos_session::Session;

use crate::{
    exit::Exit,
    state,
    verbs::{contention::leave_domain, exec},
};

/// Options of the hidden verb.
#[derive(Debug, clap::Args)]
pub struct Args {
    /// Descriptor of the first connection
    connection: RawFd,
}

/// Serves until the last connection has closed.
pub fn run(args: Args) -> Result<Exit> {
    leave_domain();
    let session = Session::start(state::open()?, state::credentials(), exec::wanted())?;
    session.serve(inherited(args.connection).into())?;
    session.finish();
    Ok(Exit::Success)
}

#[allow(unsafe_code)] // the descriptor comes by number on the command line
fn inherited(fd: RawFd) -> OwnedFd {
    use std::os::fd::FromRawFd;
    // SAFETY: the program made this descriptor for this process alone and names it once.
    unsafe { OwnedFd::from_raw_fd(fd) }
}
