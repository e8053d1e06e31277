//! What a write section does with its log: validate it, or take its slots back.

#![allow(unsafe_code)] // A record names its node by a pointer.

use crate::epoch::INACTIVE;
use crate::node::{NO_HINT, hint};
use crate::seat::{READ_ONLY, Record, UNCLAIMED};
use crate::sync::{AtomicU64, Ordering};
use core::slice;

/// The epochs of the node that a record names.
///
/// # Safety
///
/// The record was written by a section whose pin is still published, or the caller's own pin was
/// published while that one was.
#[inline]
unsafe fn epochs(record: &Record) -> &[AtomicU64] {
    let first = record.epochs.load(Ordering::Relaxed);
    let slots = record.slots.load(Ordering::Relaxed) as usize;
    // SAFETY: `Record::write` stored the address and length of a node's epochs, and the node's memory
    // is not given back while a pin of that age is published (contract of linking a node).
    unsafe { slice::from_raw_parts(first, slots) }
}

/// No section that committed up to `c` has changed a node since the version that its record names.
///
/// At commit `c` is `my - 2` and every older writer is done, so nothing can be missed: the newest
/// committed version of a node stays in its slots until a younger one is committed. Relaxed loads do,
/// the acquire load of `c` made those versions visible.
#[inline]
pub(crate) fn unchanged(records: &[Record], c: u64) -> bool {
    records.iter().all(|record| {
        let seen = record.seen.load(Ordering::Relaxed);
        // SAFETY: the records are those of the running section.
        let epochs = unsafe { epochs(record) };
        !epochs.iter().any(|at| {
            let x = at.load(Ordering::Relaxed);
            x & INACTIVE == 0 && seen < x && x <= c
        })
    })
}

/// Says in each changed node which slot is its newest version. The caller is the only one that may commit,
/// so nobody else stores these words; and the store of `C` that follows releases them.
#[inline]
pub(crate) fn announce(records: &[Record], my: u64) {
    for record in records {
        let slot = record.slot.load(Ordering::Relaxed);
        if slot < UNCLAIMED {
            // SAFETY: the records are those of the running section.
            let newest = unsafe { &*record.newest.load(Ordering::Relaxed) };
            newest.store(hint(my, slot), Ordering::Relaxed);
        }
    }
}

/// Turns every slot of epoch `my` that the records name into a free one.
pub(crate) fn invalidate(records: &[Record], my: u64) {
    for record in records {
        if record.slot.load(Ordering::Relaxed) == READ_ONLY {
            continue;
        }
        // SAFETY: the records are those of the running section.
        let epochs = unsafe { epochs(record) };
        for (slot, at) in epochs.iter().enumerate() {
            // Anybody may do this for a dead owner, hence the exchange. Relaxed: nobody else takes the
            // slot before `my` is committed, which releases this.
            if at.load(Ordering::Relaxed) == my {
                let _ =
                    at.compare_exchange(my, my | INACTIVE, Ordering::Relaxed, Ordering::Relaxed);
                // Only a writer that died in the middle of its commit has left its hint behind.
                // SAFETY: as for the epochs.
                let newest = unsafe { &*record.newest.load(Ordering::Relaxed) };
                let dead = hint(my, slot);
                if newest.load(Ordering::Relaxed) == dead {
                    let _ = newest.compare_exchange(
                        dead,
                        NO_HINT,
                        Ordering::Relaxed,
                        Ordering::Relaxed,
                    );
                }
            }
        }
    }
}
