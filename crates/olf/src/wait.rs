//! How a thread waits: spin, then yield the processor, then sleep.
//!
//! Spinning alone collapses once there are more threads than processors, because the thread that is
//! waited for cannot run. Without `std` there is nothing but spinning.
//!
//! *The gate.* Writers commit in the order of their epochs, so one that has an epoch and loses its processor
//! holds up all those behind it; one that waits without an epoch holds up nobody. So a writer waits
//! *before* it takes an epoch while there are as many at work as there are processors; or while there
//! is any, if its recent sections ran into others or waited long for their turn, for then working ahead
//! is work wasted. The gate opens after a bounded time in any case: it is a matter of speed, no part of the algorithm.
//!
//! A sleeper publishes the commit it waits for and sleeps for at most [`NAP`]. The committer looks for
//! sleepers with a plain load after its store, without the fence that would make the hand-over exact:
//! a wake-up lost to that race costs one nap, and no commit pays for it.

use crate::group::Domain;
use crate::sync::Ordering;

/// Doublings of the spin before the thread yields: 2^6 pauses, a few microseconds at the most.
#[cfg(all(feature = "std", not(any(loom, shuttle))))]
const SPINS: u32 = 6;
/// Yields before the thread sleeps.
#[cfg(all(feature = "std", not(any(loom, shuttle))))]
const YIELDS: u32 = 24;

/// The state of one wait.
#[derive(Default)]
pub(crate) struct Backoff {
    #[cfg(all(feature = "std", not(any(loom, shuttle))))]
    step: u32,
}

#[cfg(all(feature = "std", not(any(loom, shuttle))))]
mod imp {
    use super::{Backoff, SPINS, YIELDS};
    use crate::epoch::STEP;
    use crate::group::Domain;
    use crate::sync::{AtomicU64, Ordering, spin};
    use std::sync::{Condvar, Mutex, PoisonError};
    use std::time::Duration;

    /// The longest sleep between two looks.
    const NAP: Duration = Duration::from_micros(500);

    /// Where the thread of a seat sleeps.
    pub(crate) struct Bed {
        lock: Mutex<()>,
        bell: Condvar,
        /// The commit that the sleeper waits for; `u64::MAX` when nobody sleeps.
        wait_for: AtomicU64,
    }

    impl Bed {
        pub(crate) const fn new() -> Self {
            Self { lock: Mutex::new(()), bell: Condvar::new(), wait_for: AtomicU64::new(u64::MAX) }
        }
    }

    impl Backoff {
        /// Spins or yields; says whether it is time to sleep instead.
        pub(super) fn light(&mut self) -> bool {
            if self.step <= SPINS {
                for _ in 0..1u32 << self.step {
                    spin();
                }
            } else if self.step <= SPINS + YIELDS {
                std::thread::yield_now();
            } else {
                return true;
            }
            self.step += 1;
            false
        }

        /// Whether this wait was a long one.
        pub(super) fn beyond_spinning(&self) -> bool {
            self.step > SPINS
        }

        /// Pauses; whoever waits for readers has nobody to wake it, as readers must not pay for that.
        pub(crate) fn pause(&mut self) {
            if self.light() {
                std::thread::sleep(Duration::from_micros(50));
            }
        }
    }

    /// Looks at the gate before it opens in any case: ten milliseconds or more.
    const GATE_TRIES: u32 = 128;

    /// The number of processors, found out once.
    fn processors() -> u64 {
        static FOUND: AtomicU64 = AtomicU64::new(0);
        match FOUND.load(Ordering::Relaxed) {
            0 => {
                let n = std::thread::available_parallelism().map_or(1, |n| n.get() as u64);
                FOUND.store(n, Ordering::Relaxed);
                n
            }
            n => n,
        }
    }

    /// Waits until few enough writers are at work.
    #[inline]
    pub(crate) fn gate(d: Domain<'_>, eager: bool) {
        if !open(d, eager) {
            wait_at_gate(d, eager);
        }
    }

    fn open(d: Domain<'_>, eager: bool) -> bool {
        let committed = d.counters.committed.0.load(Ordering::Relaxed);
        let at_work = d.counters.max.0.load(Ordering::Relaxed).saturating_sub(committed) / STEP;
        at_work < if eager { processors() } else { 1 }
    }

    #[cold]
    fn wait_at_gate(d: Domain<'_>, eager: bool) {
        let mut backoff = Backoff::default();
        for _ in 0..GATE_TRIES {
            backoff.pause();
            if open(d, eager) {
                return;
            }
        }
    }

    /// Sleeps until `target` is committed, or for a nap.
    pub(super) fn sleep(d: Domain<'_>, seat: usize, target: u64) {
        let bed = &d.seats[seat].bed;
        d.counters.parked.fetch_add(1, Ordering::SeqCst);
        let guard = bed.lock.lock().unwrap_or_else(PoisonError::into_inner);
        bed.wait_for.store(target, Ordering::SeqCst);
        if d.counters.committed.0.load(Ordering::SeqCst) < target {
            drop(bed.bell.wait_timeout(guard, NAP));
        }
        bed.wait_for.store(u64::MAX, Ordering::SeqCst);
        d.counters.parked.fetch_sub(1, Ordering::SeqCst);
    }

    /// Wakes the members that wait for `committed` or less.
    #[cold]
    pub(super) fn wake(d: Domain<'_>, committed: u64) {
        for seat in &d.seats[..d.high()] {
            if seat.bed.wait_for.load(Ordering::SeqCst) <= committed {
                // The lock makes sure that the sleeper is either asleep or about to look again.
                drop(seat.bed.lock.lock().unwrap_or_else(PoisonError::into_inner));
                seat.bed.bell.notify_one();
            }
        }
    }
}

#[cfg(not(all(feature = "std", not(any(loom, shuttle)))))]
mod imp {
    use super::{Backoff, Domain};
    use crate::sync::spin;

    impl Backoff {
        pub(super) fn light(&mut self) -> bool {
            spin();
            false
        }

        pub(super) fn beyond_spinning(&self) -> bool {
            false
        }

        pub(crate) fn pause(&mut self) {
            self.light();
        }
    }

    /// Without threads that yield, or under a checker, whoever wants an epoch takes it.
    pub(crate) fn gate(_: Domain<'_>, _: bool) {}
    pub(super) fn sleep(_: Domain<'_>, _: usize, _: u64) {}
    pub(super) fn wake(_: Domain<'_>, _: u64) {}
}

#[cfg(all(feature = "std", not(any(loom, shuttle))))]
pub(crate) use imp::Bed;
pub(crate) use imp::gate;

/// Waits until `C >= target` and returns `C`.
pub(crate) fn committed(d: Domain<'_>, seat: usize, target: u64) -> u64 {
    committed_noting(d, seat, target, &mut false)
}

/// [`committed`]; sets `slow` if spinning was not enough.
#[inline]
pub(crate) fn committed_noting(d: Domain<'_>, seat: usize, target: u64, slow: &mut bool) -> u64 {
    let mut backoff = Backoff::default();
    loop {
        // Acquire: what the writers up to `C` stored is visible from here on.
        let c = d.counters.committed.0.load(Ordering::Acquire);
        if c >= target {
            *slow |= backoff.beyond_spinning();
            return c;
        }
        if backoff.light() {
            imp::sleep(d, seat, target);
        }
    }
}

/// Called after `C` became `committed`.
#[inline]
pub(crate) fn announce(d: Domain<'_>, committed: u64) {
    if d.counters.parked.load(Ordering::Relaxed) > 0 {
        imp::wake(d, committed);
    }
}
