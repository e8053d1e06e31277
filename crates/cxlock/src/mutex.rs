//! [`CxMutex`]: a mutex for any data that elides itself where hardware helps.
//!
//! Locking starts a hardware transaction that has the lock's word in its read set and leaves it
//! free: sections that touch different data run side by side. Anything that a transaction can't do
//! cancels it before it has an effect, and the section starts again at [`CxMutex::lock`] with the
//! lock held. Software can't go back there, so without hardware it is a plain lock, which is what
//! most machines will see.
//!
//! Each guard knows its own mode, so guards can be dropped in any order: a free within a
//! transaction is a write of the transaction and is visible at its commit.
#![allow(unsafe_code)] // the data of a mutex

use crate::engine::{Engine, Instructions, Plain, Rtm, rtm};
use crate::raw::{Acquired, Policy, RawLock};
use crate::restart::Reason;
use crate::stats::{Count, Stats};
use crate::sync::{AtomicU32, Ordering, const_outside_loom};
use crate::wait::Backoff;
use std::cell::UnsafeCell;
use std::marker::PhantomData;
use std::ops::{Deref, DerefMut};

/// Conflicts after which a section is no longer tried as a transaction.
const ATTEMPTS: u32 = 3;
/// After hardware has cancelled a section for good, so many sections don't try.
const SKIP: u32 = 16;

/// A mutual exclusion lock that runs sections as hardware transactions where it can.
///
/// Not poisoned by panics: data is left as the panic found it.
///
/// ```
/// use cxlock::CxMutex;
///
/// let names = CxMutex::new(vec!["a"]);
/// names.lock().push("b");
/// let mut guard = names.lock();
/// guard.io(); // what follows runs once, with the lock held
/// println!("{guard:?}");
/// assert_eq!(guard.len(), 2);
/// ```
#[derive(Debug)]
pub struct CxMutex<T: ?Sized> {
    raw: RawLock,
    /// Sections that still don't try hardware.
    skip: AtomicU32,
    data: UnsafeCell<T>,
}

// SAFETY: the data is reached by one thread at a time: by the one that holds the lock, or, in
// hardware transactions, by threads of which the processor lets none see another's writes before
// its commit and cancels all but one that touch the same data.
unsafe impl<T: ?Sized + Send> Sync for CxMutex<T> {}

impl<T> CxMutex<T> {
    const_outside_loom! {
        /// A free mutex.
        #[must_use]
        pub fn new(data: T) -> Self {
            Self {
                raw: RawLock::new(Policy::ExclusiveFirst),
                skip: AtomicU32::new(0),
                data: UnsafeCell::new(data),
            }
        }
    }

    /// The same mutex, counting what happens to its sections.
    #[must_use]
    pub fn with_stats(mut self) -> Self {
        self.raw.count_sections();
        self
    }

    /// The data, by the only owner.
    pub fn into_inner(self) -> T {
        self.data.into_inner()
    }
}

impl<T: ?Sized> CxMutex<T> {
    /// Starts a section, as a transaction if possible.
    #[inline]
    pub fn lock(&self) -> CxMutexGuard<'_, T> {
        if Rtm::available() && self.elide() {
            return CxMutexGuard::new(self, true);
        }
        self.lock_exclusive()
    }

    /// Starts a section with the lock held, for sections that always need that.
    #[inline]
    pub fn lock_exclusive(&self) -> CxMutexGuard<'_, T> {
        if Rtm::available() {
            // Within the transaction of another mutex this goes back to its `lock`; outside of
            // every transaction the instruction does nothing.
            Rtm::restart(&mut (), Reason::NeedExclusive);
        }
        self.raw.acquire::<Plain>();
        CxMutexGuard::new(self, false)
    }

    /// Takes the lock if nobody holds it.
    pub fn try_lock(&self) -> Option<CxMutexGuard<'_, T>> {
        (self.raw.try_acquire::<Plain>(0) == Acquired::Yes).then(|| CxMutexGuard::new(self, false))
    }

    /// The data, which nobody else can reach now.
    pub fn get_mut(&mut self) -> &mut T {
        self.data.get_mut()
    }

    /// What happened so far; `None` unless made [with counters](Self::with_stats).
    #[must_use]
    pub fn stats(&self) -> Option<Stats> {
        self.raw.stats()
    }

    /// Whether a transaction runs now, with the lock's word in its read set.
    fn elide(&self) -> bool {
        let skip = self.skip.load(Ordering::Relaxed);
        if skip > 0 {
            // Lost updates only make the pause longer or shorter.
            self.skip.store(skip - 1, Ordering::Relaxed);
            return false;
        }
        let mut backoff = Backoff::new();
        while backoff.losses() < ATTEMPTS {
            self.raw.wait_until_free();
            let reason = match rtm::begin() {
                Ok(()) if !self.raw.word.load().is_held() => return true,
                Ok(()) => Rtm::restart(&mut (), Reason::Busy),
                Err(reason) => reason,
            };
            self.raw.count(Count::Restart(reason));
            if reason.wants_exclusion() {
                if reason != Reason::NeedExclusive {
                    self.skip.store(SKIP, Ordering::Relaxed);
                }
                return false;
            }
            backoff.pause();
        }
        false
    }
}

impl<T: Default> Default for CxMutex<T> {
    fn default() -> Self {
        Self::new(T::default())
    }
}

/// A section of a [`CxMutex`]; ends when dropped.
#[must_use = "the section ends when the guard is dropped"]
pub struct CxMutexGuard<'m, T: ?Sized> {
    mutex: &'m CxMutex<T>,
    /// Runs as a transaction.
    elided: bool,
    _one_thread: PhantomData<*const ()>,
}

// SAFETY: a shared guard gives `&T` and `io`, which is harmless on other threads: there it either
// finds no transaction or cancels that thread's own.
unsafe impl<T: ?Sized + Sync> Sync for CxMutexGuard<'_, T> {}

impl<'m, T: ?Sized> CxMutexGuard<'m, T> {
    fn new(mutex: &'m CxMutex<T>, elided: bool) -> Self {
        Self { mutex, elided, _one_thread: PhantomData }
    }

    /// Call this before input or output: a transaction goes back to its [`CxMutex::lock`] and takes
    /// the lock; a section that holds the lock goes on. Hardware cancels system calls by itself, so
    /// this is for what it can't see, and saves the wait until it does.
    #[inline]
    pub fn io(&self) {
        if self.elided {
            Rtm::restart(&mut (), Reason::NeedExclusive);
        }
    }
}

impl<T: ?Sized> Deref for CxMutexGuard<'_, T> {
    type Target = T;

    #[inline]
    fn deref(&self) -> &T {
        // SAFETY: this thread is inside, see `Sync` of the mutex; the guard's borrow bounds ours.
        unsafe { &*self.mutex.data.get() }
    }
}

impl<T: ?Sized> DerefMut for CxMutexGuard<'_, T> {
    #[inline]
    fn deref_mut(&mut self) -> &mut T {
        // SAFETY: as in `deref`, and the guard is borrowed mutably.
        unsafe { &mut *self.mutex.data.get() }
    }
}

impl<T: ?Sized> Drop for CxMutexGuard<'_, T> {
    #[inline]
    fn drop(&mut self) {
        if self.elided {
            // Commits, if this is the outermost of nested transactions. Dropping them in another
            // order than they were nested changes only where that is.
            let _ = Rtm::commit(&mut ());
            self.mutex.raw.count(Count::Commit);
        } else {
            self.mutex.raw.release::<Plain>();
            self.mutex.raw.count(Count::Exclusive);
        }
    }
}

impl<T: ?Sized + std::fmt::Debug> std::fmt::Debug for CxMutexGuard<'_, T> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        (**self).fmt(f)
    }
}
