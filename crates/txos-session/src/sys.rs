//! The calls for which no safe wrapper exists.
#![allow(unsafe_code)] // signals with what came with them, threads by descriptor

use std::os::fd::{AsRawFd, BorrowedFd, FromRawFd, OwnedFd};

use rustix::io::Errno;
use txos_protocol::RUNG;

/// The bytes of a `siginfo_t` (sigaction(2)).
pub(crate) type Info = [u8; size_of::<libc::siginfo_t>()];

fn last() -> Errno {
    Errno::from_io_error(&std::io::Error::last_os_error()).unwrap_or(Errno::IO)
}

/// A descriptor for one thread (`PIDFD_THREAD`, Linux 6.9); before, only for a process's first.
pub(crate) fn open_thread(task: i32) -> Result<OwnedFd, Errno> {
    for flags in [libc::O_EXCL, 0] {
        // SAFETY: plain numbers.
        let fd = unsafe { libc::syscall(libc::SYS_pidfd_open, task, flags) };
        if fd >= 0 {
            // SAFETY: the kernel just made it for us.
            return Ok(unsafe { OwnedFd::from_raw_fd(fd as i32) });
        }
    }
    Err(last())
}

/// The device of captures (`/dev/fuse`): its numbers, in Linux's list of devices.
const FUSE: (u32, u32) = (10, 229);

/// Gives the calling thread a table of descriptors of its own, with standard input, output and error, and what is to
/// be kept: each at its number. The caller uses no other in this thread but what it opens there from now on.
pub(crate) fn keep_only(kept: &[BorrowedFd<'_>]) -> Result<(), Errno> {
    use rustix::{
        fs::{AtFlags, Dir, FileType, Mode, OFlags, StatxFlags, open, statx},
        thread::{UnshareFlags, unshare_unsafe},
    };
    // SAFETY: whoever owns a descriptor finds it at its number, in either table.
    unsafe { unshare_unsafe(UnshareFlags::FILES) }?;
    let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
    let mut table = Dir::new(open("/proc/thread-self/fd", flags, Mode::empty())?)?;
    let mut stay = vec![libc::STDIN_FILENO, libc::STDOUT_FILENO, libc::STDERR_FILENO];
    stay.push(table.fd()?.as_raw_fd());
    stay.extend(kept.iter().map(AsRawFd::as_raw_fd));
    let mut others = Vec::new();
    for entry in &mut table {
        let number = entry?.file_name().to_str().ok().and_then(|name| name.parse::<i32>().ok());
        others.extend(number.filter(|number| !stay.contains(number)));
    }
    // The devices of captures first: to close a file of a view may ask one, and wait; so might a plain look at it.
    let look = AtFlags::EMPTY_PATH | AtFlags::STATX_DONT_SYNC;
    others.sort_by_cached_key(|number| {
        // SAFETY: it is open, as the list says, and closed by nobody else: the table is this thread's own.
        let about = statx(unsafe { BorrowedFd::borrow_raw(*number) }, "", look, StatxFlags::TYPE);
        !about.is_ok_and(|about| {
            FileType::from_raw_mode(about.stx_mode.into()) == FileType::CharacterDevice
                && (about.stx_rdev_major, about.stx_rdev_minor) == FUSE
        })
    });
    for number in others {
        // SAFETY: the owner's descriptor is in another table; nothing uses this copy, as the caller sees to.
        unsafe { libc::close(number) };
    }
    Ok(())
}

/// Sends a signal, with what its sender gave along (pidfd_send_signal(2)).
pub(crate) fn send_signal(to: &OwnedFd, signal: i32, info: Option<&Info>) -> Result<(), Errno> {
    let info = info.map_or(std::ptr::null(), |info| info.as_ptr());
    // SAFETY: the pointer is null, or to the bytes of a `siginfo_t`, which the kernel copies and checks.
    let sent =
        unsafe { libc::syscall(libc::SYS_pidfd_send_signal, to.as_raw_fd(), signal, info, 0) };
    if sent == 0 { Ok(()) } else { Err(last()) }
}

/// Tells a process that its transaction has lost: see [`txos_protocol::RUNG`].
pub(crate) fn ring(process: &OwnedFd) -> Result<(), Errno> {
    let sender = rustix::process::getpid().as_raw_pid();
    let user = rustix::process::getuid().as_raw();
    // As sigqueue(3) fills a `siginfo_t` in: number, error, code, a gap, sender, user, value.
    let numbers = [libc::SIGURG, 0, libc::SI_QUEUE, 0, sender, user.cast_signed()];
    let mut info: Info = [0; _];
    let bytes = numbers.iter().flat_map(|number| number.to_ne_bytes()).chain(RUNG.to_ne_bytes());
    info.iter_mut().zip(bytes).for_each(|(to, byte)| *to = byte);
    send_signal(process, libc::SIGURG, Some(&info))
}
