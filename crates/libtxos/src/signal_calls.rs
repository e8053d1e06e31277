//! The calls by which a program takes signals, or says who is to: sigaction(2), signal(2), sigwait(3),
//! sigwaitinfo(2), sigtimedwait(2). A program that is linked with this library gets them here, before the C
//! library's.
//!
//! Outside a transaction that can be rolled back they are those of the C library. Inside they note what came
//! from outside, so that it comes again after a rollback (see [`signals`]). A program that makes the system
//! calls by itself is not helped: the guard refuses those that take a signal. A handler that gives the
//! transaction up between the kernel's answer and the note loses the signal: a few instructions.
#![allow(unsafe_code)] // exporting under the names of the C library

use std::{
    ffi::{CStr, c_int, c_void},
    mem::{MaybeUninit, transmute},
    ptr::null_mut,
    sync::atomic::{AtomicPtr, Ordering},
};

use txos_protocol::NOTED;

use crate::{checkpoint::signals, sys::Mask};

type Handler = libc::sighandler_t;

unsafe extern "C" {
    /// What `sigaction` is in the C library.
    fn __sigaction(signal: c_int, new: *const libc::sigaction, old: *mut libc::sigaction) -> c_int;
}

/// See sigaction(2).
///
/// # Safety
/// As there.
#[unsafe(no_mangle)]
unsafe extern "C" fn sigaction(
    signal: c_int,
    new: *const libc::sigaction,
    old: *mut libc::sigaction,
) -> c_int {
    if !signals::is_watching() {
        // SAFETY: as the caller says.
        return unsafe { __sigaction(signal, new, old) };
    }
    let mask = Mask::block_all();
    // SAFETY: the pointers are null or valid, as the caller says; a `sigaction` of the library's has the
    // handler that the kernel calls with what it wants.
    let result = unsafe {
        let mut before = MaybeUninit::<libc::sigaction>::uninit();
        let mut result = __sigaction(signal, null_mut(), before.as_mut_ptr());
        if result == 0 {
            let before = before.assume_init_mut();
            signals::own_action(signal, before);
            if let Some(new) = new.as_ref() {
                let mut own = *new;
                let calls = signals::watch_also(signal, &mut own);
                result = __sigaction(signal, &raw const own, null_mut());
                if calls && result == 0 {
                    signals::expect(|other| other == signal);
                }
            }
            if let (0, Some(old)) = (result, old.as_mut()) {
                *old = *before;
            }
        }
        result
    };
    mask.set();
    result
}

/// See signal(2).
///
/// # Safety
/// As there.
#[unsafe(no_mangle)]
unsafe extern "C" fn signal(signal: c_int, handler: Handler) -> Handler {
    static NEXT: AtomicPtr<c_void> = AtomicPtr::new(null_mut());
    if !signals::is_watching()
        && let Some(next) = next(&NEXT, c"signal")
    {
        // SAFETY: the C library's function of this name has this type.
        let next = unsafe {
            transmute::<*mut c_void, unsafe extern "C" fn(c_int, Handler) -> Handler>(next)
        };
        // SAFETY: as the caller says.
        return unsafe { next(signal, handler) };
    }
    // SAFETY: a structure of integers, whose set is initialised; the rest is as the caller says.
    unsafe {
        let mut new: libc::sigaction = std::mem::zeroed();
        new.sa_sigaction = handler;
        new.sa_flags = libc::SA_RESTART;
        libc::sigemptyset(&raw mut new.sa_mask);
        libc::sigaddset(&raw mut new.sa_mask, signal);
        let mut old = MaybeUninit::<libc::sigaction>::uninit();
        match sigaction(signal, &raw const new, old.as_mut_ptr()) {
            0 => old.assume_init().sa_sigaction,
            _ => libc::SIG_ERR,
        }
    }
}

/// See sigtimedwait(2).
///
/// # Safety
/// As there.
#[unsafe(no_mangle)]
unsafe extern "C" fn sigtimedwait(
    set: *const libc::sigset_t,
    info: *mut libc::siginfo_t,
    timeout: *const libc::timespec,
) -> c_int {
    type Wait = unsafe extern "C" fn(
        *const libc::sigset_t,
        *mut libc::siginfo_t,
        *const libc::timespec,
    ) -> c_int;
    static NEXT: AtomicPtr<c_void> = AtomicPtr::new(null_mut());
    // The C library's can be cancelled (pthreads(7)), in a program with several threads.
    if !signals::is_watching()
        && let Some(next) = next(&NEXT, c"sigtimedwait")
    {
        // SAFETY: the C library's function of this name has this type, and the rest is as the caller says.
        return unsafe { transmute::<*mut c_void, Wait>(next)(set, info, timeout) };
    }
    // SAFETY: as the caller says; what the kernel has filled in is initialised.
    let taken = unsafe {
        let mut came = MaybeUninit::<libc::siginfo_t>::zeroed();
        let taken = take(set, came.as_mut_ptr(), timeout);
        if taken > 0 {
            let came = came.assume_init_mut();
            signals::took(taken as c_int, came);
            if let Some(info) = info.as_mut() {
                // As the C library shows it.
                if came.si_code == libc::SI_TKILL {
                    came.si_code = libc::SI_USER;
                }
                *info = *came;
            }
        }
        taken
    };
    match taken {
        error @ ..0 => {
            // SAFETY: the calling thread's own.
            unsafe { *libc::__errno_location() = -error as c_int };
            -1
        }
        signal => signal as c_int,
    }
}

/// Waits for one of these signals, as the kernel's call does; what is owed of them comes first.
///
/// # Safety
/// As there.
unsafe fn take(
    set: *const libc::sigset_t,
    info: *mut libc::siginfo_t,
    timeout: *const libc::timespec,
) -> i64 {
    // SAFETY: as the caller says.
    let wants = |signal| unsafe { !set.is_null() && libc::sigismember(set, signal) == 1 };
    let before = signals::is_watching().then(Mask::block_all);
    if let Some(before) = &before {
        signals::expect(wants);
        // Whoever waits for a signal has it blocked; in between nobody else may get it.
        before.and(wants).set();
    }
    let number = libc::SYS_rt_sigtimedwait;
    // SAFETY: as the caller says; a set of the kernel's has eight bytes, and it passes over what comes after.
    let taken = match unsafe { libc::syscall(number, set, info, timeout, 8, NOTED) } {
        // SAFETY: the calling thread's own.
        -1 => unsafe { -i64::from(*libc::__errno_location()) },
        taken => taken,
    };
    if let Some(before) = before {
        before.set();
    }
    taken
}

/// See sigwaitinfo(2).
///
/// # Safety
/// As there.
#[unsafe(no_mangle)]
unsafe extern "C" fn sigwaitinfo(set: *const libc::sigset_t, info: *mut libc::siginfo_t) -> c_int {
    // SAFETY: as the caller says.
    unsafe { sigtimedwait(set, info, null_mut()) }
}

/// See sigwait(3).
///
/// # Safety
/// As there.
#[unsafe(no_mangle)]
unsafe extern "C" fn sigwait(set: *const libc::sigset_t, signal: *mut c_int) -> c_int {
    loop {
        // SAFETY: as the caller says; the number of an error is the calling thread's own.
        unsafe {
            match (sigtimedwait(set, null_mut(), null_mut()), *libc::__errno_location()) {
                (-1, libc::EINTR) => {}
                (-1, error) => return error,
                (taken, _) => {
                    *signal = taken;
                    return 0;
                }
            }
        }
    }
}

/// The function of a name in the libraries after this one.
fn next(known: &AtomicPtr<c_void>, name: &CStr) -> Option<*mut c_void> {
    let mut next = known.load(Ordering::Relaxed);
    if next.is_null() {
        // SAFETY: looks a symbol up.
        next = unsafe { libc::dlsym(libc::RTLD_NEXT, name.as_ptr()) };
        known.store(next, Ordering::Relaxed);
    }
    (!next.is_null()).then_some(next)
}
