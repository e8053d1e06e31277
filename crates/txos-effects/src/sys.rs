//! The system calls that rustix does not wrap: seccomp(2) and its listener, and a few more.
//!
//! All of this crate's unsafe code is in this file. Each function takes and gives owned or borrowed
//! descriptors and plain values; nothing here keeps a pointer.
#![allow(unsafe_code, reason = "seccomp and its listener have no safe wrapper")]

use crate::filter::bpf::Insn;
use rustix::fd::{AsFd, AsRawFd, BorrowedFd, FromRawFd, OwnedFd, RawFd};
use rustix::ioctl::{self, Opcode};
use rustix::process::PidfdFlags;
use std::io;
use std::mem;

const NOTIF_RECV: Opcode = libc::SECCOMP_IOCTL_NOTIF_RECV as Opcode;
const NOTIF_SEND: Opcode = libc::SECCOMP_IOCTL_NOTIF_SEND as Opcode;
const NOTIF_ID_VALID: Opcode = libc::SECCOMP_IOCTL_NOTIF_ID_VALID as Opcode;
const NOTIF_SET_FLAGS: Opcode = libc::SECCOMP_IOCTL_NOTIF_SET_FLAGS as Opcode;
/// `SECCOMP_USER_NOTIF_FD_SYNC_WAKE_UP`, Linux 6.6.
const SYNC_WAKE_UP: u64 = 1;
const MAX_PROGRAM: usize = 4096;

/// Installs a filter with a listener for the calling thread.
///
/// Asked for where the kernel has it: a signal does not interrupt a call that the supervisor has
/// taken up already (`WAIT_KILLABLE_RECV`, Linux 5.19). The speculation mitigations that a filter
/// brought with it before Linux 5.16 are declined: the filter is no barrier between secrets.
pub fn seccomp_install(program: &[Insn]) -> io::Result<OwnedFd> {
    let mut filter: Vec<libc::sock_filter> = program
        .iter()
        .map(|i| libc::sock_filter { code: i.code, jt: i.jt, jf: i.jf, k: i.k })
        .collect();
    if filter.len() > MAX_PROGRAM {
        return Err(io::ErrorKind::InvalidInput.into());
    }
    let fprog =
        libc::sock_fprog { len: filter.len() as libc::c_ushort, filter: filter.as_mut_ptr() };
    let listener = libc::SECCOMP_FILTER_FLAG_NEW_LISTENER | libc::SECCOMP_FILTER_FLAG_SPEC_ALLOW;
    for flags in [listener | libc::SECCOMP_FILTER_FLAG_WAIT_KILLABLE_RECV, listener] {
        // SAFETY: `fprog` and the instructions that it points to live across the call, and the
        // kernel copies and checks them; the call touches no other memory.
        let fd = unsafe {
            libc::syscall(libc::SYS_seccomp, libc::SECCOMP_SET_MODE_FILTER, flags, &raw const fprog)
        };
        if fd >= 0 {
            // SAFETY: the kernel has just made this descriptor for us; nobody else knows it.
            return Ok(unsafe { OwnedFd::from_raw_fd(fd as i32) });
        }
        let error = io::Error::last_os_error();
        if error.raw_os_error() != Some(libc::EINVAL) {
            return Err(error);
        }
    }
    Err(io::Error::last_os_error())
}

/// A call that waits for its answer.
#[derive(Debug, Clone, Copy)]
pub struct Notified {
    /// Cookie of the request.
    pub id: u64,
    /// Thread that made the call, in the reader's pid namespace; 0 when it is not visible there.
    pub pid: u32,
    /// The way in which it is made (`AUDIT_ARCH_*`).
    pub arch: u32,
    /// Call number.
    pub nr: u32,
    /// Its registers.
    pub args: [u64; 6],
}

/// Takes the next request. `ENOENT` when its maker has gone meanwhile.
pub fn notif_recv(listener: BorrowedFd<'_>) -> rustix::io::Result<Notified> {
    // SAFETY: all fields are integers, for which zero is a value; the kernel wants zeroes.
    let mut notif: libc::seccomp_notif = unsafe { mem::zeroed() };
    // SAFETY: the opcode's argument is a `seccomp_notif` that the kernel fills; ours outlives the
    // call.
    unsafe {
        ioctl::ioctl(listener, ioctl::Updater::<NOTIF_RECV, libc::seccomp_notif>::new(&mut notif))?;
    }
    let data = notif.data;
    Ok(Notified {
        id: notif.id,
        pid: notif.pid,
        arch: data.arch,
        nr: data.nr as u32,
        args: data.args,
    })
}

/// How a request is answered.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Answer {
    /// The call returns this value.
    Value(i64),
    /// The call fails with this (positive) error number.
    Errno(i32),
    /// The call is made.
    Proceed,
}

/// Answers a request. `ENOENT` when its maker has gone meanwhile.
pub fn notif_send(listener: BorrowedFd<'_>, id: u64, answer: Answer) -> rustix::io::Result<()> {
    let (val, error, flags) = match answer {
        Answer::Value(value) => (value, 0, 0),
        Answer::Errno(errno) => (0, -errno, 0),
        Answer::Proceed => (0, 0, libc::SECCOMP_USER_NOTIF_FLAG_CONTINUE as u32),
    };
    let mut response = libc::seccomp_notif_resp { id, val, error, flags };
    // SAFETY: the opcode's argument is a `seccomp_notif_resp` that outlives the call.
    unsafe {
        ioctl::ioctl(
            listener,
            ioctl::Updater::<NOTIF_SEND, libc::seccomp_notif_resp>::new(&mut response),
        )
    }
}

/// Whether the request still waits, so that what was read from its maker's memory was really its.
pub fn notif_valid(listener: BorrowedFd<'_>, id: u64) -> bool {
    // SAFETY: the opcode's argument is a pointer to a `u64` that outlives the call.
    unsafe { ioctl::ioctl(listener, ioctl::Setter::<NOTIF_ID_VALID, u64>::new(id)).is_ok() }
}

/// Lets the two sides wake each other on one processor. `false` before Linux 6.6.
pub fn notif_sync_wake_up(listener: BorrowedFd<'_>) -> bool {
    // SAFETY: the argument of this opcode is the flag word itself, an integer.
    let set = unsafe { ioctl::IntegerSetter::<NOTIF_SET_FLAGS>::new_usize(SYNC_WAKE_UP as usize) };
    // SAFETY: as above; no memory is passed.
    unsafe { ioctl::ioctl(listener, set).is_ok() }
}

/// Size of a `siginfo_t` in bytes.
pub const INFO_SIZE: usize = mem::size_of::<libc::siginfo_t>();

/// `PIDFD_THREAD` of pidfd_open(2), Linux 6.9.
pub const OF_THREAD: PidfdFlags = PidfdFlags::from_bits_retain(libc::O_EXCL as u32);

/// Sends a signal to the process of a pidfd, or to its thread alone (pidfd_send_signal(2)); every number,
/// real-time ones too. With `info` as its sender gave it.
pub fn send_signal(
    process: BorrowedFd<'_>,
    thread: bool,
    signal: i32,
    info: Option<&[u8; INFO_SIZE]>,
) -> io::Result<()> {
    /// As the descriptor says, or `PIDFD_SIGNAL_THREAD` (Linux 6.9).
    const TO: [libc::c_uint; 2] = [0, 1];
    // SAFETY: the kernel reads `INFO_SIZE` bytes where a pointer is given, which outlive the call; without
    // one it fills in what kill(2) or tgkill(2) would.
    let sent = unsafe {
        libc::syscall(
            libc::SYS_pidfd_send_signal,
            process.as_raw_fd(),
            signal,
            info.map_or(std::ptr::null(), |info| info.as_ptr()),
            TO[usize::from(thread)],
        )
    };
    if sent == 0 { Ok(()) } else { Err(io::Error::last_os_error()) }
}

/// Size of `struct timex` in bytes.
pub const TIMEX_SIZE: usize = mem::size_of::<libc::timex>();

/// Reads the state of a clock into the bytes of a `struct timex`; `modes` must be one that only
/// reads. Returns the clock's state. Source: clock_adjtime(2).
pub fn clock_read(clock: i32, modes: u32, bytes: &mut [u8; TIMEX_SIZE]) -> io::Result<i64> {
    // SAFETY: all fields are integers, for which zero is a value.
    let mut timex: libc::timex = unsafe { mem::zeroed() };
    timex.modes = modes;
    // SAFETY: `timex` is a valid `struct timex` that outlives the call.
    let state = unsafe { libc::clock_adjtime(clock, &raw mut timex) };
    if state < 0 {
        return Err(io::Error::last_os_error());
    }
    // SAFETY: `timex` was zeroed whole, padding too, and is read as bytes of its exact size.
    *bytes = unsafe { mem::transmute::<libc::timex, [u8; TIMEX_SIZE]>(timex) };
    Ok(i64::from(state))
}

/// Whether two descriptors of this process are one open file description (`KCMP_FILE`). `None`
/// where the kernel does not tell.
pub fn same_description(a: impl AsFd, b: impl AsFd) -> Option<bool> {
    const KCMP_FILE: i32 = 0;
    let pid = rustix::process::getpid().as_raw_nonzero().get();
    let (a, b) = (a.as_fd().as_raw_fd(), b.as_fd().as_raw_fd());
    // SAFETY: kcmp takes integers only.
    let order = unsafe { libc::syscall(libc::SYS_kcmp, pid, pid, KCMP_FILE, a, b) };
    (order >= 0).then_some(order == 0)
}

/// Has `then` called when the process exits by `exit(3)`. `false` when there is no room.
pub fn at_exit(then: extern "C" fn()) -> bool {
    // SAFETY: `then` is a plain function that lives as long as the program.
    unsafe { libc::atexit(then) == 0 }
}

/// Marks every descriptor from 3 on to be closed on exec. Source: close_range(2), Linux 5.11.
pub fn close_on_exec_from_3() -> io::Result<()> {
    const CLOSE_RANGE_CLOEXEC: libc::c_uint = 4;
    // SAFETY: the call takes integers and changes one flag of descriptors; it closes none now.
    match unsafe { libc::syscall(libc::SYS_close_range, 3, libc::c_uint::MAX, CLOSE_RANGE_CLOEXEC) }
    {
        0 => Ok(()),
        _ => Err(io::Error::last_os_error()),
    }
}

/// Takes over the descriptors from 3 on that are not closed on exec, and has them closed on exec.
///
/// What a program has been started with is not closed on exec; what it opens itself is, in std and
/// rustix. So these belong to nobody in the process yet.
pub fn adopt_inherited() -> io::Result<Vec<OwnedFd>> {
    let mut taken = Vec::new();
    for entry in std::fs::read_dir("/proc/self/fd")? {
        let name = entry?.file_name();
        let Some(number) = name.to_str().and_then(|name| name.parse().ok()) else { continue };
        // SAFETY: a number that /proc tells is not −1; if it was closed meanwhile (that of the listing
        // is not, yet), the call fails.
        let borrowed = unsafe { BorrowedFd::borrow_raw(number) };
        let is_own = |flags: rustix::io::FdFlags| flags.contains(rustix::io::FdFlags::CLOEXEC);
        if number < 3 || rustix::io::fcntl_getfd(borrowed).map_or(true, is_own) {
            continue;
        }
        rustix::io::fcntl_setfd(borrowed, rustix::io::FdFlags::CLOEXEC)?;
        // SAFETY: it is open, and was inherited (see above), so nobody else owns it.
        taken.push(unsafe { OwnedFd::from_raw_fd(number) });
    }
    taken.sort_by_key(AsRawFd::as_raw_fd);
    Ok(taken)
}

/// Puts a copy of `fd` at `number`, which is to stay open on exec, in place of whatever is there.
pub fn put_descriptor(fd: impl AsFd, number: RawFd) -> io::Result<()> {
    // SAFETY: takes integers. What was at `number` is nobody's in this process: a number that was
    // reserved for the program that is run next.
    match unsafe { libc::dup2(fd.as_fd().as_raw_fd(), number) } {
        -1 => Err(io::Error::last_os_error()),
        _ => Ok(()),
    }
}

/// Takes a descriptor that was inherited under this number for one use. To be called once for each.
pub fn inherited(number: RawFd) -> OwnedFd {
    // SAFETY: it was inherited for this alone, and the caller names it once: it becomes owned here.
    unsafe { OwnedFd::from_raw_fd(number) }
}

/// Closes a number that was reserved.
pub fn drop_descriptor(number: RawFd) -> io::Result<()> {
    // SAFETY: it was reserved by [`put_descriptor`], and nobody owns it.
    drop(unsafe { OwnedFd::from_raw_fd(number) });
    Ok(())
}

/// Closes one of the standard streams of a process that is about to run another program.
pub fn close_standard(stream: usize) {
    if stream < 3 {
        // SAFETY: nobody owns 0, 1 and 2; std's handles only use the numbers in calls that fail
        // cleanly on a closed one, and the caller runs another program next.
        unsafe { rustix::io::close(stream as i32) };
    }
}

/// `LANDLOCK_SCOPE_ABSTRACT_UNIX_SOCKET` of `struct landlock_ruleset_attr`, Linux 6.12.
const SCOPE_ABSTRACT_SOCKETS: u64 = 1;

/// Confines the calling thread, and all that it will start, to abstract local sockets that are made
/// inside. `false` where the kernel cannot. Source: landlock_create_ruleset(2), landlock(7).
pub fn scope_abstract_sockets() -> io::Result<bool> {
    let attributes = [0u64, 0, SCOPE_ABSTRACT_SOCKETS];
    // SAFETY: the pointer and the size are those of `attributes`, which outlives the call.
    let fd = unsafe {
        libc::syscall(
            libc::SYS_landlock_create_ruleset,
            attributes.as_ptr(),
            mem::size_of_val(&attributes),
            0,
        )
    };
    if fd < 0 {
        let error = io::Error::last_os_error();
        return match error.raw_os_error() {
            // No such call, switched off, or older than scopes.
            Some(libc::ENOSYS | libc::EOPNOTSUPP | libc::E2BIG | libc::EINVAL) => Ok(false),
            _ => Err(error),
        };
    }
    // SAFETY: the kernel has just made this descriptor for us; nobody else knows it.
    let ruleset = unsafe { OwnedFd::from_raw_fd(fd as i32) };
    // SAFETY: the call takes a descriptor and a flag word.
    match unsafe { libc::syscall(libc::SYS_landlock_restrict_self, ruleset.as_raw_fd(), 0) } {
        0 => Ok(true),
        _ => Err(io::Error::last_os_error()),
    }
}

/// A byte range of a file: from `start`, `len` bytes, 0 for all to the end.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Range {
    /// First byte.
    pub start: i64,
    /// Length.
    pub len: i64,
}

fn record(exclusive: bool, range: Range) -> libc::flock {
    // SAFETY: all fields are integers, for which zero is a value.
    let mut record: libc::flock = unsafe { mem::zeroed() };
    record.l_type = if exclusive { libc::F_WRLCK } else { libc::F_RDLCK } as libc::c_short;
    record.l_whence = libc::SEEK_SET as libc::c_short;
    (record.l_start, record.l_len) = (range.start, range.len);
    record
}

/// Locks a range for the open file description, without waiting. `EAGAIN` when someone else has it.
/// Source: fcntl(2), `F_OFD_SETLK`.
pub fn lock_range(file: impl AsFd, exclusive: bool, range: Range) -> io::Result<()> {
    let record = record(exclusive, range);
    // SAFETY: the command reads a `struct flock` that outlives the call.
    let result =
        unsafe { libc::fcntl(file.as_fd().as_raw_fd(), libc::F_OFD_SETLK, &raw const record) };
    if result == 0 { Ok(()) } else { Err(io::Error::last_os_error()) }
}

/// A lock of someone else that would be in the way: whether it is exclusive, and its range.
/// Source: fcntl(2), `F_OFD_GETLK`.
pub fn find_lock(
    file: impl AsFd,
    exclusive: bool,
    range: Range,
) -> io::Result<Option<(bool, Range)>> {
    let mut record = record(exclusive, range);
    // SAFETY: the command reads and writes a `struct flock` that outlives the call.
    let result =
        unsafe { libc::fcntl(file.as_fd().as_raw_fd(), libc::F_OFD_GETLK, &raw mut record) };
    if result != 0 {
        return Err(io::Error::last_os_error());
    }
    let range = Range { start: record.l_start, len: record.l_len };
    let kind = i32::from(record.l_type);
    Ok((kind != libc::F_UNLCK).then_some((kind == libc::F_WRLCK, range)))
}
