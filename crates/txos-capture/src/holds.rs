//! What other transactions are about to write, and this one must not read meanwhile.
//!
//! # Invariants
//!
//! - *Each read meets each write once.* A hold is set up, and the workset looked through for it,
//!   under the lock of the workset; and a first touch looks for holds under the same lock before it
//!   is recorded. So what was read before is in the answer of [`Holds::set_up`], and what is read
//!   after it waits.
//! - *Who waits is woken*: by the release of the hold, by leave to pass it, or by the end of the
//!   attempt, after which every first touch fails.
//! - Locks are taken in this order: the source of the workset, the workset, the holds.

use std::sync::{
    Arc, Condvar, Mutex, Weak,
    atomic::{AtomicBool, AtomicUsize, Ordering},
};

use rustix::io::Errno;
use txos_core::{
    Workset,
    contention::{Hold, Meeting, Written},
};

use crate::mirror::{Mirror, lock};

/// Called, from a worker thread, when a touch waits for a hold.
pub type OnTouch = Box<dyn Fn(Hold) + Send + Sync>;

/// Called, from a worker thread, at the first touch of an attempt.
pub type OnFirst = Box<dyn Fn() + Send + Sync>;

/// The holds of others, as one transaction minds them through all of its attempts.
#[derive(Default)]
pub struct Holds {
    held: Mutex<Vec<Held>>,
    changed: Condvar,
    /// How many there are, so that a touch costs nothing where there is none.
    count: AtomicUsize,
    /// Whether first touches fail: the attempt is over, or lost.
    stopped: AtomicBool,
    source: Mutex<Source>,
    on_touch: Option<OnTouch>,
    /// Whether it only tells what was read: touches neither wait nor fail.
    tells_only: bool,
    /// Told of the first touch after [`Holds::begin`], if there is to be one.
    on_first: Option<OnFirst>,
    armed: AtomicBool,
}

struct Held {
    hold: Hold,
    written: Written,
    passed: bool,
}

/// Where the workset is.
#[derive(Default)]
pub(crate) enum Source {
    /// Nothing has been read.
    #[default]
    None,
    /// It grows.
    Live(Weak<Mirror>),
    /// The attempt's processes have ended.
    Whole(Arc<Workset>),
}

impl Source {
    fn live(&self) -> Option<Arc<Mirror>> {
        match self {
            Source::Live(mirror) => mirror.upgrade(),
            _ => None,
        }
    }
}

/// What became of a hold that was set up.
#[derive(Debug)]
pub struct Answer {
    /// What had been read of it.
    pub meeting: Option<Meeting>,
    /// How many objects had been read in all.
    pub size: u64,
}

impl Holds {
    /// No holds; `on_touch` is told whenever a touch waits for one.
    pub fn new(on_touch: OnTouch) -> Holds {
        Holds { on_touch: Some(on_touch), ..Holds::default() }
    }

    /// For a view that is used by one transaction after the other: first touches neither wait nor
    /// fail, and `on_touch` is told once for each hold that one meets. Nothing is told before
    /// [`Holds::begin`]; `on_first` is told of the first touch after it.
    pub fn telling_only(on_touch: OnTouch, on_first: OnFirst) -> Holds {
        let (stopped, on_first) = (AtomicBool::new(true), Some(on_first));
        Holds { tells_only: true, stopped, on_first, ..Holds::new(on_touch) }
    }

    /// Sets a hold up, and passes what had been read of it to `answer` before anything else can
    /// happen to the workset.
    pub fn set_up(&self, hold: Hold, written: Written, answer: impl FnOnce(Answer)) {
        let source = lock(&self.source);
        if self.tells_only && self.stopped() {
            return answer(Answer { meeting: None, size: 0 });
        }
        let meets =
            |workset: &Workset| Answer { meeting: written.meets(workset), size: workset.len() };
        // Let go before the source is: who ends the capture has to be the only one that has it.
        let mirror = source.live();
        let known = mirror.as_ref().map(|mirror| mirror.known());
        let found = match (&known, &*source) {
            (Some(known), _) => meets(&known.workset),
            (None, Source::Whole(workset)) => meets(workset),
            (None, _) => Answer { meeting: None, size: 0 },
        };
        let mut held = lock(&self.held);
        held.retain(|other| other.hold.writer != hold.writer);
        held.push(Held { hold, written, passed: false });
        self.count.store(held.len(), Ordering::Release);
        drop((held, known));
        answer(found);
        drop((mirror, source));
    }

    /// A hold need not be minded any more by this transaction.
    pub fn pass(&self, hold: Hold) {
        for held in lock(&self.held).iter_mut().filter(|held| held.hold == hold) {
            held.passed = true;
        }
        self.changed.notify_all();
    }

    /// A hold is over.
    pub fn release(&self, hold: Hold) {
        let mut held = lock(&self.held);
        held.retain(|other| other.hold != hold);
        self.count.store(held.len(), Ordering::Release);
        drop(held);
        self.changed.notify_all();
    }

    /// From here on first touches fail, those that wait included.
    pub fn stop(&self) {
        self.stopped.store(true, Ordering::Release);
        // Whoever looked before, and has not begun to wait, holds this.
        drop(lock(&self.held));
        self.changed.notify_all();
    }

    /// The attempt is over: what it has read is forgotten, and meets nothing any more.
    pub fn finish(&self) {
        self.stop();
        if !self.tells_only {
            *lock(&self.source) = Source::None;
        }
    }

    /// What was read is this, all of it: of a transaction that was kept.
    pub fn read_before(&self, workset: Arc<Workset>) {
        *lock(&self.source) = Source::Whole(workset);
    }

    /// Another attempt begins, that has read nothing.
    pub fn begin(&self) {
        if self.tells_only {
            // Who does not run is not told of a release.
            lock(&self.held).clear();
            self.count.store(0, Ordering::Release);
            self.armed.store(true, Ordering::Release);
        } else {
            *lock(&self.source) = Source::None;
            lock(&self.held).iter_mut().for_each(|held| held.passed = false);
        }
        self.stopped.store(false, Ordering::Release);
    }

    /// Whether first touches fail.
    pub fn stopped(&self) -> bool {
        self.stopped.load(Ordering::Acquire)
    }

    /// How many objects have been read in this attempt.
    pub fn size(&self) -> u64 {
        let source = lock(&self.source);
        match (source.live(), &*source) {
            (Some(mirror), _) => mirror.known().workset.len(),
            (None, Source::Whole(workset)) => workset.len(),
            (None, _) => 0,
        }
    }

    pub(crate) fn source(&self) -> std::sync::MutexGuard<'_, Source> {
        lock(&self.source)
    }

    /// The hold that a touch has to wait for, if there is one. The caller holds the workset's lock.
    ///
    /// # Errors
    /// `EIO` if touches fail.
    pub(crate) fn met(&self, meets: impl Fn(&Written) -> bool) -> Result<Option<Hold>, Errno> {
        if self.stopped() {
            return if self.tells_only { Ok(None) } else { Err(Errno::IO) };
        }
        if let Some(tell) = self.on_first.as_ref().filter(|_| self.armed.load(Ordering::Acquire))
            && self.armed.swap(false, Ordering::AcqRel)
        {
            tell();
        }
        if self.count.load(Ordering::Acquire) == 0 {
            return Ok(None);
        }
        let mut held = lock(&self.held);
        if self.tells_only {
            let met = held.iter_mut().filter(|held| !held.passed && meets(&held.written));
            let met = met.map(|held| {
                held.passed = true;
                held.hold
            });
            let met: Vec<Hold> = met.collect();
            drop(held);
            if let Some(tell) = &self.on_touch {
                met.into_iter().for_each(tell);
            }
            return Ok(None);
        }
        let met = held.iter().find(|held| !held.passed && meets(&held.written));
        Ok(met.map(|held| held.hold))
    }

    /// Waits until `hold` is over or may be passed. No lock may be held.
    ///
    /// # Errors
    /// `EIO` if the attempt is over first.
    pub(crate) fn wait(&self, hold: Hold) -> Result<(), Errno> {
        if let Some(tell) = &self.on_touch {
            tell(hold);
        }
        let mut held = lock(&self.held);
        while held.iter().any(|held| held.hold == hold && !held.passed) {
            if self.stopped() {
                return Err(Errno::IO);
            }
            held = self.changed.wait(held).unwrap_or_else(std::sync::PoisonError::into_inner);
        }
        Ok(())
    }
}
