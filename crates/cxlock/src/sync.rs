//! The one place that says where atomics, locks, threads and thread-locals come from: `std`, or
//! loom when the crate is built with `--cfg loom` for model checking.
//!
//! Thresholds are small under loom, so that every waiting loop reaches its slow path within the
//! few steps that a model can explore.

#[cfg(not(loom))]
mod imp {
    pub(crate) use std::hint::spin_loop;
    pub(crate) use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};
    pub(crate) use std::sync::{Condvar, Mutex, PoisonError};
    pub(crate) use std::thread::yield_now;
    pub(crate) use std::thread_local;

    /// Busy rounds before a waiter gives its processor away.
    pub(crate) const SPINS: u32 = 7;
    /// Rounds of giving the processor away before a waiter sleeps.
    pub(crate) const YIELDS: u32 = 8;
    /// Lost conflicts before a section is run under mutual exclusion.
    pub(crate) const CONFLICT_LIMIT: u32 = 64;
    /// Rounds that a transaction waits for a cell that another one holds, before it restarts.
    pub(crate) const CELL_PATIENCE: u32 = 64;
}

#[cfg(loom)]
mod imp {
    pub(crate) use loom::hint::spin_loop;
    pub(crate) use loom::sync::atomic::{AtomicU32, AtomicU64, Ordering};
    pub(crate) use loom::sync::{Condvar, Mutex};
    pub(crate) use loom::thread::yield_now;
    pub(crate) use loom::thread_local;
    pub(crate) use std::sync::PoisonError;

    pub(crate) const SPINS: u32 = 0;
    pub(crate) const YIELDS: u32 = 1;
    pub(crate) const CONFLICT_LIMIT: u32 = 2;
    pub(crate) const CELL_PATIENCE: u32 = 1;
}

pub(crate) use imp::*;

/// How loom sees loads of words.
///
/// Loom remembers one last access to each atomic when it looks for races, so a thread's own load
/// hides another's earlier one, and interleavings are missed. With *strong* loads (exchanges that
/// change nothing) every interleaving is found, but every load gives the newest value; with *weak*
/// ones stale values are found too. Models are explored in both ways.
#[cfg(loom)]
pub mod model {
    use std::cell::Cell;

    std::thread_local! {
        // Loom runs all threads of a model on one thread of the system.
        static STRONG: Cell<bool> = const { Cell::new(true) };
    }

    /// Chooses for the models that the calling thread will explore.
    pub fn set_strong_loads(strong: bool) {
        STRONG.set(strong);
    }

    pub(crate) fn strong_loads() -> bool {
        STRONG.get()
    }
}

/// A function that is `const` outside loom, whose atomics cannot be made in constants.
macro_rules! const_outside_loom {
    ($(#[$meta:meta])* $vis:vis fn $($rest:tt)*) => {
        #[cfg(not(loom))]
        $(#[$meta])*
        $vis const fn $($rest)*
        #[cfg(loom)]
        $(#[$meta])*
        $vis fn $($rest)*
    };
}
pub(crate) use const_outside_loom;

/// Puts a value on cache lines of its own (two, because processors fetch pairs of lines).
#[repr(align(128))]
#[derive(Debug, Default)]
pub(crate) struct Padded<T>(pub(crate) T);
