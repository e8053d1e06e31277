//! Which signals a program's caller ignores and blocks: state that passes on over execve(2).
//!
//! The command of a transaction has to find what it would find natively, so txos reads the state
//! before anything changes it and puts it back right before the command is executed. Between the two
//! much does change it: a Rust program ignores `SIGPIPE` before `main`, posix_spawn(3) ignores the two
//! signals that the C library uses itself (32 and 33), and [`std::process::Command`] empties the mask.
//! For the same reason all is read and set by the kernel's own calls: the library's functions hide
//! those two signals.
//!
//! Source: signal(7), execve(2), rt_sigaction(2), rt_sigprocmask(2).
#![allow(unsafe_code)] // no safe wrapper exists for dispositions

use rustix::io::Errno;
use serde::{Deserialize, Serialize};

/// Signals are numbered from 1 to this.
const LAST: i32 = 64;

/// Bytes of the kernel's signal set.
const SET_SIZE: usize = size_of::<u64>();

/// The handler, flags, restorer and mask of the kernel's `struct sigaction`; where there is no
/// restorer, the mask stands in its place and the last word is not used.
type Action = [u64; 4];

/// Signals that are ignored and blocked; bit N-1 of each is signal N.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct SignalState {
    /// Those whose disposition is to be ignored; all others have their default one.
    pub ignored: u64,
    /// Those that are blocked.
    pub blocked: u64,
}

impl SignalState {
    /// The calling thread's. Makes system calls and nothing else, so it may be called before `main`.
    pub fn current() -> SignalState {
        let mut state = SignalState::default();
        for signal in 1..=LAST {
            let mut old: Action = [0; 4];
            // SAFETY: no new action is given, and `old` has room for the kernel's structure.
            let result = unsafe {
                let none = std::ptr::null::<Action>();
                libc::syscall(libc::SYS_rt_sigaction, signal, none, &raw mut old, SET_SIZE)
            };
            if result == 0 && old[0] == libc::SIG_IGN as u64 {
                state.ignored |= bit(signal);
            }
        }
        // SAFETY: no new mask is given, and the old one has the size that is passed.
        unsafe {
            let (none, old) = (std::ptr::null::<u64>(), &raw mut state.blocked);
            libc::syscall(libc::SYS_rt_sigprocmask, libc::SIG_SETMASK, none, old, SET_SIZE);
        }
        state
    }

    /// Whether `signal` is ignored.
    pub fn ignores(&self, signal: i32) -> bool {
        self.ignored & bit(signal) != 0
    }

    /// Makes it the state of the calling process, which has one thread and executes a program next:
    /// handlers of its own are gone.
    pub(crate) fn restore(&self) -> Result<(), Errno> {
        for signal in (1..=LAST).filter(|signal| ![libc::SIGKILL, libc::SIGSTOP].contains(signal)) {
            let handler = if self.ignores(signal) { libc::SIG_IGN } else { libc::SIG_DFL };
            set(signal, handler)?;
        }
        // SAFETY: the new mask has the size that is passed; the old one is not asked for.
        let result = unsafe {
            let (new, none) = (&raw const self.blocked, std::ptr::null_mut::<u64>());
            libc::syscall(libc::SYS_rt_sigprocmask, libc::SIG_SETMASK, new, none, SET_SIZE)
        };
        if result == 0 { Ok(()) } else { Err(last_errno()) }
    }
}

/// Gives `SIGCHLD` its default disposition. A caller that ignores it would else have the kernel reap
/// our children, and every wait(2) for one would last until all have ended, and then fail.
pub fn keep_children() {
    // It fails for numbers that are no signals alone.
    let _ = set(libc::SIGCHLD, libc::SIG_DFL);
}

/// Stops the calling process as the terminal's key does, by `SIGTSTP`, until it is continued; with
/// `group` the other processes of its group too, to which the key did not come. Where nobody could
/// continue it, because no shell with job control has started it, nothing is stopped: the kernel lets
/// that signal do nothing in an orphaned process group.
///
/// # Errors
/// If a signal can't be sent.
pub fn stop_as_by_key(group: bool) -> Result<(), Errno> {
    use rustix::process::{Signal, getpgrp, kill_process_group};
    let ours = swap(libc::SIGTSTP, [libc::SIG_IGN as u64, 0, 0, 0])?;
    let told = if group { kill_process_group(getpgrp(), Signal::TSTP) } else { Ok(()) };
    // To this thread: it is stopped before the call returns, and not when another thread gets to it.
    let stopped = set(libc::SIGTSTP, libc::SIG_DFL).and_then(|()| {
        // SAFETY: a number and nothing else; without a handler no code is run.
        if unsafe { libc::raise(libc::SIGTSTP) } == 0 { Ok(()) } else { Err(last_errno()) }
    });
    swap(libc::SIGTSTP, ours)?;
    told.and(stopped)
}

fn bit(signal: i32) -> u64 {
    1 << (signal - 1)
}

fn set(signal: i32, handler: libc::sighandler_t) -> Result<(), Errno> {
    let new: Action = [handler as u64, 0, 0, 0];
    // SAFETY: no function is installed, so none can be called; the structure is at least as large as
    // the kernel's, and nothing else of it matters without a function.
    let result = unsafe {
        let none = std::ptr::null_mut::<Action>();
        libc::syscall(libc::SYS_rt_sigaction, signal, &raw const new, none, SET_SIZE)
    };
    if result == 0 { Ok(()) } else { Err(last_errno()) }
}

/// Installs an action and gives the one before: what the kernel gave, or nothing that can be called.
fn swap(signal: i32, new: Action) -> Result<Action, Errno> {
    let mut old: Action = [0; 4];
    // SAFETY: `new` has no function, or is what the kernel gave for one that is still there; both
    // structures are at least as large as the kernel's.
    let result = unsafe {
        let (new, old) = (&raw const new, &raw mut old);
        libc::syscall(libc::SYS_rt_sigaction, signal, new, old, SET_SIZE)
    };
    if result == 0 { Ok(old) } else { Err(last_errno()) }
}

fn last_errno() -> Errno {
    Errno::from_io_error(&std::io::Error::last_os_error()).unwrap_or(Errno::IO)
}
