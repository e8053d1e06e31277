//! A lock held exclusively.

use crate::cell::{TCell, Value};
use crate::engine::Engine;
use crate::lock::CxLock;
use crate::machine::{Meaning, Mode};
use crate::modes;
use crate::stats::Count;
use std::cell::Cell;
use std::marker::PhantomData;

/// The lock is this thread's, until the guard is dropped, in whatever order.
///
/// While a transaction of another lock runs on this thread, access cells through its section, and
/// give the lock back with [`Section::end`](crate::Section::end): the transaction's writes are visible at its commit, so
/// a lock that protects them may not be free earlier.
#[derive(Debug)]
#[must_use = "the lock is free again when the guard is dropped"]
pub struct Exclusive<'c, E: Engine> {
    lock: &'c CxLock<E>,
    held: Cell<bool>,
    _one_thread: PhantomData<*const ()>,
}

impl<'c, E: Engine> Exclusive<'c, E> {
    /// For a lock that this thread has just acquired.
    #[inline]
    pub(crate) fn new(lock: &'c CxLock<E>) -> Self {
        modes::with(|stack| stack.push(lock.raw.id(), Mode::Exclusive));
        Self { lock, held: Cell::new(true), _one_thread: PhantomData }
    }

    /// The value of a cell.
    #[inline]
    pub fn read<T: Value>(&self, cell: &TCell<T, E>) -> T {
        self.check_access();
        T::from_word(E::read_held(&cell.slot))
    }

    /// Changes a cell at once.
    #[inline]
    pub fn write<T: Value>(&self, cell: &TCell<T, E>, value: T) {
        self.check_access();
        E::write_held(&cell.slot, value.into_word());
    }

    /// What an end means now: [`Meaning::Free`], [`Meaning::FreeAtCommit`], or invalid if the lock
    /// was given back before.
    pub(crate) fn meaning_of_end(&self) -> Meaning {
        if !self.held.get() {
            return Meaning::Invalid;
        }
        modes::with(|stack| stack.meaning_of_end(self.lock.raw.id()))
    }

    /// Frees the lock, once. Says whether that was within a transaction.
    #[inline]
    pub(crate) fn give_back(&self) -> bool {
        let held = self.held.replace(false);
        held && {
            let raw = &self.lock.raw;
            let in_transaction = modes::with(|stack| stack.remove(raw.id(), Mode::Exclusive));
            raw.release::<E>();
            raw.count(Count::Exclusive);
            in_transaction
        }
    }

    /// On in debug builds: what it finds is a fault of the program, not of memory.
    #[inline]
    fn check_access(&self) {
        debug_assert!(self.held.get(), "access through a guard whose lock was given back");
        debug_assert!(
            self.meaning_of_end() != Meaning::FreeAtCommit,
            "access through a guard within a transaction is not rolled back; use the section"
        );
    }
}

impl<E: Engine> Drop for Exclusive<'_, E> {
    fn drop(&mut self) {
        let too_early = self.give_back();
        assert!(
            !too_early || std::thread::panicking(),
            "a lock was freed within a transaction whose writes it may protect; use `section.end`"
        );
    }
}
