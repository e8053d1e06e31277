//! What txos was started with: the signal state, for its commands (see [`SignalState`]), and descriptors.
//!
//! The signal state is read before `main`: by then the Rust runtime has ignored `SIGPIPE`, whatever it was.
#![allow(unsafe_code)] // a function that runs before main has to be named to the linker; descriptors are numbers

use std::{
    os::fd::{FromRawFd, OwnedFd, RawFd},
    sync::atomic::{AtomicU64, Ordering},
};

use txos_view::SignalState;

static IGNORED: AtomicU64 = AtomicU64::new(0);
static BLOCKED: AtomicU64 = AtomicU64::new(0);

// SAFETY: the section holds pointers to functions that are called before `main` with the program's
// arguments, which a function may leave alone; this one uses system calls and atomics only, which need
// no runtime.
#[used]
#[unsafe(link_section = ".init_array")]
static READ: extern "C" fn() = read;

extern "C" fn read() {
    let state = SignalState::current();
    IGNORED.store(state.ignored, Ordering::Relaxed);
    BLOCKED.store(state.blocked, Ordering::Relaxed);
}

/// A descriptor whose number stands on the command line of a hidden verb. To be named once.
pub fn descriptor(number: RawFd) -> OwnedFd {
    // SAFETY: whoever started this process made the descriptor for it alone, and each verb names each of
    // its own once.
    unsafe { OwnedFd::from_raw_fd(number) }
}

/// What the caller of txos ignored and blocked.
pub fn signals() -> SignalState {
    SignalState {
        ignored: IGNORED.load(Ordering::Relaxed),
        blocked: BLOCKED.load(Ordering::Relaxed),
    }
}
