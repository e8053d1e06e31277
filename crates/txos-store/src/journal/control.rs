//! What committers in several processes share without asking anyone: `journal/control`, mapped.
//!
//! Nothing in it must survive a reboot: it names the boot that it is of, and whoever finds another
//! boot in it, holding the journal's lock, starts it anew from the segments.
//!
//! # Invariants
//!
//! - `sequence`, `end`, `checkpointed` and the seats' records change only under the journal's lock;
//!   `flushed` only under the flush lock, and only upwards within a segment.
//! - A *seat* stands for one commit between the writing of its record and the end of its apply. It
//!   is *held* before the record is written and released after the last change is made. What it
//!   will change stands in it as keys: until it is released, nobody else's commit that reads or
//!   writes one of them goes on.
//! - A seat belongs to whoever holds `flock(2)` on its file. One that is held while nobody owns it
//!   was left by a death: its record, if it is whole, must be applied again before anything else.
//! - `started` counts commits before their first change is visible, `ended` after their last. So a
//!   reader that finds `started == ended` before, and `started` unchanged after, has read between
//!   two commits. A death in between leaves them apart, until recovery sets them equal.

use std::sync::atomic::{AtomicU32, AtomicU64, Ordering::SeqCst};

use crate::sys::Shared;

/// How many commits can be between record and apply at once.
pub(crate) const SEATS: usize = 64;
/// How many keys a seat has room for; a commit with more holds everything.
pub(crate) const KEYS: usize = 60;
/// `Seat::count` of one that holds everything.
pub(crate) const ALL: u32 = u32::MAX;

const MAGIC: u64 = u64::from_le_bytes(*b"TXCTL  2");

/// The page.
#[repr(C)]
pub(crate) struct Control {
    magic: AtomicU64,
    boot: [AtomicU64; 2],
    /// Sequence of the active segment.
    pub sequence: AtomicU64,
    /// Where the next record goes.
    pub end: AtomicU64,
    /// How much of the active segment is on disk.
    pub flushed: AtomicU64,
    /// How much of the active segment is done.
    pub checkpointed: AtomicU64,
    /// Commits whose changes became visible, or begin to.
    pub started: AtomicU64,
    /// Commits all of whose changes are visible.
    pub ended: AtomicU64,
    /// Transactions that run in a view.
    pub views: AtomicU32,
    /// Not 0 after a flush that failed.
    pub poisoned: AtomicU32,
    /// How many commits wait for their file systems.
    pub waiting: AtomicU32,
    spare: AtomicU32,
    pub seats: [Seat; SEATS],
}

/// One commit under way.
#[repr(C)]
pub(crate) struct Seat {
    /// 0 free, 1 held.
    pub held: AtomicU32,
    /// How many keys, or [`ALL`].
    pub count: AtomicU32,
    /// Where its record is, in the active segment.
    pub record: AtomicU64,
    pub keys: [AtomicU64; KEYS],
}

// SAFETY: atomics alone, in arrays and structures of them.
#[allow(unsafe_code)]
unsafe impl Shared for Control {}

impl Control {
    /// Whether it was begun in this boot.
    pub(crate) fn is_of(&self, boot: [u8; 16]) -> bool {
        let [first, second] = halves(boot);
        self.magic.load(SeqCst) == MAGIC
            && self.boot[0].load(SeqCst) == first
            && self.boot[1].load(SeqCst) == second
            && boot != [0; 16]
    }

    /// Begins it anew; everything that the boot before left is forgotten.
    pub(crate) fn begin(&self, boot: [u8; 16], sequence: u64, end: u64, checkpointed: u64) {
        self.magic.store(0, SeqCst);
        for seat in &self.seats {
            seat.held.store(0, SeqCst);
        }
        self.sequence.store(sequence, SeqCst);
        self.end.store(end, SeqCst);
        self.flushed.store(0, SeqCst);
        self.checkpointed.store(checkpointed, SeqCst);
        self.ended.store(self.started.load(SeqCst), SeqCst);
        self.views.store(0, SeqCst);
        self.poisoned.store(0, SeqCst);
        let [first, second] = halves(boot);
        self.boot[0].store(first, SeqCst);
        self.boot[1].store(second, SeqCst);
        self.magic.store(MAGIC, SeqCst);
    }
}

fn halves(boot: [u8; 16]) -> [u64; 2] {
    let half = |at: usize| {
        let mut bytes = [0; 8];
        bytes.copy_from_slice(&boot[at..at + 8]);
        u64::from_le_bytes(bytes)
    };
    [half(0), half(8)]
}

impl Seat {
    /// Whether it stands for a commit that touches one of `keys`; `None` touches everything.
    pub(crate) fn meets(&self, keys: Option<&[u64]>) -> bool {
        if self.held.load(SeqCst) == 0 {
            return false;
        }
        let count = self.count.load(SeqCst);
        let Some(keys) = keys.filter(|_| count != ALL) else { return true };
        let held = self.keys.iter().take(count as usize);
        held.map(|key| key.load(SeqCst)).any(|held| keys.iter().any(|key| collide(held, *key)))
    }

    /// Adds what it holds to `keys`, or sets `all`.
    pub(crate) fn copy(&self, keys: &mut Vec<u64>, all: &mut bool) {
        match self.count.load(SeqCst) {
            ALL => *all = true,
            count => {
                keys.extend(self.keys.iter().take(count as usize).map(|key| key.load(SeqCst)));
            }
        }
    }

    /// Holds it. The caller has the journal's lock.
    pub(crate) fn hold(&self, record: u64, keys: Option<&[u64]>) {
        let keys = keys.filter(|keys| keys.len() <= KEYS);
        for (place, key) in self.keys.iter().zip(keys.unwrap_or_default()) {
            place.store(*key, SeqCst);
        }
        self.count.store(keys.map_or(ALL, |keys| keys.len() as u32), SeqCst);
        self.record.store(record, SeqCst);
        self.held.store(1, SeqCst);
    }
}

/// A key's lowest bit says that the change commutes with others of its kind (a name more or less
/// in a directory): such meet readers only.
pub(crate) fn collide(one: u64, other: u64) -> bool {
    one >> 1 == other >> 1 && one & other & 1 == 0
}
