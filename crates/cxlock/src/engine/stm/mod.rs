//! The engine in software: correct on every machine.
//!
//! `clock` numbers changes, `log` is an attempt (with `write_set` and `buffers`), `transaction` the interface without a lock and
//! with a commit in two phases. What connects it to locks: a lock word is subscribed like a cell
//! is read, and acquired like a cell is held. An exclusive thread changes cells one at a time, each
//! like a small commit, so that doomed attempts see none of it.

mod buffers;
mod clock;
mod log;
mod transaction;
mod write_set;

pub use transaction::{Attempt, CommitError, Prepared, Transaction, atomically};

use super::{Engine, Instructions};
use crate::cell::Slot;
use crate::restart::Reason;
use crate::sync::CONFLICT_LIMIT;
use crate::wait::pause;
use crate::word::{Stamp, Word};
use log::Log;

/// An untyped cell of this engine.
type Cell = Slot<Word>;

/// Entries that a section's read or write set may have before it is run exclusively: a set that
/// large takes longer to prove than most sections take to run.
const SECTION_LIMIT: usize = 1 << 20;

/// Software transactions.
#[derive(Debug, Clone, Copy, Default)]
pub struct Stm;

impl Engine for Stm {
    const NAME: &'static str = "stm";

    fn available() -> bool {
        true
    }
}

impl Instructions for Stm {
    const VISIBLE: bool = true;
    const ATTEMPTS: u32 = CONFLICT_LIMIT;
    type Meta = Word;
    type Tx<'c> = Log<'c>;

    fn begin(tx: &mut Log<'_>) -> Result<(), Reason> {
        tx.reset(SECTION_LIMIT);
        Ok(())
    }

    fn subscribe<'c>(tx: &mut Log<'c>, word: &'c Word) -> Result<bool, Reason> {
        tx.subscribe(word)
    }

    #[inline]
    fn read<'c>(tx: &mut Log<'c>, slot: &'c Cell) -> Result<u64, Reason> {
        tx.read(slot)
    }

    #[inline]
    fn write<'c>(tx: &mut Log<'c>, slot: &'c Cell, value: u64) -> Result<(), Reason> {
        tx.write(slot, value)
    }

    fn restart(tx: &mut Log<'_>, reason: Reason) -> Reason {
        tx.doom(reason)
    }

    fn commit(tx: &mut Log<'_>) -> Result<(), Reason> {
        tx.commit()
    }

    fn acquire(word: &Word, seen: Stamp) -> bool {
        let held = word.try_hold(seen);
        if held {
            // Attempts that entered before have smaller snapshots than anything written from now.
            clock::tick();
        }
        held
    }

    fn release(word: &Word) -> Stamp {
        word.free(clock::tick())
    }

    fn read_held(slot: &Cell) -> u64 {
        for round in 0.. {
            let before = slot.meta.load();
            if !before.is_held() {
                let value = slot.load();
                if slot.meta.load() == before {
                    return value;
                }
            }
            pause(round);
        }
        unreachable!("the rounds have no end")
    }

    fn write_held(slot: &Cell, value: u64) {
        let mut round = 0;
        while !slot.meta.try_hold(slot.meta.load()) {
            pause(round);
            round += 1;
        }
        let version = clock::tick();
        slot.store(value);
        slot.meta.free_cell(version);
    }
}
