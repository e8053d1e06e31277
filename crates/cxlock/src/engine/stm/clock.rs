//! The version clock: every change of a cell or a lock gets a number of its own.
//!
//! Order that everything in the engine rests on: a writer *holds* what it will change, then
//! ticks; a reader takes the time, then looks whether words are free and unchanged. Both touch the
//! clock with acquire and release, so of a tick and a look one is first: either the reader sees
//! the word held, or the writer's number is larger than the reader's time.

use crate::sync::{AtomicU64, Ordering, Padded};

#[cfg(not(loom))]
static CLOCK: Padded<AtomicU64> = Padded(AtomicU64::new(0));

#[cfg(loom)]
loom::lazy_static! {
    static ref CLOCK: Padded<AtomicU64> = Padded(AtomicU64::new(0));
}

/// The time: every change with this number or a smaller one is held or done.
#[inline]
pub(crate) fn now() -> u64 {
    CLOCK.0.load(Ordering::Acquire)
}

/// A new number, larger than every time seen before.
#[inline]
pub(crate) fn tick() -> u64 {
    CLOCK.0.fetch_add(1, Ordering::AcqRel) + 1
}
