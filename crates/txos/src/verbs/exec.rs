use std::{ffi::OsString, os::unix::process::ExitStatusExt, process::Command};

use anyhow::{Context, Result};
use txos_session::Session;
use txos_view::{Credentials, own_user_namespace};

use crate::{
    exit::Exit,
    state,
    verbs::{contention::leave_domain, session::raise_limits},
};

/// The variable in which libtxos finds the session.
const ADDRESS: &str = "TXOS_SESSION";

/// Run a program that begins transactions itself (see sys_xbegin(2)), with a session for it and all that
/// it starts. The program is not in a transaction by that.
#[derive(Debug, clap::Args)]
pub struct Args {
    /// The program and its arguments
    #[arg(required = true, trailing_var_arg = true, allow_hyphen_values = true)]
    command: Vec<OsString>,
}

/// Starts the session, runs the program to its end, and ends with its status.
pub fn run(args: Args) -> Result<Exit> {
    // Before there are any threads.
    if let Credentials::User { uid, gid } = state::credentials() {
        own_user_namespace(uid, gid)?;
    }
    let session = Session::start(state::open()?, state::credentials(), state::likely_places())?;
    let (program, arguments) = args.command.split_first().context("no program is given")?;
    // Keys of the terminal are the program's affair: its session outlives it.
    for signal in [libc::SIGINT, libc::SIGQUIT] {
        signal_hook::flag::register(signal, Default::default()).context("cannot watch signals")?;
    }
    let started = Command::new(program).args(arguments).env(ADDRESS, session.name()).spawn();
    // The program stays in the domain, its session does not.
    leave_domain();
    // And it keeps its limits.
    raise_limits();
    let ended = started.map(|mut child| child.wait());
    // What the program left running may go on using the session.
    session.finish();
    match ended {
        Ok(status) => {
            Ok(Exit::of_wait_status(status.context("cannot wait for the program")?.into_raw()))
        }
        Err(error) => {
            crate::text::say(format!("cannot execute {:?}: {error}", program.to_string_lossy()));
            Ok(Exit::of_exec(error.raw_os_error().unwrap_or(libc::ENOENT)))
        }
    }
}
