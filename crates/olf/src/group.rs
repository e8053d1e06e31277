//! Groups: lists that share counters, and the seats of the threads that use them.
//!
//! One atomic section can change all the lists of a group, and its writers commit one after the other
//! even where they touch different lists. Lists that are never changed together should be in groups of
//! their own. A group of `SEATS` seats with `LOG` log records each takes `SEATS * (128 + 40 * LOG)`
//! bytes and a little more, which is all the memory that the algorithm needs besides the nodes.

use crate::epoch::{Counters, INACTIVE};
use crate::error::Error;
use crate::member::Member;
#[cfg(not(any(loom, shuttle)))]
use crate::seat::with_state;
use crate::seat::{FREE, Record, Seat, next_member, state_of};
use crate::sync::{Ordering, array, const_fn, fence};
use core::marker::PhantomPinned;
use core::sync::atomic::AtomicUsize as Counter;

/// How often a reader tries to enter before it takes a turn as a writer instead.
const ENTER_TRIES: u32 = 64;

/// The shared state of a group of lists.
///
/// `SEATS` bounds the members at one time, `LOG` the nodes that one write section may change. It can be
/// a `static`:
///
/// ```
/// static DENTRIES: olf::Group = olf::Group::new();
/// let member = DENTRIES.join()?;
/// # drop(member);
/// # Ok::<(), olf::Error>(())
/// ```
pub struct Group<const SEATS: usize = 32, const LOG: usize = 128> {
    counters: Counters,
    seats: [Seat; SEATS],
    logs: [[Record; LOG]; SEATS],
    enter_tries: u32,
    /// Dropping a node looks at its group by address, perhaps while the group begins to be dropped.
    _pinned: PhantomPinned,
}

impl<const SEATS: usize, const LOG: usize> Group<SEATS, LOG> {
    const_fn! {
        /// A group whose counters stand at epoch 0.
        pub const fn new() -> Self {
            Self::with_enter_tries(ENTER_TRIES)
        }
    }

    const_fn! {
        /// A group whose readers wait in the writers' queue after `tries` attempts to enter were
        /// overtaken by commits. With 0 each reader does: fair to the utmost, and slow.
        pub const fn with_enter_tries(tries: u32) -> Self {
            const { assert!(SEATS >= 1 && LOG >= 1, "a group needs a seat and a log record") };
            Self {
                counters: Counters::new(),
                seats: array!(Seat::new()),
                logs: array!(Record::row()),
                enter_tries: tries,
                _pinned: PhantomPinned,
            }
        }
    }

    /// Takes a seat. The member can move between threads, but only one thread at a time can use it.
    ///
    /// # Errors
    ///
    /// [`Error::NoSeat`] if `SEATS` members exist already; [`Error::Poisoned`] if a node of the group was freed
    /// while it was linked.
    pub fn join(&self) -> Result<Member<'_>, Error> {
        let d = self.domain();
        d.counters.identify();
        d.counters.mirror.open(d.id(), SEATS);
        for (i, seat) in d.seats.iter().enumerate() {
            // Acquire: the former occupant's last stores to the seat come before ours. Sequentially
            // consistent: see `register`.
            let free = seat.state.load(Ordering::Relaxed);
            let ticket = next_member(free);
            if state_of(free) == FREE
                && seat
                    .state
                    .compare_exchange(free, ticket, Ordering::SeqCst, Ordering::Relaxed)
                    .is_ok()
            {
                #[cfg(not(any(loom, shuttle)))]
                if d.counters.entered.is_poisoned() {
                    seat.state.store(with_state(ticket, FREE), Ordering::Release);
                    return Err(Error::Poisoned);
                }
                // A scan that misses this misses what the seat publishes later too, and the fences
                // that allow the one allow the other (see `advance`).
                d.counters.high.fetch_max(i + 1, Ordering::Relaxed);
                return Ok(Member::new(d, i, ticket));
            }
        }
        Err(Error::NoSeat)
    }

    /// The newest committed epoch: it counts the write sections that took effect, in steps of two.
    pub fn committed(&self) -> u64 {
        self.counters.committed.0.load(Ordering::Acquire)
    }

    pub(crate) fn domain(&self) -> Domain<'_> {
        Domain {
            counters: &self.counters,
            seats: &self.seats,
            records: self.logs.as_flattened(),
            per_log: LOG,
            enter_tries: self.enter_tries,
        }
    }
}

impl<const SEATS: usize, const LOG: usize> Drop for Group<SEATS, LOG> {
    fn drop(&mut self) {
        #[cfg(not(any(loom, shuttle)))]
        self.counters.leave();
        crate::audit::group_dropped(&self.counters);
    }
}

impl<const SEATS: usize, const LOG: usize> Default for Group<SEATS, LOG> {
    fn default() -> Self {
        Self::new()
    }
}

impl<const SEATS: usize, const LOG: usize> core::fmt::Debug for Group<SEATS, LOG> {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        f.debug_struct("Group")
            .field("committed", &self.counters.committed.0.load(Ordering::Relaxed))
            .field("max", &self.counters.max.0.load(Ordering::Relaxed))
            .field("read", &self.counters.read.0.load(Ordering::Relaxed))
            .finish_non_exhaustive()
    }
}

/// Numbers the groups of the process, so that a node can tell them apart.
static GROUPS: Counter = Counter::new(1);

impl Counters {
    /// Gives the group its number, once.
    fn identify(&self) {
        if self.id.load(Ordering::Relaxed) == 0 {
            let fresh = GROUPS.fetch_add(1, core::sync::atomic::Ordering::Relaxed);
            // A loser of this race wastes a number, no more.
            let _ = self.id.compare_exchange(0, fresh, Ordering::Relaxed, Ordering::Relaxed);
        }
    }
}

/// A group without its const parameters.
#[derive(Clone, Copy)]
pub(crate) struct Domain<'g> {
    pub(crate) counters: &'g Counters,
    pub(crate) seats: &'g [Seat],
    records: &'g [Record],
    per_log: usize,
    pub(crate) enter_tries: u32,
}

impl<'g> Domain<'g> {
    /// A group as far as its counters and seats go.
    #[cfg(not(any(loom, shuttle)))]
    pub(crate) fn without_logs(counters: &'g Counters, seats: &'g [Seat]) -> Self {
        Self { counters, seats, records: &[], per_log: 0, enter_tries: 0 }
    }

    /// Seats that may be in use are below this index.
    pub(crate) fn high(self) -> usize {
        self.counters.high.load(Ordering::Relaxed).min(self.seats.len())
    }

    /// The log of seat `i`.
    #[inline]
    pub(crate) fn log(self, i: usize) -> &'g [Record] {
        &self.records[i * self.per_log..(i + 1) * self.per_log]
    }

    /// The group's number.
    #[inline]
    pub(crate) fn id(self) -> usize {
        self.counters.id.load(Ordering::Relaxed)
    }

    /// Raises `R` to the oldest epoch that a reader may still be at; says whether it rose.
    ///
    /// Keeps `R <= every active L`. Let `m` be the `C` loaded first. A reader whose store of `L` the
    /// loop misses has its fence after ours in the order of `SeqCst` fences, so the second look at `C`
    /// in `enter` sees at least `m`, and the reader ends up at an epoch `>= m >= R`. Were `C` loaded
    /// after the scan, a reader could enter and a writer commit in between, and `m` be too great.
    pub(crate) fn advance(self) -> bool {
        // Acquire: `R` may come to stand at `m`, which promises that `m` is committed.
        let m = self.counters.committed.0.load(Ordering::Acquire);
        fence(Ordering::SeqCst);
        let mut low = m;
        for seat in &self.seats[..self.high()] {
            // Acquire pairs with the release of `leave`: what the reader loaded from a slot was loaded
            // before anybody overwrites it.
            let l = seat.reading.load(Ordering::Acquire);
            if l & INACTIVE == 0 {
                low = low.min(l);
            }
        }
        // Acquire and release: whoever acts on `R` inherits all that the scans behind it have seen.
        let mut r = self.counters.read.0.load(Ordering::Acquire);
        while r < low {
            match self.counters.read.0.compare_exchange(r, low, Ordering::AcqRel, Ordering::Acquire)
            {
                Ok(_) => return true,
                Err(now) => r = now,
            }
        }
        false
    }

    /// No section, reading or writing, can come across a node that was unlinked at this epoch or
    /// before; not now and not later.
    ///
    /// Readers: as in `advance`. Writers publish their pin and then take an epoch from `M` with a
    /// read-modify-write. Either ours on `M` comes after that, and acquires the pin with it; or ours
    /// comes first, and theirs acquires the `C` that we loaded, so the writer starts from a state in
    /// which the node is unlinked already.
    pub(crate) fn horizon(self) -> u64 {
        let mut low = self.counters.committed.0.load(Ordering::Acquire);
        self.counters.max.0.fetch_add(0, Ordering::AcqRel);
        fence(Ordering::SeqCst);
        for seat in &self.seats[..self.high()] {
            // Acquire: the section's last look at the node comes before its memory is given back.
            for published in [&seat.reading, &seat.pin] {
                let l = published.load(Ordering::Acquire);
                if l & INACTIVE == 0 {
                    low = low.min(l);
                }
            }
        }
        // Release hands on what the loads above have acquired.
        self.counters.safe.fetch_max(low, Ordering::Release);
        low
    }

    /// No section can come across a node that was unlinked at `epoch`.
    pub(crate) fn is_out_of_sight(self, epoch: u64) -> bool {
        epoch <= self.counters.safe.load(Ordering::Acquire) || epoch <= self.horizon()
    }
}

#[cfg(all(test, not(any(loom, shuttle))))]
mod tests {
    use super::*;

    /// The sizes that the documentation names.
    #[test]
    fn sizes() {
        let group = size_of::<Group<32, 128>>();
        assert!((32 * (128 + 40 * 128)..32 * (128 + 40 * 128) + 1024).contains(&group), "{group}");
        assert_eq!(size_of::<crate::Node<4>>(), 128);
        assert_eq!(size_of::<crate::Node<2>>(), 128);
    }
}
