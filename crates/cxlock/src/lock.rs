//! [`CxLock`]: the cooperative transactional lock for sections that are closures.
//!
//! | paper | here |
//! |---|---|
//! | `cx_optimistic(l)` … `cx_end(l)` | [`CxLock::optimistic`], nested [`Section::optimistic`] |
//! | `cx_exclusive(l)` | [`CxLock::exclusive`], nested [`Section::exclusive`] |
//! | `cx_end(l)` after it | dropping the guard; within a transaction [`Section::end`] |
//! | I/O in a transaction | [`Section::io`] before the I/O |
//!
//! Why closures: software can't jump back to the begin of a section as a processor can. What is
//! restarted is the outermost section (the paper's text; its section 7.4 counts one restart for
//! each level, which flat nesting makes the same thing done more often).

use crate::engine::{Engine, Rtm};
use crate::guard::Exclusive;
use crate::machine::Mode;
use crate::modes::{self, Entered};
use crate::raw::{Acquired, Policy, RawLock};
use crate::restart::Restart;
use crate::section::Section;
use crate::stats::{Count, Stats};
use crate::sync::const_outside_loom;
use crate::wait::Backoff;
use std::marker::PhantomData;

/// A lock whose sections run as transactions of engine `E` when they can, and under mutual
/// exclusion when they must.
///
/// It protects whatever [`TCell`](crate::TCell)s the program says it does, as a spinlock does.
/// With the default engine that is hardware where the machine has it and plain locking elsewhere.
///
/// ```
/// use cxlock::{CxLock, Stm, TCell};
///
/// let lock = CxLock::<Stm>::new();
/// let (from, to) = (TCell::new(10_i64), TCell::new(0_i64));
/// let moved = lock.optimistic(|s| {
///     let have = s.read(&from)?;
///     s.write(&from, 0)?;
///     s.write(&to, have)?;
///     s.io()?; // from here on exclusively: the next line runs once
///     println!("moved {have}");
///     Ok(have)
/// });
/// assert_eq!((moved, to.peek()), (10, 10));
/// ```
#[derive(Debug)]
pub struct CxLock<E: Engine = Rtm> {
    pub(crate) raw: RawLock,
    _engine: PhantomData<fn() -> E>,
}

impl<E: Engine> Default for CxLock<E> {
    fn default() -> Self {
        Self::new()
    }
}

impl<E: Engine> CxLock<E> {
    const_outside_loom! {
        /// A free lock; exclusive threads come first.
        #[must_use]
        pub fn new() -> Self {
            Self::with_policy(Policy::ExclusiveFirst)
        }
    }

    const_outside_loom! {
        /// A free lock with another policy.
        #[must_use]
        pub fn with_policy(policy: Policy) -> Self {
            Self { raw: RawLock::new(policy), _engine: PhantomData }
        }
    }

    /// The same lock, counting what happens to its sections.
    #[must_use]
    pub fn with_stats(mut self) -> Self {
        self.raw.count_sections();
        self
    }

    /// What happened so far; `None` unless made [with counters](Self::with_stats).
    #[must_use]
    pub fn stats(&self) -> Option<Stats> {
        self.raw.stats()
    }

    /// Runs `body` as a transaction that excludes nobody but those who hold the lock; run again
    /// from its start after each conflict, and exclusively when it asks for that, when it is too
    /// large, or when it has lost too often.
    ///
    /// `body` must not have effects outside of cells before [`Section::io`]. If it panics the
    /// transaction never happened, or, run exclusively, the lock is freed with what was written.
    ///
    /// # Panics
    /// If the thread is in a transaction already (nest with [`Section::optimistic`]), or holds this
    /// very lock.
    #[inline]
    pub fn optimistic<'c, R>(
        &'c self,
        body: impl FnMut(&mut Section<'c, E>) -> Result<R, Restart>,
    ) -> R {
        modes::refuse_within_transaction();
        self.run(body)
    }

    /// As [`Self::optimistic`], but gives up if somebody holds the lock now. Once inside it goes
    /// on like the other, waiting included.
    ///
    /// # Panics
    /// If the thread is in a transaction already.
    pub fn try_optimistic<'c, R>(
        &'c self,
        body: impl FnMut(&mut Section<'c, E>) -> Result<R, Restart>,
    ) -> Option<R> {
        modes::refuse_within_transaction();
        (!self.raw.word.load().is_held()).then(|| self.run(body))
    }

    /// Takes the lock itself, for sections that always need exclusion.
    ///
    /// # Panics
    /// If the thread is in a transaction (use [`Section::exclusive`]), or holds this very lock.
    #[inline]
    pub fn exclusive(&self) -> Exclusive<'_, E> {
        modes::refuse_within_transaction();
        self.take()
    }

    /// As [`Self::exclusive`], but gives up where that would wait.
    ///
    /// # Panics
    /// If the thread is in a transaction.
    pub fn try_exclusive(&self) -> Option<Exclusive<'_, E>> {
        modes::refuse_within_transaction();
        (self.raw.try_acquire::<E>(0) == Acquired::Yes).then(|| Exclusive::new(self))
    }

    #[inline]
    pub(crate) fn take(&self) -> Exclusive<'_, E> {
        self.raw.acquire::<E>();
        Exclusive::new(self)
    }

    #[inline]
    pub(crate) fn run<'c, R>(
        &'c self,
        mut body: impl FnMut(&mut Section<'c, E>) -> Result<R, Restart>,
    ) -> R {
        self.run_as_transaction(&mut body).unwrap_or_else(|| self.run_exclusively(&mut body))
    }

    /// `None`: it takes exclusion.
    #[inline]
    fn run_as_transaction<'c, R>(
        &'c self,
        body: &mut impl FnMut(&mut Section<'c, E>) -> Result<R, Restart>,
    ) -> Option<R> {
        if !E::available() {
            return None;
        }
        let _entered = Entered::new(self.raw.id(), Mode::Optimistic);
        let mut section = Section::transaction();
        let mut backoff = Backoff::new();
        loop {
            self.raw.wait_until_free();
            match section.attempt(self, body) {
                Ok(result) => {
                    self.raw.count(Count::Commit);
                    return Some(result);
                }
                Err(reason) => {
                    self.raw.count(Count::Restart(reason));
                    if reason.wants_exclusion() || backoff.losses() >= E::ATTEMPTS {
                        return None;
                    }
                }
            }
            backoff.pause();
        }
    }

    #[inline]
    fn run_exclusively<'c, R>(
        &'c self,
        body: &mut impl FnMut(&mut Section<'c, E>) -> Result<R, Restart>,
    ) -> R {
        let _guard = self.take();
        let mut section = Section::exclusive_mode();
        let mut backoff = Backoff::new();
        loop {
            // Nothing in an exclusive section asks for a restart. A restart that the body has kept
            // from somewhere else runs it again, as it would in a transaction.
            match body(&mut section) {
                Ok(result) => return result,
                Err(Restart(reason)) => self.raw.count(Count::Restart(reason)),
            }
            backoff.pause();
        }
    }
}
