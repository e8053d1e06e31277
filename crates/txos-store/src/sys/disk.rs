//! The storage trait: every call by which the store changes a disk.
//!
//! Nothing in this crate that recovery relies on reaches the kernel but through [`Disk`]. In the
//! program there is one implementation, [`Kernel`], a unit type whose methods are the calls
//! themselves: no dispatch, no state. In tests [`disk`] gives one that asks a watcher before each
//! call and tells it afterwards (`watch.rs`): it records, fails, cuts short, or kills.
//!
//! # Contract
//!
//! - Each method is one system call, or calls that no observer can tell from one.
//! - `flush` with [`Flush::Data`] makes the content and size of a file lasting (`fdatasync(2)`),
//!   with [`Flush::All`] the object with its attributes and names too (`fsync(2)`; names only where
//!   [`super::flush_takes_names`] says so); `flush_fs` everything on the file system (`syncfs(2)`).
//! - After a flush that failed nothing is known of what was written before it.
//! - `rename` is atomic, also towards a crash; so are `link`, `unlink` and their like.
//! - A write may be cut short, and may be lost or kept page by page until it is flushed.

use std::{
    ffi::{CStr, OsStr},
    os::fd::{AsRawFd, BorrowedFd, OwnedFd},
    path::PathBuf,
};

use rustix::{
    fs::{
        self, AtFlags, CWD, FallocateFlags, FileType, Gid, Mode, OFlags, RenameFlags, Timestamps,
        Uid, XattrFlags,
    },
    io::{self, Errno},
};

/// The result of a call.
pub(crate) type Io<T> = std::result::Result<T, Errno>;

/// What a flush covers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Flush {
    /// Content and size.
    Data,
    /// Attributes too, and names where the file system takes them along.
    All,
}

/// The calls; see the module for their contract. Descriptors of objects may be `O_PATH` for
/// `chmod`, `chown`, `set_xattr` and `set_times`.
pub(crate) trait Disk {
    fn write(&self, file: BorrowedFd<'_>, bytes: &[u8], offset: u64) -> Io<usize>;
    fn resize(&self, file: BorrowedFd<'_>, size: u64) -> Io<()>;
    fn punch(&self, file: BorrowedFd<'_>, offset: u64, length: u64) -> Io<()>;
    fn reserve(&self, file: BorrowedFd<'_>, size: u64) -> Io<()>;
    fn flush(&self, file: BorrowedFd<'_>, what: Flush) -> Io<()>;
    fn flush_fs(&self, dir: BorrowedFd<'_>) -> Io<()>;
    /// A new regular file, open for reading and writing.
    fn create(&self, dir: BorrowedFd<'_>, name: &OsStr, mode: u32) -> Io<OwnedFd>;
    /// A new regular file without a name in the file system of `dir` (`O_TMPFILE`).
    fn unnamed(&self, dir: BorrowedFd<'_>, mode: u32) -> Io<OwnedFd>;
    /// Gives an unnamed file its first name.
    fn bind(&self, file: BorrowedFd<'_>, dir: BorrowedFd<'_>, name: &OsStr) -> Io<()>;
    fn mkdir(&self, dir: BorrowedFd<'_>, name: &OsStr, mode: u32) -> Io<()>;
    fn symlink(&self, target: &CStr, dir: BorrowedFd<'_>, name: &OsStr) -> Io<()>;
    fn mknod(&self, dir: BorrowedFd<'_>, name: &OsStr, kind: FileType, device: u64) -> Io<()>;
    fn link(&self, from: Name<'_>, to: Name<'_>) -> Io<()>;
    fn rename(&self, from: Name<'_>, to: Name<'_>, flags: RenameFlags) -> Io<()>;
    fn unlink(&self, at: Name<'_>, flags: AtFlags) -> Io<()>;
    fn chmod(&self, object: BorrowedFd<'_>, perm: u32) -> Io<()>;
    fn chown(&self, object: BorrowedFd<'_>, uid: u32, gid: u32) -> Io<()>;
    fn set_xattr(&self, object: BorrowedFd<'_>, name: &CStr, value: Option<&[u8]>) -> Io<()>;
    fn set_times(&self, object: BorrowedFd<'_>, times: &Timestamps) -> Io<()>;
}

/// A name in an open directory.
#[derive(Clone, Copy)]
pub(crate) struct Name<'a> {
    pub dir: BorrowedFd<'a>,
    pub name: &'a OsStr,
}

/// The disk as the kernel shows it.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Kernel;

/// What the store changes disks with.
#[cfg(not(test))]
pub(crate) fn disk() -> Kernel {
    Kernel
}

#[cfg(test)]
pub(crate) use super::watch::disk;

/// The magic link that leads to the object itself for calls that take only paths.
pub(super) fn magic(fd: BorrowedFd<'_>) -> PathBuf {
    PathBuf::from(format!("/proc/self/fd/{}", fd.as_raw_fd()))
}

const OWN: Mode = Mode::RUSR.union(Mode::WUSR);

impl Disk for Kernel {
    fn write(&self, file: BorrowedFd<'_>, bytes: &[u8], offset: u64) -> Io<usize> {
        io::pwrite(file, bytes, offset)
    }

    fn resize(&self, file: BorrowedFd<'_>, size: u64) -> Io<()> {
        io::retry_on_intr(|| fs::ftruncate(file, size))
    }

    fn punch(&self, file: BorrowedFd<'_>, offset: u64, length: u64) -> Io<()> {
        let flags = FallocateFlags::PUNCH_HOLE | FallocateFlags::KEEP_SIZE;
        fs::fallocate(file, flags, offset, length)
    }

    fn reserve(&self, file: BorrowedFd<'_>, size: u64) -> Io<()> {
        fs::fallocate(file, FallocateFlags::empty(), 0, size)
    }

    fn flush(&self, file: BorrowedFd<'_>, what: Flush) -> Io<()> {
        match what {
            Flush::Data => fs::fdatasync(file),
            Flush::All => fs::fsync(file),
        }
    }

    fn flush_fs(&self, dir: BorrowedFd<'_>) -> Io<()> {
        fs::syncfs(dir)
    }

    fn create(&self, dir: BorrowedFd<'_>, name: &OsStr, mode: u32) -> Io<OwnedFd> {
        let flags =
            OFlags::RDWR | OFlags::CREATE | OFlags::EXCL | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        fs::openat(dir, name, flags, Mode::from_raw_mode(mode))
    }

    fn unnamed(&self, dir: BorrowedFd<'_>, mode: u32) -> Io<OwnedFd> {
        let flags = OFlags::RDWR | OFlags::TMPFILE | OFlags::CLOEXEC;
        fs::openat(dir, c".", flags, Mode::from_raw_mode(mode))
    }

    fn bind(&self, file: BorrowedFd<'_>, dir: BorrowedFd<'_>, name: &OsStr) -> Io<()> {
        match fs::linkat(file, c"", dir, name, AtFlags::EMPTY_PATH) {
            // Before Linux 6.10 only with CAP_DAC_READ_SEARCH (linkat(2)); or there is no directory.
            Err(Errno::NOENT) => fs::linkat(CWD, magic(file), dir, name, AtFlags::SYMLINK_FOLLOW),
            other => other,
        }
    }

    fn mkdir(&self, dir: BorrowedFd<'_>, name: &OsStr, mode: u32) -> Io<()> {
        fs::mkdirat(dir, name, Mode::from_raw_mode(mode))
    }

    fn symlink(&self, target: &CStr, dir: BorrowedFd<'_>, name: &OsStr) -> Io<()> {
        fs::symlinkat(target, dir, name)
    }

    fn mknod(&self, dir: BorrowedFd<'_>, name: &OsStr, kind: FileType, device: u64) -> Io<()> {
        fs::mknodat(dir, name, kind, OWN, device)
    }

    fn link(&self, from: Name<'_>, to: Name<'_>) -> Io<()> {
        fs::linkat(from.dir, from.name, to.dir, to.name, AtFlags::empty())
    }

    fn rename(&self, from: Name<'_>, to: Name<'_>, flags: RenameFlags) -> Io<()> {
        fs::renameat_with(from.dir, from.name, to.dir, to.name, flags)
    }

    fn unlink(&self, at: Name<'_>, flags: AtFlags) -> Io<()> {
        fs::unlinkat(at.dir, at.name, flags)
    }

    fn chmod(&self, object: BorrowedFd<'_>, perm: u32) -> Io<()> {
        fs::chmod(magic(object), Mode::from_raw_mode(perm))
    }

    fn chown(&self, object: BorrowedFd<'_>, uid: u32, gid: u32) -> Io<()> {
        let (uid, gid) = (Uid::from_raw(uid), Gid::from_raw(gid));
        fs::chownat(object, c"", Some(uid), Some(gid), AtFlags::EMPTY_PATH)
    }

    fn set_xattr(&self, object: BorrowedFd<'_>, name: &CStr, value: Option<&[u8]>) -> Io<()> {
        match value {
            Some(value) => fs::setxattr(magic(object), name, value, XattrFlags::empty()),
            None => match fs::removexattr(magic(object), name) {
                Err(Errno::NODATA) => Ok(()),
                other => other,
            },
        }
    }

    fn set_times(&self, object: BorrowedFd<'_>, times: &Timestamps) -> Io<()> {
        fs::utimensat(object, c"", times, AtFlags::EMPTY_PATH)
    }
}

/// Writes all of `bytes` at `offset`, however short the single writes come out.
pub(crate) fn write_all(file: impl rustix::fd::AsFd, mut bytes: &[u8], mut offset: u64) -> Io<()> {
    while !bytes.is_empty() {
        match disk().write(file.as_fd(), bytes, offset) {
            Ok(0) => return Err(Errno::IO),
            Ok(count) => {
                bytes = &bytes[count.min(bytes.len())..];
                offset += count as u64;
            }
            Err(Errno::INTR) => {}
            Err(errno) => return Err(errno),
        }
    }
    Ok(())
}

/// Flushes, also when a signal interrupts it: an interrupted flush is repeated, a failed one is not.
pub(crate) fn flush_open(file: impl rustix::fd::AsFd, what: Flush) -> Io<()> {
    io::retry_on_intr(|| disk().flush(file.as_fd(), what))
}
