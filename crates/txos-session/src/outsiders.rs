//! Changes by outsiders, heard of while a program's transactions run.
//!
//! One that has read what somebody changes has lost: it learns so at its next request or its end,
//! instead of by the validation there, and its members that were born in it are ended.
//!
//! # Invariants
//!
//! - Nothing depends on it for safety: validation finds what nobody heard.
//! - Nobody listens before a transaction has lasted [`AFTER`], and nobody does once none that lasts so
//!   long is left: until then nothing of it is in any process's path, and short transactions cost
//!   nothing but a look at a flag.
//! - Where listening fails because the machine is short of something, it is tried again after [`PAUSE`].
//! - One listener serves all transactions of the session, and takes no lock that a transaction holds
//!   while it waits for anything.

use std::{
    sync::{
        Arc, Condvar, Mutex, MutexGuard, PoisonError,
        atomic::{AtomicBool, Ordering},
    },
    thread,
    time::{Duration, Instant},
};

use txos_core::Detail;
use txos_outside::{Change, Outside};
use txos_store::Loss;

use crate::control::{Control, Controls};

/// A shorter transaction does not listen: there is little to be gained, and to stop listening takes the
/// kernel some milliseconds.
const AFTER: Duration = Duration::from_millis(150);
/// What changes while listening begins is heard of, or seen by looking back so much later.
const LATE: Duration = Duration::from_millis(10);
/// How long listening is not tried again when it has failed.
const PAUSE: Duration = Duration::from_secs(1);

/// Wakes the thread that listens.
#[derive(Default)]
pub(crate) struct Outsiders {
    state: Mutex<State>,
    changed: Condvar,
    /// The thread waits for a transaction to begin.
    idle: AtomicBool,
}

#[derive(Default)]
struct State {
    /// A transaction has begun while the thread waited for one.
    begun: bool,
    closed: bool,
}

impl Outsiders {
    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// A transaction has begun.
    pub(crate) fn begun(&self) {
        if self.idle.load(Ordering::SeqCst) {
            self.state().begun = true;
            self.changed.notify_all();
        }
    }

    /// The process is about to end.
    pub(crate) fn close(&self) {
        self.state().closed = true;
        self.changed.notify_all();
    }

    /// What the listening thread runs, until it is closed.
    pub(crate) fn listen(&self, controls: &Controls) {
        let mut outside: Option<Outside> = None;
        let mut failed: Option<Instant> = None;
        loop {
            let running = controls.running();
            let lasting: Vec<Arc<Control>> =
                running.iter().filter(|control| control.lasts(AFTER)).cloned().collect();
            match (&outside, lasting.is_empty()) {
                (None, false) if failed.is_none_or(|at| at.elapsed() >= PAUSE) => {
                    match Outside::watch() {
                        Ok(watching) => outside = Some(watching),
                        Err(error) => {
                            tracing::debug!(%error, "no early doom");
                            if !error.may_pass() {
                                return;
                            }
                            failed = Some(Instant::now());
                        }
                    }
                }
                (Some(_), true) => outside = None,
                _ => {}
            }
            if let Some(outside) = &outside {
                attend(outside, lasting);
            }
            if !self.rest(running.is_empty(), controls) {
                return;
            }
        }
    }

    /// Waits until it is time to look again; `false` once it is closed.
    fn rest(&self, nobody: bool, controls: &Controls) -> bool {
        let mut state = self.state();
        if nobody {
            self.idle.store(true, Ordering::SeqCst);
            // Who has begun before it could see that is found here.
            while controls.is_empty() && !state.begun && !state.closed {
                state = self.changed.wait(state).unwrap_or_else(PoisonError::into_inner);
            }
            self.idle.store(false, Ordering::SeqCst);
            state.begun = false;
        }
        if !state.closed {
            let wait = self.changed.wait_timeout(state, AFTER);
            state = wait.unwrap_or_else(PoisonError::into_inner).0;
        }
        !state.closed
    }
}

/// Holds what is heard from now on against what these have read, and what they had read before.
fn attend(outside: &Outside, lasting: Vec<Arc<Control>>) {
    let new: Vec<Arc<Control>> =
        lasting.iter().filter(|control| control.is_first_heard()).cloned().collect();
    outside.listen(Some(Box::new(move |change| {
        for control in &lasting {
            look(control, change);
        }
    })));
    if new.is_empty() {
        return;
    }
    thread::sleep(LATE);
    for control in new {
        if let Some(conflict) = control.judge.look_back() {
            control.lose(Loss::new(0, "somebody else".to_owned(), &[conflict]));
        }
    }
}

fn look(control: &Control, change: &Change<'_>) {
    if control.is_over() {
        return;
    }
    let Some(mut conflict) = control.judge.look(change.touched) else { return };
    let by = change.who().to_string();
    conflict.detail = Detail::By(by.clone());
    control.lose(Loss::new(0, by, &[conflict]));
}
