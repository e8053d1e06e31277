//! The stack of modes of a thread: which locks it is inside of, and how.
//!
//! The paper's `cx_end` asks the processor whether a transaction runs, and ends it if so. After
//! `cx_exclusive(A); cx_optimistic(B); cx_end(A)` that commits B's transaction and leaves A locked.
//! So each entry keeps its own mode, and an end looks for the youngest entry of *its* lock.
//!
//! Invariants: an entry is pushed before its section starts and leaves when the section's scope
//! does, also by a panic; `optimistic` is the number of entries of that mode; the stack never
//! leaves its thread.

use crate::machine::{Call, Meaning, Mode, meaning};
use crate::sync::thread_local;
use std::cell::RefCell;

/// Identity of a lock: its address.
pub(crate) type LockId = usize;

/// Modes of one thread, oldest first.
#[derive(Debug, Default)]
pub(crate) struct ModeStack {
    entries: Vec<(LockId, Mode)>,
    optimistic: u32,
}

impl ModeStack {
    const fn new() -> Self {
        Self { entries: Vec::new(), optimistic: 0 }
    }

    /// What the end of `lock` means now.
    pub(crate) fn meaning_of_end(&self, lock: LockId) -> Meaning {
        let youngest = self.entries.iter().rev().find(|e| e.0 == lock).map(|e| e.1);
        meaning(Call::End, self.optimistic, youngest)
    }

    #[inline]
    pub(crate) fn push(&mut self, lock: LockId, mode: Mode) {
        self.entries.push((lock, mode));
        self.optimistic += u32::from(mode == Mode::Optimistic);
    }

    /// Takes the youngest entry of that lock and mode away, wherever it stands. Says whether a
    /// transaction runs then.
    #[inline]
    pub(crate) fn remove(&mut self, lock: LockId, mode: Mode) -> bool {
        if let Some(at) = self.entries.iter().rposition(|e| *e == (lock, mode)) {
            self.entries.remove(at);
            self.optimistic -= u32::from(mode == Mode::Optimistic);
        }
        self.optimistic > 0
    }

    pub(crate) fn holds(&self, lock: LockId) -> bool {
        self.entries.contains(&(lock, Mode::Exclusive))
    }
}

#[cfg(not(loom))]
thread_local! {
    static MODES: RefCell<ModeStack> = const { RefCell::new(ModeStack::new()) };
}
#[cfg(loom)]
thread_local! {
    static MODES: RefCell<ModeStack> = RefCell::new(ModeStack::new());
}

/// Runs `f` on the stack of the calling thread, or on an empty one while the thread's locals are
/// being destroyed: there locks still work, only misuse is no longer seen.
#[inline]
pub(crate) fn with<R>(f: impl Fn(&mut ModeStack) -> R) -> R {
    MODES.try_with(|stack| f(&mut stack.borrow_mut())).unwrap_or_else(|_| f(&mut ModeStack::new()))
}

/// Refuses to start something that would commit by itself within the transaction of a section.
pub(crate) fn refuse_within_transaction() {
    assert!(
        with(|stack| stack.optimistic == 0),
        "this thread is in a transaction already; nest through the section: \
         `section.optimistic(&lock, …)?`, `section.exclusive(&lock)?`, and use its `read` and `write`"
    );
}

/// Entry of a section in the thread's stack; gone with the section's scope.
pub(crate) struct Entered {
    lock: LockId,
    mode: Mode,
}

impl Entered {
    #[inline]
    pub(crate) fn new(lock: LockId, mode: Mode) -> Self {
        with(|stack| stack.push(lock, mode));
        Self { lock, mode }
    }
}

impl Drop for Entered {
    #[inline]
    fn drop(&mut self) {
        with(|stack| stack.remove(self.lock, self.mode));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn release_out_of_order_ends_its_own_lock() {
        let (a, b) = (1, 2);
        let mut stack = ModeStack::new();
        stack.push(a, Mode::Exclusive);
        stack.push(b, Mode::Optimistic);
        assert_eq!(stack.meaning_of_end(a), Meaning::FreeAtCommit);
        stack.remove(a, Mode::Exclusive);
        assert_eq!(stack.meaning_of_end(a), Meaning::Invalid);
        assert_eq!(stack.meaning_of_end(b), Meaning::Commit);
        stack.remove(b, Mode::Optimistic);
        assert_eq!(stack.optimistic, 0);
    }

    #[test]
    fn the_youngest_entry_of_a_lock_decides() {
        let a = 1;
        let mut stack = ModeStack::new();
        stack.push(a, Mode::Optimistic);
        stack.push(a, Mode::Optimistic);
        assert_eq!(stack.meaning_of_end(a), Meaning::LeaveNested);
        stack.remove(a, Mode::Optimistic);
        assert_eq!(stack.meaning_of_end(a), Meaning::Commit);
        assert_eq!(stack.optimistic, 1);
    }
}
