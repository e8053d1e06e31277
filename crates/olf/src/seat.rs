//! Seats: what one thread shows to the others of its group, and its log.
//!
//! A group has a fixed number of seats; a member takes one and is the only one that writes to it, apart
//! from the recovery of a dead member (see `recover`). The log of a write section names the nodes that
//! it changed or relied on; it lives beside the seat because a recovering thread must read it.

use crate::epoch::INACTIVE;
use crate::node::Node;
use crate::sync::{AtomicPtr, AtomicU32, AtomicU64, AtomicUsize, Ordering, array, const_fn};
use core::ptr;

/// `Seat::state`: nobody sits here.
pub(crate) const FREE: u64 = 0;
/// `Seat::state`: a member sits here.
pub(crate) const TAKEN: u64 = 1;
/// `Seat::state`: the member was reported dead and awaits recovery.
pub(crate) const FAILED: u64 = 2;
/// `Seat::state`: the recovered seat is being cleared.
pub(crate) const CLEARING: u64 = 3;
/// `Seat::state`: the two bits that hold one of these. The others count the members that sat here, so that
/// one who was thought dead, and is not, can tell that the seat is another's by now.
const STATES: u64 = 3;

/// Which of the four states `word` is in.
#[inline]
pub(crate) fn state_of(word: u64) -> u64 {
    word & STATES
}

/// `word` with the same member and another state.
#[inline]
pub(crate) fn with_state(word: u64, state: u64) -> u64 {
    word & !STATES | state
}

/// The word of the next member of a seat whose word was `word`.
#[inline]
pub(crate) fn next_member(word: u64) -> u64 {
    with_state(word.wrapping_add(STATES + 1), TAKEN)
}

/// `Seat::writing`: no write section.
pub(crate) const IDLE: u64 = 1;
/// `Seat::writing`: about to take an epoch from `M`, or has taken it and not yet said which.
pub(crate) const CLAIMING: u64 = 3;

/// One thread's published state.
#[repr(align(128))]
pub(crate) struct Seat {
    /// `L`: the epoch being read, odd if none. Holds `R`, hence slots, back.
    pub(crate) reading: AtomicU64,
    /// A committed epoch from the time the write section began, odd if none. Holds memory back, but
    /// not slots: were it to hold `R` back, an older writer short of slots would wait for this one.
    pub(crate) pin: AtomicU64,
    /// The epoch being written, or `IDLE`, or `CLAIMING`.
    pub(crate) writing: AtomicU64,
    /// Number of log records in use.
    pub(crate) logged: AtomicUsize,
    /// One of the four states, and which member it is about: see [`state_of`].
    pub(crate) state: AtomicU64,
    /// Where the thread sleeps.
    #[cfg(all(feature = "std", not(any(loom, shuttle))))]
    pub(crate) bed: crate::wait::Bed,
}

impl Seat {
    const_fn! {
        pub(crate) const fn new() -> Self {
            Self {
                reading: AtomicU64::new(INACTIVE),
                pin: AtomicU64::new(INACTIVE),
                writing: AtomicU64::new(IDLE),
                logged: AtomicUsize::new(0),
                state: AtomicU64::new(FREE),
                #[cfg(all(feature = "std", not(any(loom, shuttle))))]
                bed: crate::wait::Bed::new(),
            }
        }
    }
}

/// `Record::slot` of a node that was only read.
pub(crate) const READ_ONLY: usize = usize::MAX;
/// `Record::slot` of a node whose slot is being sought.
pub(crate) const UNCLAIMED: usize = usize::MAX - 1;

/// One log record. Only the owner writes; recovery reads `epochs` and `slots`.
pub(crate) struct Record {
    /// The first of the node's epochs. It stays valid while the owner's pin is published.
    pub(crate) epochs: AtomicPtr<AtomicU64>,
    /// The node's word `newest`; likewise.
    pub(crate) newest: AtomicPtr<AtomicU64>,
    /// How many slots the node has.
    pub(crate) slots: AtomicU32,
    /// Which slot was taken, or `READ_ONLY`, or `UNCLAIMED`.
    pub(crate) slot: AtomicUsize,
    /// Epoch of the version that was copied or read.
    pub(crate) seen: AtomicU64,
}

impl Record {
    const_fn! {
        pub(crate) const fn new() -> Self {
            Self {
                epochs: AtomicPtr::new(ptr::null_mut()),
                newest: AtomicPtr::new(ptr::null_mut()),
                slots: AtomicU32::new(0),
                slot: AtomicUsize::new(UNCLAIMED),
                seen: AtomicU64::new(0),
            }
        }
    }

    const_fn! {
        /// The log of one seat.
        pub(crate) const fn row<const LOG: usize>() -> [Record; LOG] {
            array!(Record::new())
        }
    }

    pub(crate) fn write<const K: usize>(&self, node: &Node<K>, slot: usize, seen: u64) {
        let epochs = node.epochs.as_slice();
        self.epochs.store(epochs.as_ptr().cast_mut(), Ordering::Relaxed);
        self.newest.store(ptr::from_ref(&node.newest).cast_mut(), Ordering::Relaxed);
        // A node has a handful of slots; the type is narrow to keep the record short.
        self.slots.store(u32::try_from(epochs.len()).unwrap_or(u32::MAX), Ordering::Relaxed);
        self.slot.store(slot, Ordering::Relaxed);
        self.seen.store(seen, Ordering::Relaxed);
    }
}
