//! A section as its body sees it: reads, writes, nesting, the way out into exclusion.

use crate::cell::{TCell, Value};
use crate::engine::Engine;
use crate::guard::Exclusive;
use crate::lock::CxLock;
use crate::machine::{Meaning, Mode};
use crate::modes::Entered;
use crate::raw::RawLock;
use crate::restart::{Reason, Restart};
use crate::wait::Wait;
use std::marker::PhantomData;

/// Access to cells within a section.
///
/// Every [`Restart`] must be passed on with `?`.
pub struct Section<'c, E: Engine> {
    /// `None` in exclusive mode.
    transaction: Option<Running<'c, E>>,
    _one_thread: PhantomData<*const ()>,
}

pub(crate) struct Running<'c, E: Engine> {
    pub(crate) tx: E::Tx<'c>,
    /// Between `begin` and `commit`.
    active: bool,
    /// Locks to give back when the transaction commits.
    ends: Vec<&'c Exclusive<'c, E>>,
    /// Locks that count this transaction as inside.
    inside: Vec<&'c RawLock>,
}

impl<E: Engine> std::fmt::Debug for Section<'_, E> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Section").field("engine", &E::NAME).field("mode", &self.mode()).finish()
    }
}

impl<'c, E: Engine> Section<'c, E> {
    pub(crate) fn transaction() -> Self {
        Self { transaction: Some(Running::default()), _one_thread: PhantomData }
    }

    pub(crate) fn exclusive_mode() -> Self {
        Self { transaction: None, _one_thread: PhantomData }
    }

    /// Whether this runs as a transaction or under mutual exclusion.
    #[must_use]
    pub fn mode(&self) -> Mode {
        if self.transaction.is_some() { Mode::Optimistic } else { Mode::Exclusive }
    }

    /// The value of a cell.
    ///
    /// # Errors
    /// The section must start again.
    #[inline]
    pub fn read<T: Value>(&mut self, cell: &'c TCell<T, E>) -> Result<T, Restart> {
        let word = match &mut self.transaction {
            Some(running) => E::read(&mut running.tx, &cell.slot).map_err(Restart)?,
            None => E::read_held(&cell.slot),
        };
        Ok(T::from_word(word))
    }

    /// Changes a cell: at the commit, or at once in exclusive mode.
    ///
    /// # Errors
    /// The section must start again.
    #[inline]
    pub fn write<T: Value>(&mut self, cell: &'c TCell<T, E>, value: T) -> Result<(), Restart> {
        match &mut self.transaction {
            Some(running) => {
                E::write(&mut running.tx, &cell.slot, value.into_word()).map_err(Restart)
            }
            None => {
                E::write_held(&cell.slot, value.into_word());
                Ok(())
            }
        }
    }

    /// Call this before input, output, or anything else that can't be taken back: a transaction
    /// restarts exclusively, an exclusive section goes on.
    ///
    /// # Errors
    /// The section must start again, and will be exclusive.
    #[inline]
    pub fn io(&mut self) -> Result<(), Restart> {
        match &mut self.transaction {
            Some(running) => Err(running.restart(Reason::NeedExclusive)),
            None => Ok(()),
        }
    }

    /// Enters another lock: within the transaction that runs (flat: the outermost section is what
    /// restarts, and commits all), or, from an exclusive section, as a transaction of its own. A lock
    /// that this thread holds already it may enter again, in either mode.
    ///
    /// # Errors
    /// The outermost section must start again.
    pub fn optimistic<R>(
        &mut self,
        lock: &'c CxLock<E>,
        mut body: impl FnMut(&mut Self) -> Result<R, Restart>,
    ) -> Result<R, Restart> {
        let Some(running) = &mut self.transaction else {
            return if lock.raw.is_mine() { body(self) } else { Ok(lock.run(body)) };
        };
        let _entered = Entered::new(lock.raw.id(), Mode::Optimistic);
        running.enter(&lock.raw).map_err(Restart)?;
        body(self)
    }

    /// Takes another lock exclusively; a transaction restarts in exclusive mode first.
    ///
    /// # Errors
    /// The outermost section must start again, and will be exclusive.
    ///
    /// # Panics
    /// If this thread holds that lock exclusively.
    pub fn exclusive(&mut self, lock: &'c CxLock<E>) -> Result<Exclusive<'c, E>, Restart> {
        match &mut self.transaction {
            Some(running) => Err(running.restart(Reason::NeedExclusive)),
            None => Ok(lock.take()),
        }
    }

    /// Gives back a lock that was taken before this section began: when the transaction commits,
    /// or at once in exclusive mode. If the transaction restarts, the lock is still held.
    pub fn end(&mut self, guard: &'c Exclusive<'c, E>) {
        match (guard.meaning_of_end(), &mut self.transaction) {
            (Meaning::FreeAtCommit, Some(running)) => running.ends.push(guard),
            _ => {
                guard.give_back();
            }
        }
    }

    /// One run of `body` as a transaction.
    #[inline]
    pub(crate) fn attempt<R>(
        &mut self,
        lock: &'c CxLock<E>,
        body: &mut impl FnMut(&mut Self) -> Result<R, Restart>,
    ) -> Result<R, Reason> {
        // In exclusive mode there is nothing to attempt; nobody asks for it.
        let Some(running) = &mut self.transaction else { return Err(Reason::NeedExclusive) };
        running.begin(&lock.raw)?;
        let outcome = body(self);
        let Some(running) = &mut self.transaction else { return Err(Reason::NeedExclusive) };
        running.finish(outcome)
    }
}

impl<E: Engine> Default for Running<'_, E> {
    fn default() -> Self {
        Self { tx: E::Tx::default(), active: false, ends: Vec::new(), inside: Vec::new() }
    }
}

impl<'c, E: Engine> Running<'c, E> {
    #[inline]
    pub(crate) fn begin(&mut self, lock: &'c RawLock) -> Result<(), Reason> {
        E::begin(&mut self.tx)?;
        self.active = true;
        self.enter(lock).inspect_err(|_| self.leave())
    }

    #[inline]
    pub(crate) fn finish<R>(&mut self, outcome: Result<R, Restart>) -> Result<R, Reason> {
        let outcome = match outcome {
            Ok(result) => E::commit(&mut self.tx).map(|()| result),
            Err(Restart(reason)) => Err(self.restart(reason).0),
        };
        if outcome.is_ok() {
            for guard in self.ends.drain(..) {
                guard.give_back();
            }
        }
        self.leave();
        outcome
    }

    /// Waits for `lock` to be free, with its word in the read set from then on (`xtest`).
    #[inline]
    fn enter(&mut self, lock: &'c RawLock) -> Result<(), Reason> {
        if !E::subscribe(&mut self.tx, &lock.word)? {
            self.wait_for(lock)?;
        }
        if lock.counts_inside::<E>() {
            lock.step_in();
            self.inside.push(lock);
        }
        Ok(())
    }

    #[cold]
    fn wait_for(&mut self, lock: &'c RawLock) -> Result<(), Reason> {
        if lock.is_mine() {
            // Held until after this transaction's commit, by a guard that is older than it.
            return Ok(());
        }
        // Who waits in here may not keep others waiting.
        self.inside.iter().for_each(|raw| raw.step_out());
        let entered = self.spin_until_free(lock);
        self.inside.iter().for_each(|raw| raw.step_in());
        entered
    }

    fn spin_until_free(&mut self, lock: &'c RawLock) -> Result<(), Reason> {
        let mut wait = Wait::default();
        while !E::subscribe(&mut self.tx, &lock.word)? {
            wait.pause();
            // The holder may want a lock that only our commit gives back. Exclusively, `end` gives
            // it back at once.
            if !self.ends.is_empty() && wait.rounds() > PATIENCE_WITH_ENDS {
                return Err(E::restart(&mut self.tx, Reason::NeedExclusive));
            }
        }
        Ok(())
    }

    pub(crate) fn restart(&mut self, reason: Reason) -> Restart {
        Restart(E::restart(&mut self.tx, reason))
    }

    fn leave(&mut self) {
        self.active = false;
        self.ends.clear();
        self.inside.drain(..).for_each(RawLock::step_out);
    }
}

/// Rounds for which a transaction waits for a lock while it has others to give back.
const PATIENCE_WITH_ENDS: u32 = if cfg!(loom) { 1 } else { 64 };

impl<E: Engine> Drop for Running<'_, E> {
    /// A body that panics leaves its transaction active: in hardware that goes back to `begin`, and
    /// the panic happens again in exclusive mode, for everyone to see.
    fn drop(&mut self) {
        if self.active {
            E::restart(&mut self.tx, Reason::NeedExclusive);
            self.leave();
        }
    }
}
