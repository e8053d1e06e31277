//! Memory that is shared with the snapshot and not rolled back.

use core::{mem::size_of, ptr::null_mut, sync::atomic::AtomicU32};
use std::sync::atomic::{AtomicPtr, Ordering};

use rustix::{
    io::Errno,
    mm::{MapFlags, ProtFlags, mmap_anonymous},
};

use super::{
    facts::{Facts, SIGNALS},
    files::Set,
    maps::Mapping,
    pending::SENDERS,
    signals::{Info, NOTED},
    timers::{TIMERS, Timer},
};
use crate::registers::Registers;

/// Mappings that a program may have.
pub(super) const MAPPINGS: usize = 32 * 1024;
/// Pages that are looked at in one go.
pub(super) const CHUNK: usize = 4096;
/// Descriptors that are looked at.
pub(super) const DESCRIPTORS: usize = 1 << 16;
/// Size of each stack.
pub(super) const STACK: usize = 256 * 1024;

/// All of it. Only what is touched takes memory.
#[repr(C, align(4096))]
pub(super) struct Arena {
    pub(super) registers: Registers,
    /// What the beginning returns after a rollback.
    pub(super) value: i32,
    /// The process whose checkpoint this is.
    pub(super) owner: i32,
    /// The snapshot, or 0.
    pub(super) snapshot: i32,
    /// One that was killed and is not reaped yet, or 0.
    pub(super) ended: i32,
    /// The lowest number for descriptors of the library's own.
    pub(super) high: i32,
    /// Over which the snapshot is asked to report: reading and writing end.
    pub(super) ask: [i32; 2],
    /// 1 once it has.
    pub(super) reported: AtomicU32,
    /// Address of the area that the kernel itself writes to (rseq(2)), or 0.
    pub(super) rseq: u64,
    /// The interval timers as they were (setitimer(2)).
    pub(super) intervals: [[i64; 4]; 3],
    /// How many POSIX timers there were.
    pub(super) timers: usize,
    pub(super) timers_then: [Timer; TIMERS],
    pub(super) timers_now: [Timer; TIMERS],
    /// Signals that came from outside since the beginning, and how many.
    pub(super) signals: [Info; NOTED],
    pub(super) noted: usize,
    /// How many of them, from the first, a rollback has left to be sent again.
    pub(super) owed: usize,
    /// How many of each signal, by number, have waited to be delivered since the beginning.
    pub(super) waited: [u16; SIGNALS],
    /// Members that have sent signals which wait, and how many.
    pub(super) senders: [i32; SENDERS],
    pub(super) senders_count: usize,
    /// Signals that wait, while they are looked at.
    pub(super) taken: [Info; NOTED],
    /// Whether a transaction runs that can roll the process back.
    pub(super) watching: bool,
    pub(super) facts: Facts,
    pub(super) files_now: Set,
    pub(super) files_then: Set,
    pub(super) now: [Mapping; MAPPINGS],
    pub(super) then: [Mapping; MAPPINGS],
    pub(super) buffer: [u8; 64 * 1024],
    pub(super) entries_now: [u64; CHUNK],
    pub(super) entries_then: [u64; CHUNK],
    pub(super) snapshot_stack: [u8; STACK],
    pub(super) stack: [u8; STACK],
}

static ARENA: AtomicPtr<Arena> = AtomicPtr::new(null_mut());

/// The process's arena, made if there is none; a forked child makes its own.
///
/// # Errors
/// If there is no memory.
pub(super) fn arena() -> Result<*mut Arena, Errno> {
    let pid = rustix::process::getpid().as_raw_pid();
    if let Some(arena) = existing() {
        return Ok(arena);
    }
    let flags = MapFlags::SHARED | MapFlags::NORESERVE;
    // SAFETY: a new mapping at a place that the kernel chooses.
    let made = unsafe {
        mmap_anonymous(null_mut(), size_of::<Arena>(), ProtFlags::READ | ProtFlags::WRITE, flags)?
    };
    let arena: *mut Arena = made.cast();
    // SAFETY: the mapping has the size and alignment of an arena, for which zero bytes are valid.
    unsafe { (*arena).owner = pid };
    ARENA.store(arena, Ordering::Release);
    Ok(arena)
}

/// The arena, if this process has one.
pub(super) fn existing() -> Option<*mut Arena> {
    let arena = ARENA.load(Ordering::Acquire);
    let pid = rustix::process::getpid().as_raw_pid();
    // SAFETY: an arena that was stored stays mapped as long as the process lives.
    (!arena.is_null() && unsafe { (*arena).owner } == pid).then_some(arena)
}
