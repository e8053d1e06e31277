//! The system calls that rustix does not wrap: fork, seccomp, fanotify, leases, Landlock.
#![allow(unsafe_code)] // Reason: raw system calls; each wrapper below is safe to call.

use std::os::fd::{AsFd, AsRawFd, FromRawFd, OwnedFd, RawFd};
use std::path::Path;

use rustix::ffi::CString;
use rustix::io::Errno;
use rustix::process::Pid;
use rustix::thread::UnshareFlags;

fn checked(result: libc::c_long) -> rustix::io::Result<libc::c_long> {
    if result < 0 {
        let errno = std::io::Error::last_os_error().raw_os_error().unwrap_or(libc::EIO);
        return Err(Errno::from_raw_os_error(errno));
    }
    Ok(result)
}

fn owned(result: libc::c_long) -> rustix::io::Result<OwnedFd> {
    let fd = RawFd::try_from(checked(result)?).map_err(|_| Errno::BADF)?;
    // SAFETY: the kernel has just returned this descriptor to us, nothing else owns it.
    Ok(unsafe { OwnedFd::from_raw_fd(fd) })
}

/// fork(2): `None` in the child.
pub(crate) fn fork() -> rustix::io::Result<Option<Pid>> {
    // SAFETY: glibc keeps its allocator usable in the child; `child` runs nothing there that waits
    // for a lock of another thread, and leaves with `exit_now`.
    let pid = checked(unsafe { libc::c_long::from(libc::fork()) })?;
    Ok(i32::try_from(pid).ok().and_then(Pid::from_raw))
}

/// _exit(2): ends the process without running destructors or exit handlers.
pub(crate) fn exit_now() -> ! {
    // SAFETY: has no precondition and does not return.
    unsafe { libc::_exit(0) }
}

/// unshare(2), only for processes that share their descriptor table with nobody.
pub(crate) fn unshare(flags: UnshareFlags) -> rustix::io::Result<()> {
    // SAFETY: called in forked children with one thread; CLONE_FILES is never among the flags.
    unsafe { rustix::thread::unshare_unsafe(flags) }
}

/// A new fanotify group: directory entry events with names and, where asked, a pidfd.
pub(crate) fn fanotify_init(flags: libc::c_uint) -> rustix::io::Result<OwnedFd> {
    // SAFETY: takes numbers only.
    owned(unsafe { libc::c_long::from(libc::fanotify_init(flags, libc::O_RDONLY as libc::c_uint)) })
}

/// fanotify_mark(2) with FAN_MARK_ADD and these flags.
pub(crate) fn fanotify_add(
    group: impl AsFd,
    flags: libc::c_uint,
    mask: u64,
    path: &Path,
) -> rustix::io::Result<()> {
    let path = CString::new(path.as_os_str().as_encoded_bytes()).map_err(|_| Errno::INVAL)?;
    let group = group.as_fd().as_raw_fd();
    let flags = libc::FAN_MARK_ADD | flags;
    // SAFETY: `path` is a NUL-terminated string that lives through the call.
    let result = unsafe { libc::fanotify_mark(group, flags, mask, libc::AT_FDCWD, path.as_ptr()) };
    checked(libc::c_long::from(result)).map(drop)
}

/// Takes a read lease on a file opened for reading, and gives it back: fcntl(2), F_SETLEASE.
pub(crate) fn try_read_lease(file: impl AsFd) -> rustix::io::Result<()> {
    let fd = file.as_fd().as_raw_fd();
    for kind in [libc::F_RDLCK, libc::F_UNLCK] {
        // SAFETY: takes numbers only; the descriptor is open.
        let result = unsafe { libc::fcntl(fd, libc::F_SETLEASE, libc::c_int::from(kind as i16)) };
        checked(libc::c_long::from(result))?;
    }
    Ok(())
}

/// The version of Landlock's interface: landlock_create_ruleset(2).
pub(crate) fn landlock_version() -> rustix::io::Result<i64> {
    const CREATE_RULESET_VERSION: libc::c_uint = 1;
    let none = std::ptr::null::<libc::c_void>();
    // SAFETY: a null attribute of size 0 with this flag only asks for the version.
    checked(unsafe {
        libc::syscall(libc::SYS_landlock_create_ruleset, none, 0usize, CREATE_RULESET_VERSION)
    })
}

/// Sends each later getppid(2) of this process and its children to the returned listener:
/// seccomp(2), SECCOMP_FILTER_FLAG_NEW_LISTENER.
pub(crate) fn notify_of_getppid() -> rustix::io::Result<OwnedFd> {
    let op = |code: u32, jt: u8, jf: u8, k: u32| libc::sock_filter { code: code as u16, jt, jf, k };
    let getppid = u32::try_from(libc::SYS_getppid).map_err(|_| Errno::NOSYS)?;
    let mut program = [
        // seccomp_data.nr is its first field.
        op(libc::BPF_LD | libc::BPF_W | libc::BPF_ABS, 0, 0, 0),
        op(libc::BPF_JMP | libc::BPF_JEQ | libc::BPF_K, 0, 1, getppid),
        op(libc::BPF_RET | libc::BPF_K, 0, 0, libc::SECCOMP_RET_USER_NOTIF),
        op(libc::BPF_RET | libc::BPF_K, 0, 0, libc::SECCOMP_RET_ALLOW),
    ];
    let filter = libc::sock_fprog { len: program.len() as u16, filter: program.as_mut_ptr() };
    // SAFETY: takes numbers only; lets an unprivileged process install the filter.
    checked(libc::c_long::from(unsafe { libc::prctl(libc::PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) }))?;
    // SAFETY: `filter` points to `program`, both live through the call, the kernel copies them.
    owned(unsafe {
        libc::syscall(
            libc::SYS_seccomp,
            libc::SECCOMP_SET_MODE_FILTER,
            libc::SECCOMP_FILTER_FLAG_NEW_LISTENER,
            &raw const filter,
        )
    })
}

/// Asks that a notification's answer wakes its task on the server's processor
/// (SECCOMP_USER_NOTIF_FD_SYNC_WAKE_UP, Linux 6.6).
pub(crate) fn notify_sync_wake_up(listener: impl AsFd) -> rustix::io::Result<()> {
    const SYNC_WAKE_UP: u64 = 1;
    let fd = listener.as_fd().as_raw_fd();
    // SAFETY: this request takes its 64-bit argument by value.
    let result = unsafe { libc::ioctl(fd, libc::SECCOMP_IOCTL_NOTIF_SET_FLAGS as _, SYNC_WAKE_UP) };
    checked(libc::c_long::from(result)).map(drop)
}

/// Takes one notification and lets its call go on. Blocks until there is one.
pub(crate) fn notify_answer_one(listener: impl AsFd) -> rustix::io::Result<()> {
    const CONTINUE: u32 = 1;
    let fd = listener.as_fd().as_raw_fd();
    // SAFETY: an all-zero seccomp_notif is valid, and what the kernel demands.
    let mut request: libc::seccomp_notif = unsafe { std::mem::zeroed() };
    // SAFETY: `request` is a writable seccomp_notif, as this request wants.
    let result = unsafe { libc::ioctl(fd, libc::SECCOMP_IOCTL_NOTIF_RECV as _, &raw mut request) };
    checked(libc::c_long::from(result))?;
    let mut answer = libc::seccomp_notif_resp { id: request.id, val: 0, error: 0, flags: CONTINUE };
    // SAFETY: `answer` is a seccomp_notif_resp, as this request wants.
    let result = unsafe { libc::ioctl(fd, libc::SECCOMP_IOCTL_NOTIF_SEND as _, &raw mut answer) };
    checked(libc::c_long::from(result)).map(drop)
}

/// getppid(2) itself, past any cache of the C library.
pub(crate) fn raw_getppid() {
    // SAFETY: has no argument and cannot fail.
    unsafe { libc::syscall(libc::SYS_getppid) };
}
