//! Rollback of the program itself: memory, mappings, registers, descriptors, signal handlers, credentials,
//! limits, timers.
//!
//! ```text
//! take      fork_here ──▶ snapshot: sleeps; its memory is what the program's was
//!              │
//!           the transaction runs                        release: the snapshot is killed
//!              │
//! rollback  asks the snapshot what it has besides memory
//!           on a stack of its own:
//!             rights        credentials, limits
//!             maps          mappings become those of the snapshot
//!             pages         contents that differ are copied from it
//!             files         descriptors that differ are fetched from it (pidfd_getfd(2))
//!             rest          signal handlers, umask, process group, scheduling, timers
//!           resume: fork_here returns once more
//! ```
//!
//! # Invariants
//!
//! - Between the fork and the resumption nothing of the program's memory that the snapshot has is lost:
//!   it is written by nobody.
//! - What is used while memory is put back lies in the arena: its stack, its buffers. No library function
//!   that has state is called.
//! - One snapshot at a time: a new one is made when the last one is dead, or that would answer in its place.
//! - A program that can be put back only by half is killed: it never runs on.
//! - The snapshot is no child that `wait(2)` knows (its end sends no signal, clone(2)), and it ends with
//!   its program: by the parent-death signal, and when the last writing end of its pipe is closed.
//!
//! # Limits
//!
//! - One thread. x86-64.
//! - Not put back: shared memory, memory that fork(2) does not copy (`MADV_DONTFORK`), the end of a pipe that
//!   is closed inside (until the end the snapshot has it open). A program that began a session of its own
//!   (setsid(2)) is killed.
#![allow(unsafe_code)] // registers, raw system calls, and memory that changes under the compiler's eyes

mod arena;
mod facts;
mod files;
mod leftovers;
pub(crate) mod limits;
mod maps;
mod pages;
mod pending;
pub(crate) mod signals;
mod snapshot;
mod timers;

use std::sync::atomic::Ordering;

use rustix::io::Errno;

use crate::{guard, raw, registers, rseq};

pub(crate) use self::leftovers::Before;
use self::{
    arena::{Arena, arena, existing},
    raw::{die, syscall},
};

/// What `fork_here` gives after a rollback: no pid, and no error number.
const AGAIN: i64 = i64::MIN;

/// Which return of [`take`] this is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Taken {
    /// The snapshot was just made.
    First,
    /// The program was rolled back to here, with this value.
    Again(i32),
}

/// Makes the checkpoint. Returns a second time after [`rollback`], with everything as it was; the
/// checkpoint holds on then.
///
/// `ask` is a pipe of the caller's own, for this alone. The process has one thread.
///
/// # Errors
/// If there is no memory or no process left.
pub(crate) fn take(ask: [i32; 2], high: i32) -> Result<Taken, Errno> {
    let arena = arena()?;
    // SAFETY: the arena is mapped as long as the process lives, and nobody else uses it: the process has
    // one thread, and there is no snapshot yet.
    let forked = unsafe {
        reap(arena, 0);
        (*arena).ask = ask;
        (*arena).high = high;
        (*arena).reported.store(0, Ordering::Relaxed);
        (*arena).rseq = rseq::area();
        pending::count(&mut *arena);
        (*arena).senders_count = 0;
        timers::note(&mut *arena)?;
        for (which, timer) in (*arena).intervals.iter_mut().enumerate() {
            syscall!(libc::SYS_getitimer, which, timer.as_mut_ptr());
        }
        let stack = &raw mut (*arena).snapshot_stack;
        (*arena).registers.other_stack = top_of(stack.cast());
        let main: unsafe extern "C" fn(u64) -> ! = snapshot::main;
        (*arena).registers.other_main = main as usize as u64;
        (*arena).registers.other_argument = arena as u64;
        registers::fork_here(&raw mut (*arena).registers)
    };
    match forked {
        AGAIN => {
            // SAFETY: as above; the value was left for this. Signals wait while the library is at work.
            unsafe {
                signals::owe(&mut *arena);
                Ok(Taken::Again((*arena).value))
            }
        }
        pid if pid > 0 => {
            // SAFETY: as above.
            unsafe { (*arena).snapshot = pid as i32 };
            Ok(Taken::First)
        }
        error => Err(Errno::from_raw_os_error(-error as i32)),
    }
}

/// Drops the checkpoint: from here on the program is what it is.
pub(crate) fn release() {
    let Some(arena) = existing() else { return };
    signals::unwatch();
    limits::apply();
    // SAFETY: the arena stays mapped; the snapshot is a child that is not reaped yet, so its number is
    // its own.
    unsafe {
        let snapshot = std::mem::take(&mut (*arena).snapshot);
        if snapshot != 0 {
            guard::call(libc::SYS_kill, snapshot as usize, libc::SIGKILL as usize, 0);
            (*arena).ended = snapshot;
            reap(arena, libc::WNOHANG);
        }
    }
}

/// Reaps a snapshot that was killed; waits for its death, unless `options` say otherwise.
///
/// # Safety
/// The arena is mapped.
unsafe fn reap(arena: *mut Arena, options: i32) {
    // SAFETY: the arena is mapped; the number is that of a child until it is reaped.
    unsafe {
        while (*arena).ended != 0 {
            let options = options | libc::__WCLONE;
            match syscall!(libc::SYS_wait4, (*arena).ended, 0, options, 0) {
                0 => return,
                interrupted if interrupted == -(libc::EINTR as isize) => {}
                _ => (*arena).ended = 0,
            }
        }
    }
}

/// Puts everything back; [`take`] returns again, with `value`. The thread is outside any view already.
///
/// Kills the program if it cannot be put back.
pub(crate) fn rollback(value: i32) -> ! {
    let Some(arena) = existing() else { die(b"there is no checkpoint") };
    // SAFETY: the arena is mapped, and the snapshot writes only what it is asked for, before `reported`
    // says so. The stack of the arena is used by nobody.
    unsafe {
        snapshot::ask(arena);
        (*arena).value = value;
        let stack = &raw mut (*arena).stack;
        registers::on_stack(top_of(stack.cast()), put_back, arena as u64)
    }
}

/// The part of [`rollback`] that runs on the arena's stack.
///
/// # Safety
/// `arena` is the address of the process's arena, whose snapshot has reported.
unsafe extern "C" fn put_back(arena: u64) -> ! {
    let arena = arena as *mut Arena;
    // SAFETY: see the caller; from here on only the arena is referred to.
    unsafe {
        let snapshot = (*arena).snapshot;
        (*arena).facts.restore_rights();
        syscall!(libc::SYS_brk, (*arena).facts.brk);
        let mappings = maps::restore(&mut *arena, snapshot);
        pages::restore(&mut *arena, snapshot, mappings);
        files::restore(&mut *arena, snapshot);
        (*arena).facts.restore_rest();
        timers::restore(&mut *arena);
        for (which, timer) in (*arena).intervals.iter().enumerate() {
            syscall!(libc::SYS_setitimer, which, timer.as_ptr(), 0);
        }
        registers::resume(&raw const (*arena).registers, AGAIN)
    }
}

/// The upper end of one of the arena's stacks, as calls want it.
fn top_of(stack: *mut u8) -> u64 {
    (stack as u64 + arena::STACK as u64) & !15
}
