use std::{
    os::fd::{AsFd, AsRawFd, OwnedFd},
    path::Path,
};

use rustix::{
    fs::{FileType, Mode, OFlags, fstat, open},
    io::Errno,
};

/// Whether someone can change the content of a file without moving its change time any more.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum WriterProbe {
    /// Nobody has the file open or mapped for writing.
    Quiet,
    /// Someone has, or the kernel does not tell (no leases on this file system, or not for this
    /// caller): only the content itself is proof.
    Unproven,
}

/// Asks for a read lease on an open file and gives it back at once (`fcntl(2)`, `F_SETLEASE`).
///
/// The kernel grants an `F_RDLCK` lease only while nobody has the file open for writing, and a
/// writable shared mapping holds it open. `file` must be open for reading only.
pub fn probe_writers(file: impl AsFd) -> WriterProbe {
    match set_lease(file.as_fd().as_raw_fd(), libc::F_RDLCK) {
        Ok(()) => match set_lease(file.as_fd().as_raw_fd(), libc::F_UNLCK) {
            Ok(()) => WriterProbe::Quiet,
            Err(_) => WriterProbe::Unproven,
        },
        Err(_) => WriterProbe::Unproven,
    }
}

/// A read lease on a file, until it is dropped: who opens it for writing, or truncates it, waits in
/// the kernel that long, but no longer than `/proc/sys/fs/lease-break-time` (45 s, as a rule).
/// Renaming, removing and changing attributes wait for nothing.
#[derive(Debug)]
pub struct Lease {
    // Closing it gives the lease back: nobody else has this open file.
    _file: OwnedFd,
}

impl Lease {
    /// Takes one on the regular file at `path`, through no symbolic link in the last place. The
    /// caller has called [`ignore_lease_breaks`].
    ///
    /// # Errors
    /// `EAGAIN` if somebody has the file open for writing; `EACCES` if it belongs to another user
    /// (and the caller has no `CAP_LEASE`); `EINVAL` if it is no regular file, or its file system has
    /// no leases; as `open(2)`.
    pub fn take(path: &Path) -> Result<Lease, Errno> {
        // Without waiting: for the other end of a FIFO, or for somebody else's lease.
        let flags = OFlags::RDONLY | OFlags::NONBLOCK | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        let file = open(path, flags | OFlags::NOCTTY, Mode::empty())?;
        if FileType::from_raw_mode(fstat(&file)?.st_mode) != FileType::RegularFile {
            return Err(Errno::INVAL);
        }
        set_lease(file.as_raw_fd(), libc::F_RDLCK)?;
        Ok(Lease { _file: file })
    }
}

#[allow(unsafe_code)] // rustix has no F_SETLEASE
fn set_lease(fd: i32, kind: i32) -> Result<(), Errno> {
    // SAFETY: F_SETLEASE takes an integer argument and touches no memory of this process; an
    // invalid descriptor is an error, not undefined behaviour.
    match unsafe { libc::fcntl(fd, libc::F_SETLEASE, kind) } {
        -1 => Err(Errno::from_io_error(&std::io::Error::last_os_error()).unwrap_or(Errno::IO)),
        _ => Ok(()),
    }
}

/// Makes this process ignore `SIGIO`, which the kernel sends to the holder of a lease that has to
/// break, and which ends a process that neither handles nor ignores it.
///
/// Whoever calls [`probe_writers`] calls this first: between granting and returning a lease
/// someone may open the file.
#[allow(unsafe_code)] // rustix has no signal dispositions
pub fn ignore_lease_breaks() {
    // SAFETY: ignoring a signal installs no handler, so nothing runs in signal context. SIGIO is
    // a valid signal that may be ignored; the call cannot fail.
    unsafe { libc::signal(libc::SIGIO, libc::SIG_IGN) };
}
