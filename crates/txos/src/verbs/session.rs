//! The hidden verb of the session: what a program starts that begins a transaction and finds none.

use std::os::fd::RawFd;

use anyhow::Result;
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
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
    raise_limits();
    let session = Session::start(state::open()?, state::credentials(), state::likely_places())?;
    session.serve(inherited::descriptor(args.connection).into())?;
    session.finish();
    Ok(Exit::Success)
}

/// Raises the limits of this process as far as it may: they are those of the program that was there first, and meant
/// for that. A session has files open, and writes, for all that its transactions do.
pub(super) fn raise_limits() {
    use Resource::{As, Cpu, Data, Fsize, Nofile, Nproc};
    for resource in [As, Cpu, Data, Fsize, Nofile, Nproc] {
        let Rlimit { maximum, .. } = getrlimit(resource);
        // What may not be raised stays what it is.
        let _ = setrlimit(resource, Rlimit { current: maximum, maximum });
    }
}
