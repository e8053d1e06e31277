//! Whose turn it is to wait for the next call: one thread's at a time.
//!
//! The thread that has the turn keeps it over an answer that takes no time, and gives it away before one
//! that may. Threads that wait for the turn sleep; a call wakes none of them.

use super::lock;
use std::cell::Cell;
use std::sync::{Condvar, Mutex, PoisonError};

thread_local! {
    /// Whether this thread has the turn. A thread serves one supervisor.
    static OWN: Cell<bool> = const { Cell::new(false) };
}

/// See above.
#[derive(Debug, Default)]
pub(super) struct Turn {
    state: Mutex<State>,
    given: Condvar,
}

#[derive(Debug, Default)]
struct State {
    taken: bool,
    waiting: usize,
}

/// Who took the turn that was given away.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Waiting {
    /// A thread that waits for it.
    Somebody,
    /// None does.
    Nobody,
    /// It was not this thread's to give.
    NotOurs,
}

impl Turn {
    /// Waits for the turn, unless this thread has it.
    pub(super) fn take(&self) {
        if OWN.get() {
            return;
        }
        let mut state = lock(&self.state);
        state.waiting += 1;
        while state.taken {
            state = self.given.wait(state).unwrap_or_else(PoisonError::into_inner);
        }
        state.waiting -= 1;
        state.taken = true;
        OWN.set(true);
    }

    /// Gives the turn away, if this thread has it.
    pub(super) fn give(&self) -> Waiting {
        if !OWN.replace(false) {
            return Waiting::NotOurs;
        }
        let mut state = lock(&self.state);
        state.taken = false;
        let waiting = state.waiting;
        drop(state);
        self.given.notify_one();
        if waiting > 0 { Waiting::Somebody } else { Waiting::Nobody }
    }
}
