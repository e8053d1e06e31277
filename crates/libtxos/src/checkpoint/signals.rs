//! Signals that come from outside while a transaction runs: a handler's work is undone by a rollback, so they
//! are noted, and delivered again.
//!
//! At the beginning a handler of the library's takes the place of each of the program's. It notes the signal
//! in the arena, which is not rolled back, and calls the program's. At the end the program's are set again,
//! unless the program has set others meanwhile.
//!
//! What the program, or a member, does to itself is not noted: the next try does it again. That is a fault,
//! a timer, a signal that the process sends to itself; who else was a member is the session's to say.
//!
//! # Invariants
//!
//! - Only a process with one thread, and a checkpoint, has the library's handlers.
//! - A handler of the library's finds the program's as long as the process lives: a program that has got its
//!   address inside may set it or call it at any later time.

use core::{
    ffi::{c_int, c_void},
    mem::transmute,
    sync::atomic::{AtomicU64, AtomicUsize, Ordering},
};

use rustix::{process::getpid, thread::gettid};

use super::{
    arena::{Arena, existing},
    facts::{Action, SIGNALS},
    raw::syscall,
};

/// Signals that are noted; what comes after is not delivered again.
pub(super) const NOTED: usize = 1024;

/// The bytes of a `siginfo_t`.
pub(super) type Info = [u64; size_of::<libc::siginfo_t>() / 8];

type Handler = unsafe extern "C-unwind" fn(c_int, *mut libc::siginfo_t, *mut c_void);

/// The program's handlers, by signal.
static HANDLERS: [AtomicUsize; SIGNALS] = [const { AtomicUsize::new(0) }; SIGNALS];
/// The signals whose handler is the library's, and those of them whose own wants more than the number.
static WATCHED: AtomicU64 = AtomicU64::new(0);
static DETAILED: AtomicU64 = AtomicU64::new(0);

const WANTS_INFO: u64 = libc::SA_SIGINFO as u64;

/// Puts the library's handlers in the place of the program's.
pub(crate) fn watch() {
    let own: Handler = noting;
    let own = own as usize as u64;
    let (mut watched, mut detailed) = (0, 0);
    for (signal, handler) in HANDLERS.iter().enumerate().skip(1) {
        let Some(mut action) = Action::of(signal).filter(Action::calls) else { continue };
        if action.handler == own {
            continue;
        }
        handler.store(action.handler as usize, Ordering::Relaxed);
        watched |= 1 << (signal - 1);
        detailed |= u64::from(action.flags & WANTS_INFO != 0) << (signal - 1);
        action.handler = own;
        action.flags |= WANTS_INFO;
        action.set(signal);
    }
    WATCHED.store(watched, Ordering::Relaxed);
    DETAILED.store(detailed, Ordering::Relaxed);
    if let Some(arena) = existing() {
        // SAFETY: the arena is mapped; no handler runs, since signals wait while the library is at work.
        unsafe { (*arena).noted = 0 };
    }
}

/// Gives the program its handlers back, but for those that it has set itself meanwhile.
pub(crate) fn unwatch() {
    let own: Handler = noting;
    let (watched, detailed) =
        (WATCHED.swap(0, Ordering::Relaxed), DETAILED.load(Ordering::Relaxed));
    for (signal, handler) in HANDLERS.iter().enumerate().skip(1) {
        let bit = 1 << (signal - 1);
        if watched & bit == 0 {
            continue;
        }
        let now = Action::of(signal);
        if let Some(mut action) = now.filter(|action| action.handler == own as usize as u64) {
            action.handler = handler.load(Ordering::Relaxed) as u64;
            if detailed & bit == 0 {
                action.flags &= !WANTS_INFO;
            }
            action.set(signal);
        }
    }
}

/// The library's handler.
unsafe extern "C-unwind" fn noting(
    signal: c_int,
    info: *mut libc::siginfo_t,
    context: *mut c_void,
) {
    // A child that was forked inside has handlers and no arena: nobody rolls it back.
    if let Some(arena) = existing() {
        // SAFETY: the arena is mapped, and the process has one thread; the information is the kernel's, or
        // that of a program that calls the handler itself.
        unsafe { (*arena).note(signal, info) };
    }
    let Some(handler) = usize::try_from(signal).ok().and_then(|signal| HANDLERS.get(signal)) else {
        return;
    };
    let handler = handler.load(Ordering::Relaxed);
    if handler != 0 {
        // SAFETY: it is what the program gave sigaction(2) as a handler; one that takes the number alone
        // passes over the rest in this calling convention.
        unsafe { transmute::<usize, Handler>(handler)(signal, info, context) };
    }
}

impl Arena {
    /// Notes a signal that came from outside, as far as can be told here.
    ///
    /// # Safety
    /// `info` is null or valid.
    unsafe fn note(&mut self, signal: c_int, info: *const libc::siginfo_t) {
        // SAFETY: see above; the members are plain numbers, whatever kind of signal it is.
        let Some((code, sender)) =
            (unsafe { info.as_ref().map(|info| (info.si_code, info.si_pid())) })
        else {
            return;
        };
        if is_own(signal, code, sender, self.owner) {
            return;
        }
        // SAFETY: a `siginfo_t` has this size.
        let bytes = unsafe { info.cast::<Info>().read_unaligned() };
        let noted = &mut self.signals[..self.noted];
        // Of a standard one the kernel keeps no second either (signal(7)).
        let again =
            |other: &Info| signal < 32 && other[0] == bytes[0] && sender_of(other) == sender;
        if !noted.iter().any(again) && self.noted < NOTED {
            self.signals[self.noted] = bytes;
            self.noted += 1;
        }
    }
}

/// Whether a signal is the program's own doing.
fn is_own(signal: c_int, code: c_int, sender: i32, process: i32) -> bool {
    let faults = [libc::SIGSEGV, libc::SIGBUS, libc::SIGILL, libc::SIGFPE, libc::SIGTRAP];
    // Interval timers, and limits of the process.
    let kernels =
        [libc::SIGALRM, libc::SIGVTALRM, libc::SIGPROF, libc::SIGXCPU, libc::SIGXFSZ, libc::SIGSYS];
    match code {
        libc::SI_TIMER => true,
        libc::SI_USER | libc::SI_QUEUE | libc::SI_TKILL => sender == process,
        _ => code > 0 && (faults.contains(&signal) || kernels.contains(&signal)),
    }
}

/// The process that sent a signal: the fourth number of its information (sigaction(2)).
fn sender_of(info: &Info) -> i32 {
    info[2] as i32
}

/// The processes from which the noted signals came.
pub(crate) fn senders() -> Vec<i32> {
    let Some(arena) = existing() else { return Vec::new() };
    // SAFETY: the arena is mapped; no handler runs, since signals wait while the library is at work.
    let noted = unsafe { &(&(*arena).signals)[..(*arena).noted] };
    let mut senders: Vec<i32> = noted.iter().map(sender_of).filter(|sender| *sender > 0).collect();
    senders.sort_unstable();
    senders.dedup();
    senders
}

/// Forgets the noted signals of some senders, who are members.
pub(crate) fn forget(members: &[i32]) {
    let Some(arena) = existing() else { return };
    // SAFETY: as above.
    let arena = unsafe { &mut *arena };
    let mut kept = 0;
    for at in 0..arena.noted {
        if !members.contains(&sender_of(&arena.signals[at])) {
            arena.signals[kept] = arena.signals[at];
            kept += 1;
        }
    }
    arena.noted = kept;
}

/// Sends the process once more what was noted; it is delivered when it is unblocked.
pub(super) fn send_again(arena: &mut Arena) {
    let (process, thread) = (getpid().as_raw_pid(), gettid().as_raw_pid());
    for info in &arena.signals[..arena.noted] {
        let signal = info[0] as i32;
        // SAFETY: the information is a `siginfo_t` that the kernel has given, and outlives the call.
        unsafe { syscall!(libc::SYS_rt_tgsigqueueinfo, process, thread, signal, info.as_ptr()) };
    }
    arena.noted = 0;
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_the_programs_own() {
        let (me, other) = (7, 8);
        assert!(is_own(libc::SIGUSR1, libc::SI_USER, me, me));
        assert!(!is_own(libc::SIGUSR1, libc::SI_USER, other, me));
        assert!(!is_own(libc::SIGUSR1, libc::SI_QUEUE, other, me));
        assert!(is_own(libc::SIGUSR1, libc::SI_TIMER, 0, me));
        assert!(is_own(libc::SIGALRM, libc::SI_KERNEL, 0, me));
        assert!(!is_own(libc::SIGALRM, libc::SI_USER, other, me));
        assert!(!is_own(libc::SIGINT, libc::SI_KERNEL, 0, me));
        assert!(!is_own(libc::SIGCHLD, libc::CLD_EXITED, other, me));
        assert!(is_own(libc::SIGSEGV, 1, 0, me));
        assert!(!is_own(libc::SIGSEGV, libc::SI_USER, other, me));
    }
}
