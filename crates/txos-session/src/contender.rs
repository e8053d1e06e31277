//! A view's place at the contention manager, for the transactions that use it one after the other.
//!
//! # Invariants
//!
//! - Nothing that a transaction reads waits for the manager, and nothing depends on it for safety: what
//!   it decides ends a lost transaction sooner, or lets one that ranks higher come first. Where there is
//!   no manager, validation decides alone.
//! - A transaction that is ready waits for others no longer than [`LONGEST`], and for one of its own
//!   process no longer than [`OWN_LONGEST`]: those may need something else of it, such as a lock in
//!   memory, and never end.

use std::{
    path::Path,
    sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError, Weak},
    time::{Duration, Instant},
};

use txos_capture::{Holds, OnDoom};
use txos_contention::{Ended, Ending, LONGEST, Link, Lost, OWN_LONGEST, Verdict};
use txos_core::{
    Conflict, Facet, TxId,
    contention::{Standing, Written},
};

use txos_store::Loss;

use crate::control::{Control, GivenUp};

/// How often it is looked whether somebody still wants the answer.
const TICK: Duration = Duration::from_millis(20);

/// One view's connection to the contention manager.
pub(crate) struct Contender {
    link: Option<Link>,
    heard: Arc<Heard>,
}

/// What the manager has decided.
#[derive(Default)]
struct Heard {
    state: Mutex<State>,
    changed: Condvar,
}

#[derive(Default)]
struct State {
    /// The attempt whose verdicts count.
    attempt: u32,
    verdict: Option<Verdict>,
    lost: Option<Lost>,
    /// How long it has waited for others, ready.
    waited: Duration,
    control: Weak<Control>,
}

/// Whose turn it is.
#[derive(Debug)]
pub(crate) enum Turn {
    /// This transaction's: it may validate and apply.
    Granted,
    /// Another's, to whom it has lost.
    Lost(Lost),
    /// Nobody waits for it any more.
    Cancelled,
}

impl Heard {
    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn hear(&self, attempt: u32, verdict: Verdict) {
        let mut state = self.lock();
        if state.attempt != attempt {
            return;
        }
        if let Verdict::Lost(lost) = &verdict {
            state.lost = Some(lost.clone());
            if let Some(control) = state.control.upgrade() {
                control.ring();
                control.give_up(GivenUp::Retry);
            }
        }
        state.verdict = Some(verdict);
        drop(state);
        self.changed.notify_all();
    }
}

impl Contender {
    /// Connects to the manager of the state directory at `state`; without one goes on without.
    pub(crate) fn new(state: &Path) -> Contender {
        let heard = Arc::<Heard>::default();
        let hears = Arc::clone(&heard);
        let link =
            Link::connect(state, Box::new(move |attempt, verdict| hears.hear(attempt, verdict)));
        let link = link.inspect_err(|error| tracing::warn!(%error, "no contention manager")).ok();
        Contender { link, heard }
    }

    /// What tells the manager of reads, for the capture of the view.
    pub(crate) fn holds(&self) -> Arc<Holds> {
        self.link.as_ref().map(Link::holds).unwrap_or_default()
    }

    /// What tells a transaction of the view that it has met what others changed, for the capture.
    pub(crate) fn on_doom(&self) -> OnDoom {
        let heard = Arc::downgrade(&self.heard);
        Arc::new(move |conflict: &Conflict| {
            let control = heard.upgrade().and_then(|heard| heard.lock().control.upgrade());
            if let Some(control) = control {
                let conflict = std::slice::from_ref(conflict);
                control.lose(Loss::new(0, "somebody else".to_owned(), conflict));
            }
        })
    }

    /// Whether there was a manager, and has ended: the view is of use for one more transaction.
    pub(crate) fn is_gone(&self) -> bool {
        self.link.as_ref().is_some_and(Link::is_gone)
    }

    /// A transaction begins.
    pub(crate) fn begin(&mut self, standing: Standing, command: &str, control: &Arc<Control>) {
        let process = control.process().unsigned_abs();
        *self.heard.lock() = State { control: Arc::downgrade(control), ..State::default() };
        let Some(link) = &mut self.link else { return };
        // What is decided before the number is known here is not heard: nothing was read yet.
        if let Some(attempt) = link.enter(standing, process, command) {
            self.heard.lock().attempt = attempt;
        }
    }

    /// Whether it waits for something outside the order.
    pub(crate) fn stuck(&self, stuck: bool) {
        if let Some(link) = &self.link {
            link.stuck(stuck);
        }
    }

    /// To whom it has lost, if it has.
    pub(crate) fn lost(&self) -> Option<Lost> {
        self.heard.lock().lost.clone()
    }

    /// It is ready, and would write this: waits until it may. `wanted` says whether somebody still
    /// waits for it, `own` whether another transaction is of the same process.
    pub(crate) fn turn(
        &self,
        written: &Written,
        read: u64,
        wanted: impl Fn() -> bool,
        own: impl Fn(TxId) -> bool,
    ) -> Turn {
        let Some(link) = self.link.as_ref().filter(|link| !link.is_gone()) else {
            return Turn::Granted;
        };
        if let Some(lost) = self.lost() {
            return Turn::Lost(lost);
        }
        if let Err(error) = link.ready(written, read) {
            tracing::warn!(%error, "not arbitrated");
            return Turn::Granted;
        }
        let began = Instant::now();
        let mut waits = None;
        let mut impatient = false;
        loop {
            let mut state = self.heard.lock();
            let verdict = match state.verdict.take() {
                Some(verdict) => Some(verdict),
                None => {
                    let wait = self.heard.changed.wait_timeout(state, TICK);
                    state = wait.unwrap_or_else(PoisonError::into_inner).0;
                    state.verdict.take()
                }
            };
            let waited = began.elapsed();
            if waits.is_some() {
                state.waited = waited;
            }
            drop(state);
            match verdict {
                // Without a manager validation decides.
                Some(Verdict::Granted | Verdict::Gone) => return Turn::Granted,
                Some(Verdict::Lost(lost)) => return Turn::Lost(lost),
                Some(Verdict::Waits(winner)) => waits = Some(winner),
                None => {}
            }
            if !wanted() {
                return Turn::Cancelled;
            }
            let patience = match &waits {
                Some(winner) if own(winner.id) => OWN_LONGEST,
                _ => LONGEST,
            };
            if waits.is_some() && waited > patience && !impatient {
                impatient = true;
                link.impatient();
            }
            // A manager that says nothing at all is stopped.
            if waits.is_none() && waited > txos_contention::PATIENCE {
                return Turn::Granted;
            }
        }
    }

    /// It is over, and has lost because of these, which others than transactions changed.
    pub(crate) fn end(&self, ending: Ending, outside: Vec<Facet>) {
        if let Some(link) = &self.link {
            link.leave(self.ended(ending, outside));
        }
    }

    /// It is over, and was lost to another: waits until that one has ended, so that the next attempt does
    /// not meet it.
    pub(crate) fn end_lost(&self, wanted: impl Fn() -> bool) {
        let began = Instant::now();
        if let Some(link) = &self.link {
            let ended = self.ended(Ending::Aborted, Vec::new());
            link.leave_and_rest(ended, || began.elapsed() > LONGEST || !wanted());
        }
    }

    fn ended(&self, ending: Ending, outside: Vec<Facet>) -> Ended {
        let waited_us = u64::try_from(self.heard.lock().waited.as_micros()).unwrap_or(u64::MAX);
        Ended { ending, outside, waited_us, paused_us: None }
    }
}
