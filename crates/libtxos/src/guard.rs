//! The guard: a filter on the system calls that a transaction cannot isolate or undo.
//!
//! A thread installs it once, when it begins a transaction for the first time, and so has it what the
//! thread starts later; it can never be taken off again (seccomp(2)). So it decides nothing itself: it asks
//! the session, which knows whether the caller is in a transaction, and lets everybody else go on. The
//! session makes the filter's program, and answers as long as there is anybody who has it.
//!
//! # Invariants
//!
//! - The library's own way out of a view is never asked about: the filter knows the [gate](call) by the
//!   address of its instruction.
//! - A thread that has the guard already, since it was started by one that has, belongs to the session
//!   that answers: [`session`] asks for its name.
#![allow(unsafe_code)] // seccomp(2), and system calls from one known instruction

use core::arch::naked_asm;
use std::{
    ffi::OsString,
    fs::File,
    io::Read,
    os::{
        fd::{AsRawFd, FromRawFd, OwnedFd},
        unix::ffi::OsStringExt,
    },
};

use rustix::{io::Errno, process::getpid, thread::gettid};
use txos_protocol::{ASKED, Op, Request};

use crate::link::Link;

/// Makes a system call that the guard lets through. Gives what the kernel gives: an error number is
/// negative.
///
/// # Safety
/// As the call itself: what is given must be what it takes.
#[unsafe(naked)]
pub(crate) unsafe extern "C" fn call_with(
    number: i64,
    a: usize,
    b: usize,
    c: usize,
    d: usize,
    e: usize,
) -> isize {
    #[cfg(target_arch = "x86_64")]
    naked_asm!(
        "mov rax, rdi",
        "mov rdi, rsi",
        "mov rsi, rdx",
        "mov rdx, rcx",
        "mov r10, r8",
        "mov r8, r9",
        "syscall",
        "ret",
    );
    #[cfg(target_arch = "aarch64")]
    naked_asm!(
        "mov x8, x0",
        "mov x0, x1",
        "mov x1, x2",
        "mov x2, x3",
        "mov x3, x4",
        "mov x4, x5",
        "svc #0",
        "ret",
    )
}

/// The same for a call of three arguments at the most.
///
/// # Safety
/// As above.
pub(crate) unsafe fn call(number: i64, a: usize, b: usize, c: usize) -> isize {
    // SAFETY: see the caller.
    unsafe { call_with(number, a, b, c, 0, 0) }
}

/// The address that the kernel sees when [`call_with`] makes a call: that after its instruction.
fn gate() -> u64 {
    const LONG_ENOUGH: usize = 24;
    #[cfg(target_arch = "x86_64")]
    const INSTRUCTION: &[u8] = &[0x0f, 0x05];
    #[cfg(target_arch = "aarch64")]
    const INSTRUCTION: &[u8] = &[0x01, 0x00, 0x00, 0xd4];
    let code: unsafe extern "C" fn(i64, usize, usize, usize, usize, usize) -> isize = call_with;
    // SAFETY: the function is longer than this, and code can be read.
    let bytes = unsafe { std::slice::from_raw_parts(code as usize as *const u8, LONG_ENOUGH) };
    let at = bytes.windows(INSTRUCTION.len()).position(|bytes| bytes == INSTRUCTION);
    at.map_or(0, |at| (code as usize + at + INSTRUCTION.len()) as u64)
}

/// The name of the session that answers for the calling thread, if it has the guard already.
pub(crate) fn session() -> Option<OsString> {
    let mut name = [0u8; 64];
    // SAFETY: without the guard it is a call with a wrong argument, which fails; with it the session
    // writes no more than the given length.
    let length =
        unsafe { libc::syscall(libc::SYS_tgkill, i64::from(ASKED), name.as_mut_ptr(), name.len()) };
    let name = name.get(..usize::try_from(length).ok()?)?;
    Some(OsString::from_vec(name.to_vec()))
}

/// Installs the guard for the calling thread, unless it has it.
///
/// # Errors
/// `EACCES` if the program may install no filter; `EBUSY` if another supervisor answers for it.
pub(crate) fn install(link: &Link) -> Result<(), Errno> {
    if session().is_some() {
        return Ok(());
    }
    let ask = Request { group: gate(), ..Request::plain(Op::Guard) };
    let (reply, program) = link.ask(&ask)?;
    let (0, Some(program)) = (reply.code, program) else { return Err(Errno::PROTO) };
    let mut bytes = Vec::new();
    File::from(program).read_to_end(&mut bytes).map_err(|_| Errno::IO)?;
    let listener = seccomp(&bytes)?;
    let number = u64::try_from(listener.as_raw_fd()).map_err(|_| Errno::BADF)?;
    let hand_over = Request { group: number, sequence: 1, ..Request::plain(Op::Guard) };
    match link.ask(&hand_over)?.0.code {
        0 => Ok(()),
        code => Err(Errno::from_raw_os_error(-code)),
    }
}

/// Installs a program, given as the bytes of its instructions (`struct sock_filter`).
fn seccomp(bytes: &[u8]) -> Result<OwnedFd, Errno> {
    let mut filter: Vec<libc::sock_filter> = bytes
        .chunks_exact(8)
        .map(|i| libc::sock_filter {
            code: u16::from_ne_bytes([i[0], i[1]]),
            jt: i[2],
            jf: i[3],
            k: u32::from_ne_bytes([i[4], i[5], i[6], i[7]]),
        })
        .collect();
    let length = libc::c_ushort::try_from(filter.len()).map_err(|_| Errno::INVAL)?;
    let program = libc::sock_fprog { len: length, filter: filter.as_mut_ptr() };
    let flags = libc::SECCOMP_FILTER_FLAG_NEW_LISTENER
        | libc::SECCOMP_FILTER_FLAG_SPEC_ALLOW
        | libc::SECCOMP_FILTER_FLAG_WAIT_KILLABLE_RECV;
    // SAFETY: the program and its instructions live across the call, and the kernel checks them.
    let fd = unsafe {
        libc::syscall(libc::SYS_seccomp, libc::SECCOMP_SET_MODE_FILTER, flags, &raw const program)
    };
    if fd < 0 {
        let error = std::io::Error::last_os_error();
        return Err(Errno::from_io_error(&error).unwrap_or(Errno::IO));
    }
    // SAFETY: the kernel has just made this descriptor for us; nobody else knows it.
    Ok(unsafe { OwnedFd::from_raw_fd(fd as i32) })
}

/// Ends the process at once, as a signal would; nobody is asked.
pub(crate) fn kill_this_process() -> ! {
    let pid = getpid().as_raw_pid() as usize;
    // SAFETY: plain numbers; the process asked for its end.
    unsafe {
        call(libc::SYS_kill, pid, libc::SIGKILL as usize, 0);
        call(libc::SYS_tgkill, pid, gettid().as_raw_pid() as usize, libc::SIGKILL as usize);
        libc::_exit(1)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_gate_makes_calls_and_has_an_address() {
        // SAFETY: a call without arguments.
        let pid = unsafe { call(libc::SYS_getpid, 0, 0, 0) };
        assert_eq!(pid, std::process::id() as isize);
        // SAFETY: nothing is read at no address.
        let fault = unsafe { call(libc::SYS_write, 1, 0, 7) };
        assert_eq!(fault, -(libc::EFAULT as isize));
        let code: unsafe extern "C" fn(i64, usize, usize, usize, usize, usize) -> isize = call_with;
        let length = gate() - code as usize as u64;
        assert!((8..=28).contains(&length), "{length}");
    }

    #[test]
    fn without_a_guard_there_is_no_session() {
        assert_eq!(session(), None);
    }
}
