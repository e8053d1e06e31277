//! What happened to the sections of a lock.
//!
//! Counters are off unless a lock is made with them: one shared counter a section would cost more
//! than the section. They lie in stripes, so that threads seldom meet in one, and are changed
//! outside of hardware transactions, which would take the change back or collide in it.

use crate::restart::Reason;
use crate::sync::{AtomicU64, Ordering, Padded};
use std::fmt;

/// Counts of a lock, summed over all threads.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Stats {
    /// Sections that committed as transactions.
    pub commits: u64,
    /// Sections that ran to their end under mutual exclusion, asked for or forced.
    pub exclusive: u64,
    /// Attempts that lost a conflict.
    pub conflicts: u64,
    /// Attempts that ended because the section asked for exclusion (input or output).
    pub escapes: u64,
    /// Attempts that outgrew the engine.
    pub overflows: u64,
    /// Attempts that met a held lock.
    pub busy: u64,
    /// Attempts that the hardware cancelled.
    pub cancelled: u64,
    /// Attempts given up at once: no transactions here.
    pub unavailable: u64,
}

impl fmt::Display for Stats {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { commits, exclusive, conflicts, escapes, overflows, busy, cancelled, .. } = self;
        write!(
            f,
            "{commits} committed, {exclusive} exclusive; restarts: {conflicts} conflicts, \
             {escapes} escapes, {overflows} overflows, {busy} busy, {cancelled} cancelled"
        )
    }
}

#[derive(Debug, Clone, Copy)]
pub(crate) enum Count {
    Commit,
    Exclusive,
    Restart(Reason),
}

const STRIPES: usize = 8;
const KINDS: usize = 8;

/// Counters of one lock.
#[derive(Debug, Default)]
pub(crate) struct Counters {
    stripes: [Padded<[AtomicU64; KINDS]>; STRIPES],
}

impl Counters {
    pub(crate) fn add(&self, count: Count) {
        let kind = match count {
            Count::Commit => 0,
            Count::Exclusive => 1,
            Count::Restart(Reason::Conflict) => 2,
            Count::Restart(Reason::NeedExclusive) => 3,
            Count::Restart(Reason::Overflow) => 4,
            Count::Restart(Reason::Busy) => 5,
            Count::Restart(Reason::Hardware) => 6,
            Count::Restart(Reason::Unavailable) => 7,
        };
        self.stripes[stripe()].0[kind].fetch_add(1, Ordering::Relaxed);
    }

    pub(crate) fn sum(&self) -> Stats {
        let sum = |kind: usize| {
            self.stripes.iter().map(|s| s.0[kind].load(Ordering::Relaxed)).sum::<u64>()
        };
        Stats {
            commits: sum(0),
            exclusive: sum(1),
            conflicts: sum(2),
            escapes: sum(3),
            overflows: sum(4),
            busy: sum(5),
            cancelled: sum(6),
            unavailable: sum(7),
        }
    }
}

/// Stripe of the calling thread: threads are numbered as they first count.
fn stripe() -> usize {
    use std::sync::atomic::AtomicUsize;
    static NEXT: AtomicUsize = AtomicUsize::new(0);
    std::thread_local! {
        static MINE: usize = NEXT.fetch_add(1, Ordering::Relaxed) % STRIPES;
    }
    MINE.try_with(|mine| *mine).unwrap_or(0)
}
