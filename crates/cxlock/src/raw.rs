//! The lock beneath every interface: a word, a place to sleep, a policy, counters.
//!
//! What a thread does at the word is decided by [`machine`]; this file turns the word into the
//! state that the machine knows, and the machine's answer into waiting and `xcas`.

use crate::engine::Engine;
use crate::machine::{self, Action, Admission, Event, LockState, Manager, Waiting};
use crate::modes;
use crate::stats::{Count, Counters, Stats};
use crate::sync::{AtomicU32, Ordering, const_outside_loom};
use crate::wait::{Dormitory, Wait};
use crate::word::{Stamp, Word};

/// Who gives way when a thread wants a lock exclusively and transactions are inside.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Policy {
    /// The transactions: they restart. Costs nothing, and the only policy in hardware.
    ExclusiveFirst,
    /// The thread: it waits for them, for so many rounds of waiting (the last ones give the
    /// processor away), then they restart. Needs a shared counter in each lock. Engines that can't
    /// see who is inside treat it as [`Policy::ExclusiveFirst`].
    ///
    /// A transaction that itself waits for a lock does not count as inside: it could be waiting
    /// for the very thread that waits for it (section 5.3 of the paper).
    TransactionsFirst {
        /// Rounds of waiting before the transactions lose after all.
        patience: u32,
    },
}

impl Policy {
    fn manager(self, waited: u32) -> Manager {
        match self {
            Self::TransactionsFirst { patience } if waited < patience => Manager::Wait,
            Self::ExclusiveFirst | Self::TransactionsFirst { .. } => Manager::Restart,
        }
    }
}

#[derive(Debug)]
pub(crate) struct RawLock {
    pub(crate) word: Word,
    dormitory: Dormitory,
    /// Transactions inside that are not waiting; counted under `TransactionsFirst` alone.
    inside: AtomicU32,
    policy: Policy,
    counters: Option<Box<Counters>>,
}

impl RawLock {
    const_outside_loom! {
        pub(crate) fn new(policy: Policy) -> Self {
            Self {
                word: Word::new(),
                dormitory: Dormitory::new(),
                inside: AtomicU32::new(0),
                policy,
                counters: None,
            }
        }
    }

    pub(crate) fn count_sections(&mut self) {
        self.counters = Some(Box::default());
    }

    pub(crate) fn stats(&self) -> Option<Stats> {
        self.counters.as_ref().map(|counters| counters.sum())
    }

    #[inline]
    pub(crate) fn count(&self, count: Count) {
        if let Some(counters) = &self.counters {
            counters.add(count);
        }
    }

    #[inline]
    pub(crate) fn id(&self) -> modes::LockId {
        std::ptr::from_ref(self).addr()
    }

    #[inline]
    pub(crate) fn counts_inside<E: Engine>(&self) -> bool {
        E::VISIBLE && self.policy != Policy::ExclusiveFirst
    }

    pub(crate) fn step_in(&self) {
        self.inside.fetch_add(1, Ordering::AcqRel);
    }

    pub(crate) fn step_out(&self) {
        self.inside.fetch_sub(1, Ordering::AcqRel);
    }

    /// What all threads could agree on, as far as the engine lets it be seen.
    #[inline]
    pub(crate) fn state<E: Engine>(&self, seen: Stamp) -> LockState {
        if seen.is_held() {
            return LockState::Exclusive;
        }
        match self.counts_inside::<E>() {
            true => match self.inside.load(Ordering::Acquire) {
                0 => LockState::Free,
                inside => LockState::Transactional(inside),
            },
            false => LockState::Free,
        }
    }

    /// Tries once to take the lock after `waited` rounds for the transactions inside.
    #[inline]
    pub(crate) fn try_acquire<E: Engine>(&self, waited: u32) -> Acquired {
        let seen = self.word.load();
        let manager = self.policy.manager(waited);
        let (waiting, admission) = (Waiting::default(), Admission::ExclusiveFirst);
        let state = self.state::<E>(seen);
        match machine::step(state, Event::Exclusive, manager, waiting, admission).action {
            Action::Proceed | Action::RestartOthers if E::acquire(&self.word, seen) => {
                Acquired::Yes
            }
            Action::Wait if seen.is_held() => Acquired::Held,
            Action::Wait => Acquired::Transactions,
            _ => Acquired::Raced,
        }
    }

    /// Takes the lock, however long it takes.
    ///
    /// # Panics
    /// If the calling thread holds it already.
    #[inline]
    pub(crate) fn acquire<E: Engine>(&self) {
        if self.try_acquire::<E>(0) != Acquired::Yes {
            self.acquire_slowly::<E>();
        }
    }

    #[cold]
    fn acquire_slowly<E: Engine>(&self) {
        self.refuse_self_deadlock();
        let (mut held, mut patience) = (Wait::default(), Wait::default());
        loop {
            match self.try_acquire::<E>(patience.rounds()) {
                Acquired::Yes => return,
                Acquired::Held => held.step(&self.word, &self.dormitory),
                Acquired::Transactions | Acquired::Raced => patience.pause(),
            }
        }
    }

    #[inline]
    pub(crate) fn release<E: Engine>(&self) {
        self.dormitory.wake(E::release(&self.word));
    }

    /// Waits until nobody holds the lock, outside of every transaction.
    #[inline]
    pub(crate) fn wait_until_free(&self) {
        if self.word.load().is_held() {
            self.wait_slowly();
        }
    }

    #[cold]
    fn wait_slowly(&self) {
        self.refuse_self_deadlock();
        let mut wait = Wait::default();
        while self.word.load().is_held() {
            wait.step(&self.word, &self.dormitory);
        }
    }

    /// Whether the calling thread holds the lock.
    pub(crate) fn is_mine(&self) -> bool {
        modes::with(|stack| stack.holds(self.id()))
    }

    fn refuse_self_deadlock(&self) {
        assert!(
            !self.is_mine(),
            "deadlock: this thread holds the lock exclusively already; end that section first, or \
             pass its guard on"
        );
    }
}

/// Outcome of one try to take a lock.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Acquired {
    Yes,
    /// Another thread holds it.
    Held,
    /// The manager lets the transactions inside end first.
    Transactions,
    /// It was free, and somebody was faster.
    Raced,
}
