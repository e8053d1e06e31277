use std::os::fd::OwnedFd;

use rustix::{
    process::{Signal, WaitOptions, set_parent_process_death_signal, wait},
    thread::set_name,
};

use crate::{
    Channel, FromView, Result, ViewError, ViewSpec, gateway, groups, init, mounts, namespaces, sys,
};

/// What runs in the command's process, in the view and its working directory, right before
/// privileges are dropped and the command is executed. It may give a listener of a system call
/// filter that it has installed; init passes that on.
pub type BeforeExec<'a> = dyn FnMut(&Channel) -> std::result::Result<Option<OwnedFd>, String> + 'a;

/// What runs in init when the last process of the view has ended. It may give a file that says what they
/// left in the view's IPC namespace, which ends with init. It is given what they left in file systems that
/// they mounted, a sentence each.
pub type AtEnd<'a> = dyn FnMut(Vec<String>) -> std::result::Result<Option<OwnedFd>, String> + 'a;

/// Makes the view that `spec` describes and runs its command in it.
///
/// To be called in a process of its own that was just started and has one thread.
/// `before_exec` is where standard input is opened and the system call filter installed.
///
/// All outcomes are told over `channel`; the return value is the exit status for the calling
/// process and says nothing more.
pub fn enter(
    spec: &ViewSpec,
    channel: &Channel,
    before_exec: &mut BeforeExec<'_>,
    at_end: &mut AtEnd<'_>,
) -> u8 {
    match run(spec, channel, before_exec, at_end) {
        Ok(()) => 0,
        Err(error) => {
            // If the manager is gone too there is nobody left to tell.
            let _ = channel.send(&FromView::Failed { message: error.to_string() }, None);
            1
        }
    }
}

fn run(
    spec: &ViewSpec,
    channel: &Channel,
    before_exec: &mut BeforeExec<'_>,
    at_end: &mut AtEnd<'_>,
) -> Result<()> {
    groups::join(spec)?;
    namespaces::leave_host(spec)?;
    gateway::open(spec, channel)?;
    // After the namespaces: a change of credentials clears the death signal (prctl(2)).
    die_with_parent()?;
    mounts::mount_base(spec, channel)?;
    let forked = sys::fork().map_err(|errno| ViewError::step("fork init of the view", errno))?;
    match forked {
        sys::Forked::Child => {
            let _ = set_name(c"txos-init");
            die_with_parent()?;
            init::run(spec, channel, before_exec, at_end)
        }
        sys::Forked::Parent(_) => {
            while let Err(rustix::io::Errno::INTR) = wait(WaitOptions::empty()) {}
            Ok(())
        }
    }
}

fn die_with_parent() -> Result<()> {
    set_parent_process_death_signal(Some(Signal::KILL))
        .map_err(|errno| ViewError::step("ask for a parent-death signal", errno))
}
