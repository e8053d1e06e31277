//! The hidden verb of the session: what a program starts that begins a transaction and finds none.

use std::os::fd::RawFd;

use anyhow::Result;
use txos_session::Session;

use crate::{exit::Exit, inherited, state, verbs::contention::leave_domain};

/// Options of the hidden verb.
#[derive(Debug, clap::Args)]
pub struct Args {
    /// Descriptor of the first connection
    connection: RawFd,
}

/// Serves until the last connection has closed.
pub fn run(args: Args) -> Result<Exit> {
    leave_domain();
    let session = Session::start(state::open()?, state::credentials(), state::likely_places())?;
    session.serve(inherited::descriptor(args.connection).into())?;
    session.finish();
    Ok(Exit::Success)
}
