//! Memory of finished attempts, kept for the next one on the same thread: three allocations cost
//! as much as all the rest of a small transaction.

use super::log::Hold;
use super::write_set::Write;
use crate::word::{Stamp, Word};
use std::cell::Cell;

/// Larger ones are given back to the allocator.
const KEPT: usize = 4096;

/// The growing parts of an attempt.
#[derive(Debug, Default)]
pub(super) struct Buffers<'c> {
    pub(super) reads: Vec<(&'c Word, Stamp)>,
    pub(super) writes: Vec<Write<'c>>,
    pub(super) holds: Vec<Hold<'c>>,
}

std::thread_local! {
    static SPARE: Cell<Option<Buffers<'static>>> = const { Cell::new(None) };
}

impl<'c> Buffers<'c> {
    /// Empty ones, with memory if the thread has some to spare.
    pub(super) fn take() -> Self {
        SPARE.try_with(Cell::take).ok().flatten().unwrap_or_default()
    }

    /// Keeps the memory for the next attempt.
    pub(super) fn give_back(self) {
        if self.reads.capacity().max(self.writes.capacity()) <= KEPT {
            // While the thread's locals are being destroyed there is no next attempt.
            let _ = SPARE.try_with(|spare| spare.set(Some(self.recycle())));
        }
    }

    /// The same memory, empty, for references that live longer.
    fn recycle(self) -> Buffers<'static> {
        Buffers {
            reads: recycle(self.reads),
            writes: recycle(self.writes),
            holds: recycle(self.holds),
        }
    }
}

/// Collecting a vector's own iterator into one of the same layout happens in place. Were it not so,
/// the result would be empty all the same, without memory.
fn recycle<A, B>(mut from: Vec<A>) -> Vec<B> {
    from.clear();
    from.into_iter().map(|_| unreachable!("it is empty")).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn memory_is_used_again() {
        let mut buffers = Buffers::take();
        buffers.reads.reserve(100);
        let (at, capacity) = (buffers.reads.as_ptr().addr(), buffers.reads.capacity());
        buffers.give_back();
        let again = Buffers::take();
        assert_eq!((again.reads.as_ptr().addr(), again.reads.capacity()), (at, capacity));
        assert!(again.reads.is_empty());
        let mut large = again;
        large.writes.reserve(KEPT + 1);
        large.give_back();
        assert_eq!(Buffers::take().writes.capacity(), 0);
    }
}
