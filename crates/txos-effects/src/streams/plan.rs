//! The child's half: what it must do with its standard streams before it runs the command.

use crate::{Error, sys};
use rustix::fs::{Mode, OFlags, SeekFrom};
use serde::{Deserialize, Serialize};
use std::ffi::OsString;
use std::os::fd::OwnedFd;

/// A file on standard input, to be opened again in the view.
///
/// The host's own descriptor is not handed over: through `/proc/self/fd/0` it would be a way out of
/// the view, and what is read through it would be captured by nobody.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct StdinFile {
    /// Absolute path, as the manager sees it.
    pub path: OsString,
    /// Where reading goes on.
    pub offset: u64,
    /// Whether the descriptor was open for writing too.
    pub write: bool,
    /// Whether it was opened with `O_APPEND`.
    pub append: bool,
}

/// What the fresh child has to do; it travels there as part of its orders (serde).
///
/// The steps, in order: [`ChildPlan::settle`] in the process that will run the command (so that
/// this one leads the new session), and once the view is in place [`ChildPlan::open_stdin`].
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct ChildPlan {
    /// Streams that were closed outside and stay closed inside.
    pub closed: [bool; 3],
    /// Streams that are the view's terminal: the view makes one, puts it there, and sends its
    /// master to [`Streams::adopt_terminal`](super::Streams::adopt_terminal).
    pub on_terminal: [bool; 3],
    /// Standard input, when it is a file.
    pub stdin_file: Option<StdinFile>,
}

impl ChildPlan {
    /// Starts a new session, so that the outer terminal cannot be reached through `/dev/tty`, takes
    /// the new terminal for it, and closes what is to be closed. The process must not lead a group
    /// (a freshly forked one does not); one that leads a session already keeps it.
    ///
    /// # Errors
    ///
    /// [`Error::System`]. Source: setsid(2), `TIOCSCTTY` in ioctl_tty(2).
    pub fn settle(&self) -> Result<(), Error> {
        match rustix::process::setsid() {
            Ok(_) => {}
            Err(_) if rustix::process::getsid(None) == Ok(rustix::process::getpid()) => {}
            Err(error) => return Err(Error::system("start a new session")(error)),
        }
        let streams = [rustix::stdio::stdin(), rustix::stdio::stdout(), rustix::stdio::stderr()];
        let terminal = self.on_terminal.iter().zip(streams).find_map(|(on, fd)| on.then_some(fd));
        if let Some(terminal) = terminal {
            rustix::process::ioctl_tiocsctty(terminal)
                .map_err(Error::system("take the new terminal for the session"))?;
        }
        for (stream, closed) in self.closed.iter().enumerate() {
            if *closed {
                sys::close_standard(stream);
            }
        }
        Ok(())
    }

    /// Opens the file of standard input in the view and puts it at descriptor 0. Gives a second
    /// descriptor of the same open file, for [`Streams::adopt_stdin`](super::Streams::adopt_stdin):
    /// send it to the manager. Nothing to do, and `None`, when standard input is no file.
    ///
    /// # Errors
    ///
    /// [`Error::Reopen`] when the view does not have the file, or not for this user.
    pub fn open_stdin(&self) -> Result<Option<OwnedFd>, Error> {
        let Some(file) = &self.stdin_file else { return Ok(None) };
        let reopen = |error: rustix::io::Errno| Error::Reopen {
            path: file.path.clone().into(),
            error: error.into(),
        };
        let mut flags = OFlags::CLOEXEC | OFlags::NOCTTY;
        flags |= if file.write { OFlags::RDWR } else { OFlags::RDONLY };
        if file.append {
            flags |= OFlags::APPEND;
        }
        let opened = rustix::fs::open(&file.path, flags, Mode::empty()).map_err(reopen)?;
        // A directory has no byte offset that means anything in the view.
        if file.offset > 0 {
            rustix::fs::seek(&opened, SeekFrom::Start(file.offset)).map_err(reopen)?;
        }
        rustix::stdio::dup2_stdin(&opened).map_err(reopen)?;
        Ok(Some(opened))
    }
}

/// Has every descriptor but the standard streams closed when the command is run. One that the caller
/// of the manager had left open (`txos run … 3<file`) would be a way out of the view; inside, it is
/// simply not there. To be called last before exec.
///
/// # Errors
///
/// [`Error::System`]; the command must not be run then.
pub fn seal_descriptors() -> Result<(), Error> {
    sys::close_on_exec_from_3().map_err(Error::system("close inherited descriptors on exec"))
}
