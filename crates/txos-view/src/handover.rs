//! How the listener of the command's system call filter gets to the manager.
//!
//! From the moment that the filter is in force it may hold up any call of the command's process,
//! `sendmsg(2)` among them, until somebody answers on the listener: so that process cannot send the
//! listener itself. It tells its number through a pipe (`write(2)` is never held up), and init, which
//! has no filter, takes a copy (`pidfd_getfd(2)`) and sends that.

use std::os::fd::{AsFd, AsRawFd, OwnedFd, RawFd};

use rustix::{
    io::{Errno, read, retry_on_intr, write},
    pipe::{PipeFlags, pipe_with},
    process::{
        DumpableBehavior, Pid, PidfdFlags, PidfdGetfdFlags, pidfd_getfd, pidfd_open,
        set_dumpable_behavior,
    },
};

use crate::{Channel, FromView, Result, ViewError};

/// Both ends, made before the fork.
pub(crate) struct Handover {
    number: (OwnedFd, OwnedFd),
    taken: (OwnedFd, OwnedFd),
}

/// The end in the command's process.
pub(crate) struct Giver {
    number: OwnedFd,
    taken: OwnedFd,
}

impl Handover {
    pub(crate) fn new() -> Result<Handover> {
        let pipe = || pipe_with(PipeFlags::CLOEXEC).map_err(failed);
        Ok(Handover { number: pipe()?, taken: pipe()? })
    }

    /// The command's side.
    pub(crate) fn giver(self) -> Giver {
        Giver { number: self.number.1, taken: self.taken.0 }
    }

    /// Init's side: waits for the number, and passes the listener on. Nothing to do if the process
    /// ends, or goes on, without a filter.
    pub(crate) fn pass_on(self, command: Pid, channel: &Channel) -> Result<()> {
        let (number, taken) = (self.number.0, self.taken.1);
        // Only the command's process can write now, so its end is the end of the pipe.
        drop((self.number.1, self.taken.0));
        let mut bytes = [0; size_of::<RawFd>()];
        if retry_on_intr(|| read(&number, &mut bytes)).map_err(failed)? != bytes.len() {
            return Ok(());
        }
        let process = pidfd_open(command, PidfdFlags::empty()).map_err(failed)?;
        let fd = RawFd::from_ne_bytes(bytes);
        let listener = pidfd_getfd(&process, fd, PidfdGetfdFlags::empty()).map_err(failed)?;
        channel.send(&FromView::Listener, Some(listener.as_fd()))?;
        retry_on_intr(|| write(&taken, &[1])).map_err(failed)?;
        Ok(())
    }
}

impl Giver {
    /// Hands the listener over, and returns when init has it.
    ///
    /// Until the command is executed its process is as closed as init, from which it was forked;
    /// it opens itself here, or init could not take anything from it in a user namespace
    /// (ptrace(2), "Ptrace access mode checking").
    pub(crate) fn give(self, listener: &OwnedFd) -> Result<()> {
        set_dumpable_behavior(DumpableBehavior::Dumpable).map_err(failed)?;
        retry_on_intr(|| write(&self.number, &listener.as_raw_fd().to_ne_bytes()))
            .map_err(failed)?;
        let mut answer = [0];
        match retry_on_intr(|| read(&self.taken, &mut answer)).map_err(failed)? {
            1 => Ok(()),
            _ => Err(ViewError::Gone("init of the view")),
        }
    }
}

fn failed(errno: Errno) -> ViewError {
    ViewError::step("hand the system call filter's listener over", errno)
}
