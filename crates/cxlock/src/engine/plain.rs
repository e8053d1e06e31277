//! The engine without transactions: every section runs under mutual exclusion.

use super::{Engine, Instructions};
use crate::cell::Slot;
use crate::restart::Reason;
use crate::word::{Stamp, Word};

/// Plain locking. `optimistic` and `exclusive` are the same.
#[derive(Debug, Clone, Copy, Default)]
pub struct Plain;

impl Engine for Plain {
    const NAME: &'static str = "lock";

    fn available() -> bool {
        false
    }
}

impl Instructions for Plain {
    const VISIBLE: bool = false;
    const ATTEMPTS: u32 = 0;
    type Meta = ();
    type Tx<'c> = ();

    fn begin((): &mut ()) -> Result<(), Reason> {
        Err(Reason::Unavailable)
    }

    // No attempt ever starts, so the functions that need one have nothing to do but to say so.
    fn subscribe((): &mut (), _: &Word) -> Result<bool, Reason> {
        Err(Reason::Unavailable)
    }

    fn read((): &mut (), _: &Slot<()>) -> Result<u64, Reason> {
        Err(Reason::Unavailable)
    }

    fn write((): &mut (), _: &Slot<()>, _: u64) -> Result<(), Reason> {
        Err(Reason::Unavailable)
    }

    fn restart((): &mut (), reason: Reason) -> Reason {
        reason
    }

    fn commit((): &mut ()) -> Result<(), Reason> {
        Err(Reason::Unavailable)
    }

    #[inline]
    fn acquire(word: &Word, seen: Stamp) -> bool {
        word.try_hold(seen)
    }

    #[inline]
    fn release(word: &Word) -> Stamp {
        word.free(0)
    }

    #[inline]
    fn read_held(slot: &Slot<()>) -> u64 {
        slot.load()
    }

    #[inline]
    fn write_held(slot: &Slot<()>, value: u64) {
        slot.store(value);
    }
}
