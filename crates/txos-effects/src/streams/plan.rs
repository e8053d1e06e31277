//! The child's half: what it must do with its standard streams before it runs the command.

use crate::{Error, sys};
use rustix::fd::BorrowedFd;
use rustix::fs::{Mode, OFlags, SeekFrom};
use serde::{Deserialize, Serialize};
use std::ffi::OsString;
use std::os::fd::{OwnedFd, RawFd};

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

/// A descriptor from 3 on that the command gets.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Other {
    /// Its number in the command.
    pub number: RawFd,
    /// What it is.
    pub origin: Origin,
}

/// Where a descriptor from 3 on comes from.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub enum Origin {
    /// The child has inherited it under this number.
    Inherited(RawFd),
    /// The view's terminal.
    Terminal,
    /// A file, to be opened again in the view.
    File(StdinFile),
}

/// What the fresh child has to do; it travels there as part of its orders (serde).
///
/// The steps, in order: [`ChildPlan::reserve`] first of all, [`ChildPlan::settle`] in the process that will run the command (so that
/// this one leads the new session), and once the view is in place [`ChildPlan::open_stdin`] and
/// [`ChildPlan::open_others`].
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct ChildPlan {
    /// Streams that were closed outside and stay closed inside.
    pub closed: [bool; 3],
    /// Streams that are the view's terminal: the view makes one, puts it there, and sends its
    /// master to [`Streams::adopt_terminal`](super::Streams::adopt_terminal).
    pub on_terminal: [bool; 3],
    /// Standard input, when it is a file.
    pub stdin_file: Option<StdinFile>,
    /// What else was open before the transaction.
    #[serde(default)]
    pub others: Vec<Other>,
}

impl ChildPlan {
    /// Starts a new session, so that the outer terminal cannot be reached through `/dev/tty`, takes
    /// the new terminal for it, and closes what is to be closed. The process must not lead a group
    /// (a freshly forked one does not); one that leads a session already keeps it, and so does a child
    /// of one that leads it and has done all this: the view's init.
    ///
    /// # Errors
    ///
    /// [`Error::System`]. Source: setsid(2), `TIOCSCTTY` in ioctl_tty(2).
    pub fn settle(&self) -> Result<(), Error> {
        let begun = rustix::process::setsid();
        let session = rustix::process::getsid(None).ok();
        let is_inits = begun.is_err() && session == rustix::process::getppid();
        match begun {
            Ok(_) => {}
            Err(_) if is_inits || session == Some(rustix::process::getpid()) => {}
            Err(error) => return Err(Error::system("start a new session")(error)),
        }
        if let Some(terminal) = self.terminal()
            && !is_inits
        {
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
        let opened = file.open()?;
        rustix::stdio::dup2_stdin(&opened).map_err(file.failed())?;
        Ok(Some(opened))
    }

    /// Puts what was inherited at its numbers, and `/dev/null` at those of what comes later, so that
    /// nothing that is opened meanwhile takes them. To be called before anything is opened, in the
    /// process from which the command's is forked.
    ///
    /// # Errors
    ///
    /// [`Error::System`].
    pub fn reserve(&self) -> Result<(), Error> {
        if self.others.is_empty() {
            return Ok(());
        }
        let flags = OFlags::RDONLY | OFlags::CLOEXEC;
        let nothing = rustix::fs::open("/dev/null", flags, Mode::empty())
            .map_err(Error::system("reserve descriptors"))?;
        let nothing = self.out_of_the_way(nothing)?;
        // All of them first: what is put at a number may be where another one is to come from.
        let mut found = Vec::with_capacity(self.others.len());
        for other in &self.others {
            found.push(match other.origin {
                Origin::Inherited(from) => Some(self.out_of_the_way(sys::inherited(from))?),
                Origin::Terminal | Origin::File(_) => None,
            });
        }
        for (other, from) in self.others.iter().zip(&found) {
            sys::put_descriptor(from.as_ref().unwrap_or(&nothing), other.number)
                .map_err(Error::system("place an inherited descriptor"))?;
        }
        Ok(())
    }

    /// The same open file under a number above all that [`ChildPlan::reserve`] uses, if it has one of
    /// them or one that comes before them: the manager gives away numbers that are free with it, and
    /// these may be among them.
    ///
    /// # Errors
    ///
    /// [`Error::System`] when there is no descriptor left.
    pub fn out_of_the_way(&self, fd: OwnedFd) -> Result<OwnedFd, Error> {
        let Some(highest) = self.numbers().max() else { return Ok(fd) };
        rustix::io::fcntl_dupfd_cloexec(&fd, highest.saturating_add(1))
            .map_err(Error::system("reserve descriptors"))
    }

    /// The numbers that are to stay open in the command.
    pub fn numbers(&self) -> impl Iterator<Item = RawFd> {
        self.others.iter().map(|other| other.number)
    }

    /// Opens the files of the others in the view and puts the terminal at its numbers. Gives a second
    /// descriptor of each file with its number, for
    /// [`Streams::adopt_file`](super::Streams::adopt_file). A file that the view does not have, or not
    /// for this user, is not there.
    ///
    /// # Errors
    ///
    /// [`Error::System`].
    pub fn open_others(&self) -> Result<Vec<(RawFd, OwnedFd)>, Error> {
        let mut files = Vec::new();
        for Other { number, origin } in &self.others {
            let put = match origin {
                Origin::Inherited(_) => continue,
                Origin::Terminal => match self.terminal() {
                    Some(terminal) => sys::put_descriptor(terminal, *number),
                    None => sys::drop_descriptor(*number),
                },
                Origin::File(file) => match file.open() {
                    Ok(opened) => {
                        let put = sys::put_descriptor(&opened, *number);
                        files.push((*number, opened));
                        put
                    }
                    Err(_) => sys::drop_descriptor(*number),
                },
            };
            put.map_err(Error::system("place a descriptor"))?;
        }
        Ok(files)
    }

    /// A standard stream that is the view's terminal.
    fn terminal(&self) -> Option<BorrowedFd<'static>> {
        let streams = [rustix::stdio::stdin(), rustix::stdio::stdout(), rustix::stdio::stderr()];
        self.on_terminal.iter().zip(streams).find_map(|(on, fd)| on.then_some(fd))
    }
}

impl StdinFile {
    fn failed(&self) -> impl Fn(rustix::io::Errno) -> Error {
        |error| Error::Reopen { path: self.path.clone().into(), error: error.into() }
    }

    /// Opens it where this process is.
    fn open(&self) -> Result<OwnedFd, Error> {
        let (file, reopen) = (self, self.failed());
        let mut flags = OFlags::CLOEXEC | OFlags::NOCTTY;
        flags |= if file.write { OFlags::RDWR } else { OFlags::RDONLY };
        if file.append {
            flags |= OFlags::APPEND;
        }
        let opened = rustix::fs::open(&file.path, flags, Mode::empty()).map_err(&reopen)?;
        // A directory has no byte offset that means anything in the view.
        if file.offset > 0 {
            rustix::fs::seek(&opened, SeekFrom::Start(file.offset)).map_err(&reopen)?;
        }
        Ok(opened)
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
