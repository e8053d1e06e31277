//! Signals that wait to be delivered when the program is rolled back.
//!
//! The kernel keeps them, and they would outlive the attempt in which they were sent: to a program that has them
//! blocked only inside, they would come as soon as its mask is back, and could kill it. So what the program
//! or a member has sent since the beginning is taken away; what others have sent goes on waiting.
//!
//! Who was a member the session knows only as long as the transaction runs, and whether it will be rolled back
//! is known only afterwards. So the [senders](look) are noted before its end, and the signals
//! [dropped](drop_those_of) after the rollback.
//!
//! # Invariants
//!
//! - What waited before the beginning is left alone. Of the real-time signals, of which several of a number wait,
//!   [`count`] tells how many did: those stand before what comes later, and what the program takes of them inside
//!   is taken off. A standard signal that waited is left alone with the number.
//! - What cannot wait again (`RLIMIT_SIGPENDING`, which all processes of a user share) is owed: it is tried
//!   again whenever [owed](super::signals) signals are sent. Of more than [`NOTED`] signals of one number that wait
//!   before the beginning none is taken away; of more that are owed the rest is lost.
//! - Signals are blocked, and the process has one thread, while they are looked at.

use core::ffi::c_int;

use rustix::{process::getpid, thread::gettid};

use super::{
    arena::{Arena, existing},
    facts::SIGNALS,
    raw::syscall,
    signals::{Info, NOTED, is_own, sender_of},
};

/// Members whose signals are told from others'.
pub(super) const SENDERS: usize = 256;

/// A set of signals, as the kernel has it.
type Signals = u64;

/// The signals that wait.
pub(super) fn waiting() -> Signals {
    let mut waiting: Signals = 0;
    // SAFETY: a set of the kernel's has eight bytes.
    unsafe { syscall!(libc::SYS_rt_sigpending, &raw mut waiting, 8) };
    waiting
}

/// Whether a set has a signal.
pub(super) fn has(set: Signals, signal: c_int) -> bool {
    set & 1 << (signal - 1) != 0
}

/// Takes one of the signals of a set that wait.
pub(super) fn take(set: Signals) -> Option<(c_int, Info)> {
    let (mut info, now) = ([0; size_of::<Info>() / 8], [0i64; 2]);
    // SAFETY: a set and a `siginfo_t` of the kernel's sizes; the fifth argument tells the guard who asks.
    let taken = unsafe {
        let (set, into) = (&raw const set, info.as_mut_ptr());
        syscall!(libc::SYS_rt_sigtimedwait, set, into, now.as_ptr(), 8, txos_protocol::NOTED)
    };
    (taken > 0).then_some((taken as c_int, info))
}

/// Has a signal wait again; tells whether there was room for it.
#[must_use]
pub(super) fn put_back(signal: c_int, info: &Info) -> bool {
    let (process, thread) = (getpid().as_raw_pid(), gettid().as_raw_pid());
    // SAFETY: the information is a `siginfo_t` that the kernel has given, and outlives the call.
    unsafe { syscall!(libc::SYS_rt_tgsigqueueinfo, process, thread, signal, info.as_ptr()) == 0 }
}

/// The first signal of which several can wait (signal(7)).
const REAL_TIME: c_int = 32;
/// All that waits of a number.
pub(super) const ALL: u16 = u16::MAX;

/// At the beginning: notes what waits. What waits of the real-time signals is taken and waits again, as the thread's: so
/// it stands before all that comes later, also before what the thread sends to itself.
pub(super) fn count(arena: &mut Arena) {
    let waiting = waiting();
    arena.waited = [0; SIGNALS];
    for signal in (1..=64).filter(|signal| has(waiting, *signal)) {
        arena.waited[signal as usize] = match signal {
            ..REAL_TIME => ALL,
            _ => match take_all(arena, signal) {
                NOTED if has(self::waiting(), signal) => ALL,
                count => count as u16,
            },
        };
        if signal >= REAL_TIME {
            let count = arena.waited[signal as usize].min(NOTED as u16);
            (0..usize::from(count)).for_each(|at| wait_again(arena, signal, at));
        }
    }
}

/// Takes what waits of a signal, in its order, as far as there is room.
fn take_all(arena: &mut Arena, signal: c_int) -> usize {
    let mut count = 0;
    while count < NOTED
        && let Some((_, info)) = take(1 << (signal - 1))
    {
        arena.taken[count] = info;
        count += 1;
    }
    count
}

/// Has one that was taken wait again, or has it owed.
fn wait_again(arena: &mut Arena, signal: c_int, at: usize) {
    let info = arena.taken[at];
    if !put_back(signal, &info) {
        arena.owe_also(&info);
    }
}

/// Notes which members have sent signals that wait. No memory is asked for: a handler may be the caller.
pub(super) fn look(arena: &mut Arena, is_member: impl Fn(i32) -> bool) {
    arena.senders_count = 0;
    sift(arena, |arena, signal, info| {
        let sender = sender_of(info);
        let room = arena.senders_count < SENDERS;
        if room && !is_from_here(arena, signal, info) && sender > 0 && is_member(sender) {
            arena.senders[arena.senders_count] = sender;
            arena.senders_count += 1;
        }
        true
    });
}

/// After a rollback: drops what `ended`, the program's children of the attempt, have sent, and what the program itself or
/// one of the noted senders has, unless that was to wait for the end whatever it is (`deferred`).
pub(super) fn drop_those_of(ended: &[i32], deferred: bool) {
    let Some(arena) = existing() else { return };
    // SAFETY: the arena is mapped; no handler runs, since signals wait while the library is at work.
    let arena = unsafe { &mut *arena };
    sift(arena, |arena, signal, info| {
        let gone = ended.contains(&sender_of(info));
        !(gone || !deferred && is_from_here(arena, signal, info))
    });
}

/// Whether a signal is the program's own doing or a noted sender's.
fn is_from_here(arena: &Arena, signal: c_int, info: &Info) -> bool {
    let sender = sender_of(info);
    // `si_code` comes after the signal's number and the error number.
    let code = info[1] as i32;
    is_own(signal, code, sender, arena.owner)
        || arena.senders[..arena.senders_count].contains(&sender)
}

/// Takes everything that waits since the beginning, and has that wait again which `keeps` wants.
fn sift(arena: &mut Arena, mut keeps: impl FnMut(&mut Arena, c_int, &Info) -> bool) {
    let waiting = waiting();
    for signal in (1..=64).filter(|signal| has(waiting, *signal)) {
        let waited = arena.waited[signal as usize];
        if waited == ALL {
            continue;
        }
        // All of them first, so that several of a number stay in order.
        let count = take_all(arena, signal);
        for at in 0..count {
            let info = arena.taken[at];
            if at < usize::from(waited) || keeps(arena, signal, &info) {
                wait_again(arena, signal, at);
            }
        }
    }
}
