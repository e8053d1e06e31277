//! Raw calls for cases.
//!
//! Every pointer that a case passes is to a [`Room`]: memory that is never freed and far larger than
//! any structure of any call, so that whatever the kernel reads or writes there is the case's own. A
//! case that passes a wrong pointer passes one that is never mapped ([`BAD`]).
#![allow(unsafe_code, reason = "cases make raw calls, with good and bad arguments")]

use std::io;

use rustix::io::Errno;

use crate::errno;

/// What a call gave: its value or its error number.
pub type Answer = Result<i64, i32>;

/// An address that no process has mapped.
pub const BAD: u64 = 8;

/// Bytes that a room has beyond what a case put there.
const SLACK: usize = 4096;

/// Makes a call with up to six arguments.
pub fn call(number: libc::c_long, args: &[u64]) -> Answer {
    let mut all = [0; 6];
    all[..args.len()].copy_from_slice(args);
    let [a, b, c, d, e, f] = all;
    // SAFETY: pointers among the arguments are to rooms, which outlive everything and are larger than
    // what any call writes, or are not mapped at all; mappings that are changed are a case's own.
    let value = unsafe { libc::syscall(number, a, b, c, d, e, f) };
    if value == -1 {
        Err(io::Error::last_os_error().raw_os_error().unwrap_or(0))
    } else {
        Ok(value)
    }
}

/// `call!(SYS_name, args…)`, each argument as the register that it becomes.
#[macro_export]
macro_rules! call {
    ($name:ident $(, $arg:expr)* $(,)?) => {
        $crate::conform::sys::call(libc::$name, &[$($crate::conform::sys::word($arg)),*])
    };
}

/// What can be an argument.
pub trait Word {
    /// As a register.
    fn word(&self) -> u64;
}

macro_rules! words {
    ($($of:ty),+) => { $(impl Word for $of { fn word(&self) -> u64 { *self as i64 as u64 } })+ };
}
words!(i32, i64, u32, u64, usize, isize);

impl Word for Room {
    fn word(&self) -> u64 {
        self.at as u64
    }
}

impl Word for &Room {
    fn word(&self) -> u64 {
        self.at as u64
    }
}

impl Word for &str {
    fn word(&self) -> u64 {
        path(self).word()
    }
}

/// An argument as a register.
pub fn word(value: impl Word) -> u64 {
    value.word()
}

/// Memory that the kernel may write to.
#[derive(Debug, Clone, Copy)]
pub struct Room {
    at: *mut u8,
    length: usize,
}

/// A room that holds `bytes`.
pub fn room(bytes: &[u8]) -> Room {
    let mut memory = Vec::with_capacity(bytes.len() + SLACK);
    memory.extend_from_slice(bytes);
    memory.resize(bytes.len() + SLACK, 0);
    let memory = Box::leak(memory.into_boxed_slice());
    Room { at: memory.as_mut_ptr(), length: memory.len() }
}

/// A room of words of 32 bits.
pub fn ints(values: &[i32]) -> Room {
    room(&values.iter().flat_map(|value| value.to_ne_bytes()).collect::<Vec<_>>())
}

/// A room of words of 64 bits.
pub fn longs(values: &[i64]) -> Room {
    room(&values.iter().flat_map(|value| value.to_ne_bytes()).collect::<Vec<_>>())
}

/// A path as the kernel reads it.
pub fn path(text: &str) -> Room {
    let mut bytes = text.as_bytes().to_vec();
    bytes.push(0);
    room(&bytes)
}

impl Room {
    /// A copy of what is there now.
    pub fn bytes(&self, from: usize, length: usize) -> Vec<u8> {
        assert!(from + length <= self.length, "a room has {} bytes", self.length);
        // SAFETY: within the room; read as the kernel may have left it.
        (from..from + length).map(|at| unsafe { self.at.add(at).read_volatile() }).collect()
    }

    /// Stores into it.
    pub fn put(&self, from: usize, bytes: &[u8]) {
        assert!(from + bytes.len() <= self.length, "a room has {} bytes", self.length);
        for (at, byte) in bytes.iter().enumerate() {
            // SAFETY: within the room, which has no other owner.
            unsafe { self.at.add(from + at).write_volatile(*byte) };
        }
    }

    /// The word of 32 bits at this index.
    pub fn int(&self, index: usize) -> i32 {
        let bytes = self.bytes(index * 4, 4);
        i32::from_ne_bytes([bytes[0], bytes[1], bytes[2], bytes[3]])
    }

    /// The word of 64 bits at this index.
    pub fn long(&self, index: usize) -> i64 {
        let low = self.int(index * 2) as u32;
        i64::from(self.int(index * 2 + 1)) << 32 | i64::from(low)
    }

    /// The address so many bytes in.
    pub fn plus(&self, bytes: usize) -> u64 {
        self.at as u64 + bytes as u64
    }
}

/// A byte of mapped memory.
///
/// # Safety
/// The address must be mapped readable.
pub unsafe fn peek(address: u64) -> u8 {
    // SAFETY: the caller's promise.
    unsafe { (address as *const u8).read_volatile() }
}

/// Stores a byte into mapped memory.
///
/// # Safety
/// The address must be mapped writable, and nobody else's.
pub unsafe fn poke(address: u64, byte: u8) {
    // SAFETY: the caller's promise.
    unsafe { (address as *mut u8).write_volatile(byte) };
}

/// Runs `body` in a child process and gives its exit status; 1000 + N when a signal ended it. Only in
/// a process of one thread.
pub fn in_child(body: impl FnOnce() -> i32) -> i32 {
    wait_for(fork(body))
}

/// Starts `body` in a child process.
pub fn fork(body: impl FnOnce() -> i32) -> i32 {
    // SAFETY: the program has one thread, so the child may run any code.
    match unsafe { libc::fork() } {
        0 => {
            let status = body();
            // SAFETY: ends the process without running what belongs to its parent.
            unsafe { libc::_exit(status) }
        }
        pid => pid,
    }
}

/// Waits for a child.
pub fn wait_for(pid: i32) -> i32 {
    let status = ints(&[0]);
    match crate::call!(SYS_wait4, pid, status, 0, 0) {
        Ok(_) => {
            let status = status.int(0);
            if libc::WIFEXITED(status) {
                libc::WEXITSTATUS(status)
            } else {
                1000 + libc::WTERMSIG(status)
            }
        }
        Err(error) => -error,
    }
}

/// Name of an error, or `ok`.
pub fn said(answer: Answer) -> String {
    match answer {
        Ok(_) => "ok".to_owned(),
        Err(error) => name(error),
    }
}

/// Name of an error, or the value.
pub fn told(answer: Answer) -> String {
    match answer {
        Ok(value) => value.to_string(),
        Err(error) => name(error),
    }
}

/// Name of an error number; 0 is no error. (A child may also have been ended by a signal.)
pub fn name(error: i32) -> String {
    match error {
        0 => "ok".to_owned(),
        1..1000 => errno::name(Errno::from_raw_os_error(error)),
        other => format!("status {other}"),
    }
}

/// The descriptor of an answer.
///
/// # Panics
/// If it is an error: then the case cannot be set up.
#[track_caller]
pub fn fd(answer: Answer) -> i32 {
    match answer {
        Ok(value) => value as i32,
        Err(error) => panic!("a case cannot be set up: {}", name(error)),
    }
}

/// Opens a file.
///
/// # Panics
/// If that fails.
#[track_caller]
pub fn open(name: &str, flags: i32) -> i32 {
    fd(crate::call!(SYS_openat, libc::AT_FDCWD, name, flags | libc::O_CLOEXEC, 0o644))
}

/// Closes descriptors.
pub fn close(fds: &[i32]) {
    for fd in fds {
        let _ = crate::call!(SYS_close, *fd);
    }
}

/// A pipe: reading end, writing end.
pub fn pipe(flags: i32) -> (i32, i32) {
    let ends = ints(&[0, 0]);
    fd(crate::call!(SYS_pipe2, ends, flags | libc::O_CLOEXEC));
    (ends.int(0), ends.int(1))
}

/// A pair of local sockets.
pub fn pair(kind: i32) -> (i32, i32) {
    let ends = ints(&[0, 0]);
    fd(crate::call!(SYS_socketpair, libc::AF_UNIX, kind | libc::SOCK_CLOEXEC, 0, ends));
    (ends.int(0), ends.int(1))
}

/// Writes text to a descriptor.
pub fn put(fd: i32, text: &str) -> Answer {
    crate::call!(SYS_write, fd, room(text.as_bytes()), text.len())
}

/// Reads up to `most` bytes: the text, or the error.
pub fn get(fd: i32, most: usize) -> String {
    let space = room(&[]);
    match crate::call!(SYS_read, fd, space, most.min(SLACK)) {
        Ok(read) => format!("{:?}", String::from_utf8_lossy(&space.bytes(0, read as usize))),
        Err(error) => name(error),
    }
}

/// Lets other processes run for so many milliseconds.
pub fn rest(milliseconds: i64) {
    let _ = crate::call!(
        SYS_nanosleep,
        longs(&[milliseconds / 1000, milliseconds % 1000 * 1_000_000]),
        0
    );
}

/// Returns when the child waits in one of the calls, 60 s later at the latest (proc_pid_syscall(5)).
pub fn until_in(child: i32, calls: &[i64]) {
    for _ in 0..12_000 {
        let now = std::fs::read_to_string(format!("/proc/{child}/syscall")).unwrap_or_default();
        let number = now.split(' ').next().and_then(|number| number.parse().ok());
        if number.is_some_and(|number| calls.contains(&number)) {
            return;
        }
        rest(5);
    }
}
