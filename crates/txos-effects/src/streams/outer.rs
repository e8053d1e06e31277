//! What the manager's own standard streams are, and so what the transaction gets for them.

use super::plan::StdinFile;
use crate::{Error, sys};
use rustix::fd::{AsFd, BorrowedFd, OwnedFd};
use rustix::fs::{FileType, OFlags, Stat, fcntl_getfl, fstat, stat};
use std::ffi::OsString;
use std::os::unix::ffi::OsStrExt;
use std::sync::Arc;

/// The streams of the manager: standard input, output and error. `None` is a closed one.
///
/// A Rust program cannot see that it was started with a closed stream: its runtime puts
/// `/dev/null` there before `main`. So [`Outer::inherited`] never holds `None`.
#[derive(Debug)]
pub struct Outer {
    /// Standard input.
    pub stdin: Option<OwnedFd>,
    /// Standard output.
    pub stdout: Option<OwnedFd>,
    /// Standard error.
    pub stderr: Option<OwnedFd>,
}

impl Outer {
    /// This process's own.
    ///
    /// # Errors
    ///
    /// [`Error::System`] when no descriptor can be had.
    pub fn inherited() -> Result<Outer, Error> {
        let own = |fd: BorrowedFd<'_>| {
            fd.try_clone_to_owned().map(Some).map_err(Error::system("keep a standard stream"))
        };
        let (stdin, stdout, stderr) = (std::io::stdin(), std::io::stdout(), std::io::stderr());
        Ok(Outer {
            stdin: own(stdin.as_fd())?,
            stdout: own(stdout.as_fd())?,
            stderr: own(stderr.as_fd())?,
        })
    }
}

/// What a stream is.
#[derive(Debug, Clone)]
pub(super) enum Kind {
    Closed,
    /// A device without state, handed over as it is.
    Device(Arc<OwnedFd>),
    Terminal(Arc<OwnedFd>),
    /// A file or directory with a name that leads to it.
    File(Arc<OwnedFd>, StdinFile),
    /// Anything else: a pipe, a socket, a file without a name.
    Bytes(Arc<OwnedFd>),
}

/// `/dev/null`, `/dev/zero`, `/dev/full`, `/dev/random`, `/dev/urandom`.
const STATELESS: [u32; 5] = [3, 5, 7, 8, 9];
const MEMORY_MAJOR: u32 = 1;

impl Kind {
    pub(super) fn of(fd: Option<OwnedFd>) -> Kind {
        let Some(fd) = fd.map(Arc::new) else { return Kind::Closed };
        let Ok(status) = fstat(&*fd) else { return Kind::Closed };
        match FileType::from_raw_mode(status.st_mode) {
            FileType::CharacterDevice if rustix::termios::isatty(&*fd) => Kind::Terminal(fd),
            FileType::CharacterDevice if is_stateless(&status) => Kind::Device(fd),
            FileType::RegularFile | FileType::Directory => match named(&fd, &status) {
                Some(file) => Kind::File(fd, file),
                None => Kind::Bytes(fd),
            },
            _ => Kind::Bytes(fd),
        }
    }

    pub(super) fn fd(&self) -> Option<&Arc<OwnedFd>> {
        match self {
            Kind::Closed => None,
            Kind::Device(fd) | Kind::Terminal(fd) | Kind::File(fd, _) | Kind::Bytes(fd) => Some(fd),
        }
    }
}

fn is_stateless(status: &Stat) -> bool {
    rustix::fs::major(status.st_rdev) == MEMORY_MAJOR
        && STATELESS.contains(&rustix::fs::minor(status.st_rdev))
}

/// The name under which a file can be opened again, if it leads to the same file still.
fn named(fd: &OwnedFd, status: &Stat) -> Option<StdinFile> {
    let path: OsString = std::fs::read_link(proc_path(fd)).ok()?.into();
    let there = stat(&path).ok()?;
    if !path.as_bytes().starts_with(b"/")
        || (there.st_dev, there.st_ino) != (status.st_dev, status.st_ino)
    {
        return None;
    }
    let flags = fcntl_getfl(fd).ok()?;
    Some(StdinFile {
        path,
        offset: rustix::fs::tell(fd).unwrap_or(0),
        write: flags & OFlags::ACCMODE == OFlags::RDWR,
        append: flags.contains(OFlags::APPEND),
    })
}

fn proc_path(fd: &OwnedFd) -> String {
    use std::os::fd::AsRawFd;
    format!("/proc/self/fd/{}", fd.as_raw_fd())
}

/// Whether what is written to `a` and `b` ends up in one place in the order of the writes: one
/// pipe, socket or device, or one open file. (One file opened twice has two positions.)
pub(super) fn same_place(a: &OwnedFd, b: &OwnedFd) -> bool {
    let (Ok(first), Ok(second)) = (fstat(a), fstat(b)) else { return false };
    if (first.st_dev, first.st_ino, first.st_rdev) != (second.st_dev, second.st_ino, second.st_rdev)
    {
        return false;
    }
    if FileType::from_raw_mode(first.st_mode) != FileType::RegularFile {
        return true;
    }
    let append = |fd| fcntl_getfl(fd).is_ok_and(|flags| flags.contains(OFlags::APPEND));
    sys::same_description(a, b).unwrap_or(true) || (append(a) && append(b))
}
