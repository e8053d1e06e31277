//! The word that is a lock, and the version of a cell: one layout for both.
//!
//! ```text
//!   63                                   2   1    0
//!   +-------------------------------------+---+---+
//!   | version: the clock at its last change | P | H |
//!   +-------------------------------------+---+---+
//! ```
//!
//! `H`: held. Of a lock: a thread is inside exclusively. Of a cell: a commit or an exclusive writer
//! is about to change it. `P`: somebody sleeps until the word is free (locks alone; never without
//! `H`). A lock is therefore a cell that transactions read to enter (`xtest`) and that an exclusive
//! thread changes (`xcas`): nothing else keeps the two apart.

use crate::sync::{AtomicU64, Ordering, const_outside_loom};

const HELD: u64 = 1;
const PARKED: u64 = 2;
const VERSION_SHIFT: u32 = 2;

/// What a word was at a moment.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Stamp(u64);

impl Stamp {
    /// Whether somebody held the word.
    #[must_use]
    #[inline]
    pub fn is_held(self) -> bool {
        self.0 & HELD != 0
    }

    /// The clock at the last change.
    #[must_use]
    #[inline]
    pub fn version(self) -> u64 {
        self.0 >> VERSION_SHIFT
    }

    pub(crate) fn is_parked(self) -> bool {
        self.0 & PARKED != 0
    }
}

/// A versioned lock.
#[derive(Debug)]
pub struct Word(AtomicU64);

impl Default for Word {
    fn default() -> Self {
        Self::new()
    }
}

impl Word {
    const_outside_loom! {
        /// A free word of version 0.
        #[must_use]
        pub fn new() -> Self {
            Self(AtomicU64::new(0))
        }
    }

    /// What the word is now; whatever was done before its last change is visible after.
    #[must_use]
    #[inline]
    pub fn load(&self) -> Stamp {
        #[cfg(loom)]
        if crate::sync::model::strong_loads() {
            return Stamp(self.0.fetch_add(0, Ordering::AcqRel));
        }
        Stamp(self.0.load(Ordering::Acquire))
    }

    /// Holds the word if it is still `seen`, and that was free. (`xcas`)
    #[must_use]
    #[inline]
    pub fn try_hold(&self, seen: Stamp) -> bool {
        !seen.is_held()
            && self
                .0
                .compare_exchange(seen.0, seen.0 | HELD, Ordering::AcqRel, Ordering::Relaxed)
                .is_ok()
    }

    /// Frees a held word with the version that it gets, and gives what it was: with somebody asleep
    /// the caller must wake.
    #[inline]
    pub fn free(&self, version: u64) -> Stamp {
        Stamp(self.0.swap(version << VERSION_SHIFT, Ordering::AcqRel))
    }

    /// Frees a held word on which nobody sleeps: a cell's.
    #[inline]
    pub(crate) fn free_cell(&self, version: u64) {
        // Loom may order a store before exchanges that have happened already.
        #[cfg(loom)]
        if crate::sync::model::strong_loads() {
            self.free(version);
            return;
        }
        self.0.store(version << VERSION_SHIFT, Ordering::Release);
    }

    /// Notes that somebody sleeps, if the word is still `seen` and held.
    pub(crate) fn park(&self, seen: Stamp) -> bool {
        seen.is_held()
            && self
                .0
                .compare_exchange(seen.0, seen.0 | PARKED, Ordering::AcqRel, Ordering::Relaxed)
                .is_ok()
    }

    /// Address, the order in which commits hold words.
    pub(crate) fn address(&self) -> usize {
        std::ptr::from_ref(self).addr()
    }
}
