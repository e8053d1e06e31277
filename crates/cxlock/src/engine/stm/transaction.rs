//! Transactions on cells without a lock, with a commit in two phases.
//!
//! ```text
//!   body → prepare: hold every word read or written, in the order of addresses; prove the reads
//!        → decision: the caller's closure, while everything is held
//!        → Ok: publish, free        Err or panic: free as it was
//! ```
//!
//! What it is for: the decision can be another system's commit (a system transaction's `xend`), and
//! both happen or neither. Then the two must agree on one order, so words that were *only read* are
//! held too: otherwise two transactions could each read in memory what the other writes there, and
//! in the other system the other way round, and both commit. For the same reason a transaction that
//! wrote nothing goes through all of it.
//!
//! Rules for a decision:
//!
//! 1. It may take long. Others that want the words restart after a short wait, never wait for it
//!    with something in hand: so a decision that itself waits for *another's transaction* to end
//!    can't deadlock through words. (The holder of a [`CxLock`](crate::CxLock) does wait for cells;
//!    a decision must not wait for one.)
//! 2. Order of locks: words of cells first, by address; then whatever the decision takes.
//! 3. After an `Ok` nothing can fail: publishing calls nobody and allocates nothing.
//! 4. A panic counts as a refusal. If the other system has committed by then, its effects stand
//!    alone: return errors instead of panicking.

use super::Stm;
use super::log::Log;
use crate::cell::{TCell, Value};
use crate::modes;
use crate::restart::{Reason, Restart};
use crate::wait::Backoff;
use std::marker::PhantomData;

/// A transaction that runs.
///
/// Dropped without a commit, it never happened.
#[derive(Debug)]
#[must_use = "a transaction that is dropped never happened"]
pub struct Transaction<'c>(Attempt<'c>);

/// Access to cells within a transaction.
#[derive(Debug)]
pub struct Attempt<'c> {
    log: Log<'c>,
    _one_thread: PhantomData<*const ()>,
}

/// Why a commit with a decision did not happen. Nothing has changed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum CommitError<E> {
    /// Another transaction was first; the decision was not asked. Run the transaction again.
    #[error("{0}")]
    Restart(#[from] Restart),
    /// The decision was against it.
    #[error("the commit was refused: {0}; nothing was changed")]
    Refused(E),
}

impl<'c> Attempt<'c> {
    fn new() -> Self {
        modes::refuse_within_transaction();
        let mut log = Log::default();
        log.reset(usize::MAX);
        Self { log, _one_thread: PhantomData }
    }

    /// The value of a cell as this transaction sees it.
    ///
    /// # Errors
    /// The transaction has lost and must be run again.
    #[inline]
    pub fn read<T: Value>(&mut self, cell: &'c TCell<T, Stm>) -> Result<T, Restart> {
        self.log.read(&cell.slot).map(T::from_word).map_err(Restart)
    }

    /// Changes a cell, for this transaction alone until it commits.
    ///
    /// # Errors
    /// The transaction has lost and must be run again.
    #[inline]
    pub fn write<T: Value>(&mut self, cell: &'c TCell<T, Stm>, value: T) -> Result<(), Restart> {
        self.log.write(&cell.slot, value.into_word()).map_err(Restart)
    }
}

impl<'c> Transaction<'c> {
    /// Starts one.
    ///
    /// # Panics
    /// Within a section that runs as a transaction: it would commit by itself.
    pub fn begin() -> Self {
        Self(Attempt::new())
    }

    /// See [`Attempt::read`].
    ///
    /// # Errors
    /// The transaction has lost and must be run again.
    #[inline]
    pub fn read<T: Value>(&mut self, cell: &'c TCell<T, Stm>) -> Result<T, Restart> {
        self.0.read(cell)
    }

    /// See [`Attempt::write`].
    ///
    /// # Errors
    /// The transaction has lost and must be run again.
    #[inline]
    pub fn write<T: Value>(&mut self, cell: &'c TCell<T, Stm>, value: T) -> Result<(), Restart> {
        self.0.write(cell, value)
    }

    /// Commits.
    ///
    /// # Errors
    /// The transaction has lost and never happened.
    pub fn commit(mut self) -> Result<(), Restart> {
        self.0.log.commit().map_err(Restart)
    }

    /// First phase: holds every word that was read or written and proves the reads. The result
    /// wins against everyone until it is published or rolled back.
    ///
    /// # Errors
    /// The transaction has lost and never happened.
    pub fn prepare(mut self) -> Result<Prepared<'c>, Restart> {
        self.0.log.prepare().map_err(Restart)?;
        Ok(Prepared(self.0))
    }

    /// Prepares, asks `decision`, and publishes or rolls back as it says.
    ///
    /// `decision` is asked at most once, and only if nothing but it stands against the commit. While
    /// it runs, everything that was read or written is held, and this transaction wins against
    /// everyone. It may take its time: others restart instead of waiting for it. It must not wait
    /// for the holder of a [`CxLock`](crate::CxLock), which may be waiting for a cell. If it panics,
    /// that is a refusal.
    ///
    /// ```
    /// use cxlock::{CommitError, Stm, TCell, Transaction};
    ///
    /// let stock = TCell::<u32, Stm>::new(1);
    /// let sell = |pay: &dyn Fn() -> Result<(), &'static str>| {
    ///     let mut tx = Transaction::begin();
    ///     let left = tx.read(&stock)?;
    ///     tx.write(&stock, left - 1)?;
    ///     tx.commit_with(pay)
    /// };
    /// assert_eq!(sell(&|| Err("card refused")), Err(CommitError::Refused("card refused")));
    /// assert_eq!(stock.peek(), 1);
    /// assert_eq!(sell(&|| Ok(())), Ok(()));
    /// assert_eq!(stock.peek(), 0);
    /// ```
    ///
    /// # Errors
    /// [`CommitError::Restart`]: lost, the decision was not asked. [`CommitError::Refused`]: the
    /// decision's own error. Nothing has changed in either case.
    pub fn commit_with<E>(
        self,
        decision: impl FnOnce() -> Result<(), E>,
    ) -> Result<(), CommitError<E>> {
        let prepared = self.prepare()?;
        match decision() {
            Ok(()) => {
                prepared.publish();
                Ok(())
            }
            Err(refusal) => {
                prepared.roll_back();
                Err(CommitError::Refused(refusal))
            }
        }
    }
}

/// A transaction that holds all its words. Dropped, also by a panic, it is rolled back.
#[derive(Debug)]
#[must_use = "a prepared transaction that is dropped is rolled back"]
pub struct Prepared<'c>(Attempt<'c>);

impl Prepared<'_> {
    /// Second phase: makes the writes visible. Cannot fail.
    pub fn publish(mut self) {
        self.0.log.publish();
    }

    /// Second phase: as if it had never been.
    pub fn roll_back(self) {
        drop(self);
    }
}

/// Runs `body` as a transaction until it commits, with growing pauses between attempts.
///
/// Some transaction always gets through: an attempt loses only to a commit, or to a holder that
/// will be done soon.
///
/// # Panics
/// Within a section that runs as a transaction: it would commit by itself.
pub fn atomically<'c, R>(mut body: impl FnMut(&mut Attempt<'c>) -> Result<R, Restart>) -> R {
    let mut attempt = Attempt::new();
    let mut backoff = Backoff::new();
    loop {
        let outcome = body(&mut attempt)
            .and_then(|result| attempt.log.commit().map(|()| result).map_err(Restart));
        match outcome {
            Ok(result) => return result,
            Err(_) => backoff.pause(),
        }
        attempt.log.reset(usize::MAX);
    }
}

impl<E> CommitError<E> {
    /// The reason, if another transaction was first.
    pub fn reason(&self) -> Option<Reason> {
        match self {
            Self::Restart(restart) => Some(restart.reason()),
            Self::Refused(_) => None,
        }
    }
}
