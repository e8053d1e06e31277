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
//! Signals that the program took itself (sigwait(3)), and those of handlers that it set inside, are noted by
//! the [calls](crate::signal_calls) that it made for that. After a rollback a noted signal is *owed*: it is
//! sent again as soon as the program can take it, by a handler or since it is blocked; at the latest when the
//! transaction has ended. Sent at once it would meet the disposition of before the beginning, and could kill.
//!
//! # Invariants
//!
//! - Only a process with one thread, and a checkpoint, has the library's handlers.
//! - What is owed stands before what was noted since, and no rollback and no new beginning drops it.
//! - A handler of the library's finds the program's as long as the process lives: a program that has got its
//!   address inside may set it or call it at any later time.

use core::{
    ffi::{c_int, c_void},
    mem::transmute,
    sync::atomic::{AtomicU64, AtomicUsize, Ordering},
};

use txos_protocol::RUNG;

use super::{
    arena::{Arena, existing},
    facts::{Action, SIGNALS},
    pending,
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
    hear_of_loss();
    if let Some(arena) = existing() {
        // SAFETY: the arena is mapped; no handler runs, since signals wait while the library is at work.
        unsafe {
            (*arena).noted = (*arena).owed;
            (*arena).watching = true;
        }
    }
}

/// The signal by which the session tells of a loss: the kernel drops it where nobody handles it.
const BELL: usize = libc::SIGURG as usize;

/// Has a handler for the session's [bell](RUNG) also if the program has none for that signal.
fn hear_of_loss() {
    let own: Handler = noting;
    let bit = 1 << (BELL - 1);
    if WATCHED.load(Ordering::Relaxed) & bit != 0 {
        return;
    }
    // SAFETY: structures of integers, whose set is filled; the handler takes what it is given.
    unsafe {
        let mut action: libc::sigaction = core::mem::zeroed();
        action.sa_sigaction = own as usize;
        action.sa_flags = libc::SA_SIGINFO | libc::SA_RESTART | libc::SA_ONSTACK;
        libc::sigfillset(&raw mut action.sa_mask);
        let mut before: libc::sigaction = core::mem::zeroed();
        if libc::sigaction(libc::SIGURG, &raw const action, &raw mut before) == 0 {
            HANDLERS[BELL].store(before.sa_sigaction, Ordering::Relaxed);
            WATCHED.fetch_or(bit, Ordering::Relaxed);
        }
    }
}

/// Takes the session's bell, if it has rung and was not heard: the transaction is over, and the next one must
/// not take it for its own. Signals are blocked, and the session has answered an end.
pub(crate) fn miss_bell() {
    if !pending::has(pending::waiting(), libc::SIGURG) {
        return;
    }
    if let Some((signal, info)) = pending::take(1 << (BELL - 1)) {
        // SAFETY: the information is a `siginfo_t` that the kernel has given.
        let bell = unsafe { is_bell(info.as_ptr().cast()) };
        // Another's: it is the program's again. There is always room for a standard signal.
        if !bell {
            let _ = pending::put_back(signal, &info);
        }
    }
}

/// Whether a signal is the session's bell.
///
/// # Safety
/// The pointer is null or to a `siginfo_t`.
unsafe fn is_bell(info: *const libc::siginfo_t) -> bool {
    // SAFETY: see above; what sigqueue(3) sends has a value.
    unsafe {
        info.as_ref().is_some_and(|info| {
            (info.si_signo, info.si_code) == (libc::SIGURG, libc::SI_QUEUE)
                && info.si_value().sival_ptr as i64 == RUNG
        })
    }
}

/// The arena while a transaction runs that can roll this process back.
fn watching() -> Option<*mut Arena> {
    // SAFETY: the arena is mapped, and the process has one thread.
    existing().filter(|arena| unsafe { (**arena).watching })
}

/// Whether a transaction runs that can roll this process back.
pub(crate) fn is_watching() -> bool {
    watching().is_some()
}

/// Gives the program its handlers back, but for those that it has set itself meanwhile.
pub(crate) fn unwatch() {
    if let Some(arena) = existing() {
        // SAFETY: as above.
        unsafe {
            (*arena).noted = (*arena).owed;
            (*arena).watching = false;
        }
    }
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
    // SAFETY: the information is the kernel's, or that of a program that calls the handler itself.
    if unsafe { is_bell(info) } {
        // Comes back only if there is nothing to end.
        return crate::member::lost_already();
    }
    // A child that was forked inside has handlers and no arena: nobody rolls it back.
    if let Some(arena) = watching() {
        // SAFETY: the arena is mapped, and the process has one thread; the information is the kernel's, or
        // that of a program that calls the handler itself.
        unsafe { (*arena).note(signal, info) };
    }
    let Some(handler) = usize::try_from(signal).ok().and_then(|signal| HANDLERS.get(signal)) else {
        return;
    };
    let handler = handler.load(Ordering::Relaxed);
    if ![libc::SIG_DFL, libc::SIG_IGN].contains(&handler) {
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
        // Those that waited at the beginning come first.
        if let Some(waited @ 1..) = self.waited.get_mut(signal as usize) {
            *waited -= u16::from(*waited != pending::ALL);
        }
        if is_own(signal, code, sender, self.owner) {
            return;
        }
        // SAFETY: a `siginfo_t` has this size.
        let bytes = unsafe { info.cast::<Info>().read_unaligned() };
        let noted = &mut self.signals[self.owed..self.noted];
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
pub(super) fn is_own(signal: c_int, code: c_int, sender: i32, process: i32) -> bool {
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
pub(super) fn sender_of(info: &Info) -> i32 {
    info[2] as i32
}

/// Forgets the noted signals that members sent, as `is_member` knows of a process, and notes whose signals that
/// wait a rollback is to drop. No memory is asked for: a handler may be the caller.
pub(crate) fn forget(is_member: impl Fn(i32) -> bool) {
    let Some(arena) = existing() else { return };
    // SAFETY: the arena is mapped; no handler runs, since signals wait while the library is at work.
    let arena = unsafe { &mut *arena };
    let mut last = (0, false);
    let (owed, noted) = (arena.owed, arena.noted);
    arena.keep(owed, noted, |info| {
        let sender = sender_of(info);
        if sender != last.0 {
            last = (sender, sender > 0 && is_member(sender));
        }
        !last.1
    });
    if arena.watching {
        pending::look(arena, is_member);
    }
}

impl Arena {
    /// Drops those of a part of the signals that `keeps` does not want.
    fn keep(&mut self, from: usize, to: usize, mut keeps: impl FnMut(&Info) -> bool) {
        let mut kept = from;
        for at in from..self.noted {
            if at >= to || keeps(&self.signals[at]) {
                self.signals[kept] = self.signals[at];
                kept += 1;
            }
        }
        self.owed -= if to == self.owed { self.noted - kept } else { 0 };
        self.noted = kept;
    }

    /// Sends the process what is owed of the signals that `wanted` names; it is delivered when it is
    /// unblocked.
    fn send_owed(&mut self, wanted: impl Fn(i32) -> bool) {
        let owed = self.owed;
        self.keep(0, owed, |info| {
            let signal = info[0] as i32;
            !wanted(signal) || !pending::put_back(signal, info)
        });
    }

    /// One more is owed, after those that are.
    pub(super) fn owe_also(&mut self, info: &Info) {
        if self.noted < NOTED {
            self.signals.copy_within(self.owed..self.noted, self.owed + 1);
            self.signals[self.owed] = *info;
            self.owed += 1;
            self.noted += 1;
        }
    }
}

/// A rollback: all that was noted is owed.
pub(super) fn owe(arena: &mut Arena) {
    arena.owed = arena.noted;
    arena.watching = false;
}

/// Sends what is owed and can be taken: by a handler, or later, since `is_blocked` once the library is done.
/// Everything, if no transaction will roll the process back any more.
pub(crate) fn settle(is_blocked: impl Fn(i32) -> bool) {
    let Some(arena) = existing() else { return };
    // SAFETY: the arena is mapped; no handler runs, since signals wait while the library is at work.
    let arena = unsafe { &mut *arena };
    if arena.owed == 0 {
        return;
    }
    let over = !arena.watching;
    arena.send_owed(|signal| over || is_blocked(signal) || has_handler(signal));
}

fn has_handler(signal: c_int) -> bool {
    usize::try_from(signal).ok().and_then(Action::of).is_some_and(|action| action.calls())
}

/// The program takes these signals itself, and has them blocked: what is owed of them is sent first.
pub(crate) fn expect(wanted: impl Fn(i32) -> bool) {
    let Some(arena) = watching() else { return };
    // SAFETY: as above.
    unsafe { (*arena).send_owed(wanted) };
}

/// The program has taken a signal itself.
pub(crate) fn took(signal: c_int, info: &libc::siginfo_t) {
    if let Some(arena) = watching() {
        // SAFETY: as above, and the information is valid.
        unsafe { (*arena).note(signal, info) };
    }
}

/// What the program itself has set for a signal, of which `action` is what the kernel knows.
pub(crate) fn own_action(signal: c_int, action: &mut libc::sigaction) {
    let own: Handler = noting;
    let Some(handler) = usize::try_from(signal).ok().and_then(|signal| HANDLERS.get(signal)) else {
        return;
    };
    if action.sa_sigaction == own as usize {
        action.sa_sigaction = handler.load(Ordering::Relaxed);
        if DETAILED.load(Ordering::Relaxed) & (1 << (signal - 1)) == 0 {
            action.sa_flags &= !libc::SA_SIGINFO;
        }
    }
}

/// The program sets a handler inside: the library's takes its place in `action`, so that what it handles is
/// noted. Signals are blocked. Gives whether what is owed of the signal can be sent.
pub(crate) fn watch_also(signal: c_int, action: &mut libc::sigaction) -> bool {
    let Some(handler) = usize::try_from(signal).ok().and_then(|signal| HANDLERS.get(signal)) else {
        return false;
    };
    let bit = 1u64 << (signal - 1).clamp(0, 63);
    if [libc::SIG_DFL, libc::SIG_IGN].contains(&action.sa_sigaction) {
        WATCHED.fetch_and(!bit, Ordering::Relaxed);
        return false;
    }
    handler.store(action.sa_sigaction, Ordering::Relaxed);
    WATCHED.fetch_or(bit, Ordering::Relaxed);
    match action.sa_flags & libc::SA_SIGINFO {
        0 => DETAILED.fetch_and(!bit, Ordering::Relaxed),
        _ => DETAILED.fetch_or(bit, Ordering::Relaxed),
    };
    let own: Handler = noting;
    action.sa_sigaction = own as usize;
    action.sa_flags |= libc::SA_SIGINFO;
    true
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
