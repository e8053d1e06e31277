//! The few calls for which no safe wrapper exists. All are made in the single-threaded
//! `__enter` process and its children.
#![allow(unsafe_code)]

use std::{
    io,
    os::{
        fd::{AsRawFd, BorrowedFd, FromRawFd, OwnedFd},
        unix::process::CommandExt,
    },
    process::Command,
};

use rustix::{io::Errno, thread::UnshareFlags};

use crate::SignalState;

fn last_errno() -> Errno {
    Errno::from_io_error(&std::io::Error::last_os_error()).unwrap_or(Errno::IO)
}

/// Which side of a [`fork`] this is.
pub(crate) enum Forked {
    /// The new process.
    Child,
    /// The old process, with the pid of the child.
    Parent(i32),
}

/// `fork(2)`. The calling process must have one thread only.
pub(crate) fn fork() -> Result<Forked, Errno> {
    // SAFETY: the caller has a single thread, so the child finds every lock free and may run any
    // code; nothing is shared that a copy would break.
    match unsafe { libc::fork() } {
        -1 => Err(last_errno()),
        0 => Ok(Forked::Child),
        pid => Ok(Forked::Parent(pid)),
    }
}

/// `unshare(2)` for namespaces; never the descriptor table.
pub(crate) fn unshare(flags: UnshareFlags) -> Result<(), Errno> {
    debug_assert!(!flags.contains(UnshareFlags::FILES));
    // SAFETY: the descriptor table stays shared as it was, which is all that can be unsound here.
    unsafe { rustix::thread::unshare_unsafe(flags) }
}

/// A descriptor that becomes readable when a child ends (`signalfd(2)`); blocks `SIGCHLD`.
pub(crate) fn child_events() -> Result<OwnedFd, Errno> {
    // SAFETY: the set is initialised by sigemptyset before use, and outlives the calls.
    let fd = unsafe {
        let mut set = std::mem::zeroed();
        libc::sigemptyset(&mut set);
        libc::sigaddset(&mut set, libc::SIGCHLD);
        if libc::sigprocmask(libc::SIG_BLOCK, &set, std::ptr::null_mut()) != 0 {
            return Err(last_errno());
        }
        libc::signalfd(-1, &set, libc::SFD_CLOEXEC | libc::SFD_NONBLOCK)
    };
    if fd < 0 {
        return Err(last_errno());
    }
    // SAFETY: the kernel just made this descriptor for us.
    Ok(unsafe { OwnedFd::from_raw_fd(fd) })
}

/// Executes `command` in this process, with `signals` as its signal state; returns only if that fails.
pub(crate) fn execute(command: &mut Command, signals: SignalState) -> io::Error {
    // SAFETY: this process has one thread, and the function makes system calls only.
    unsafe { command.pre_exec(move || signals.restore().map_err(io::Error::from)) };
    command.exec()
}

/// Makes the mount at an open directory, and all below it, read-only (`mount_setattr(2)`).
pub(crate) fn read_only_recursively(at: BorrowedFd<'_>) -> Result<(), Errno> {
    let attr = libc::mount_attr {
        attr_set: libc::MOUNT_ATTR_RDONLY,
        attr_clr: 0,
        propagation: 0,
        userns_fd: 0,
    };
    // SAFETY: the path is a static C string, the struct is valid and its size is passed.
    let result = unsafe {
        libc::syscall(
            libc::SYS_mount_setattr,
            at.as_raw_fd(),
            c"".as_ptr(),
            libc::AT_EMPTY_PATH | libc::AT_RECURSIVE,
            &attr,
            size_of::<libc::mount_attr>(),
        )
    };
    if result == 0 { Ok(()) } else { Err(last_errno()) }
}

/// Borrows a descriptor that `/proc/self/fd` has just listed.
pub(crate) fn borrow(fd: i32) -> BorrowedFd<'static> {
    // SAFETY: the descriptor is not negative; if it was closed meanwhile, calls on it fail with
    // EBADF, and in this single-threaded process nothing else can take its number.
    unsafe { BorrowedFd::borrow_raw(fd) }
}

/// Brings the loopback interface of the calling process's network namespace up, so that processes in
/// it reach one another (netdevice(7), `SIOCSIFFLAGS`).
pub(crate) fn loopback_up() -> Result<(), Errno> {
    use rustix::net::{AddressFamily, SocketFlags, SocketType, socket_with};
    let socket = socket_with(AddressFamily::INET, SocketType::DGRAM, SocketFlags::CLOEXEC, None)?;
    // SAFETY: all fields are integers or bytes, for which zero is a value.
    let mut request: libc::ifreq = unsafe { std::mem::zeroed() };
    for (to, from) in request.ifr_name.iter_mut().zip(b"lo") {
        *to = *from as libc::c_char;
    }
    request.ifr_ifru.ifru_flags = (libc::IFF_UP | libc::IFF_RUNNING) as libc::c_short;
    // SAFETY: the argument is a valid `struct ifreq` that outlives the call.
    match unsafe { libc::ioctl(socket.as_raw_fd(), libc::SIOCSIFFLAGS, &raw const request) } {
        0 => Ok(()),
        _ => Err(last_errno()),
    }
}
