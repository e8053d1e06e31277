//! Where the time of a transaction goes: for measurements, which ask for it. Without that it costs a look at a
//! number that does not change.

use std::{
    cell::Cell,
    sync::atomic::{AtomicBool, Ordering},
    time::{Duration, Instant},
};

/// A part of the beginning or of the end of a transaction.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Phase {
    /// The checkpoint is made: with rollback only.
    Checkpoint,
    /// What is open, mapped and running is looked at, and where the thread is.
    Look,
    /// The session is asked for a view.
    Ask,
    /// The view is entered.
    Enter,
    /// Open files and pipes are turned to the view's.
    Carry,
    /// What is open is looked at again.
    LookAgain,
    /// The view is left.
    Leave,
    /// The session looks for members, compares, and commits.
    Commit,
    /// Open files are turned to those that are committed; the checkpoint is dropped.
    Return,
}

impl Phase {
    /// All of them, in order.
    pub const ALL: [Phase; 9] = [
        Phase::Checkpoint,
        Phase::Look,
        Phase::Ask,
        Phase::Enter,
        Phase::Carry,
        Phase::LookAgain,
        Phase::Leave,
        Phase::Commit,
        Phase::Return,
    ];
}

/// The time of each phase, in the order of [`Phase::ALL`].
pub type Times = [Duration; Phase::ALL.len()];

static MEASURED: AtomicBool = AtomicBool::new(false);

thread_local! {
    static SINCE: Cell<Option<Instant>> = const { Cell::new(None) };
    static TIMES: Cell<Times> = const { Cell::new([Duration::ZERO; Phase::ALL.len()]) };
}

/// From now on phases are timed, in all threads.
pub fn measure() {
    MEASURED.store(true, Ordering::Relaxed);
}

/// What the calling thread's transactions have taken since the last time that it asked.
pub fn take() -> Times {
    TIMES.take()
}

/// A beginning or an end starts.
pub(crate) fn start() {
    if MEASURED.load(Ordering::Relaxed) {
        SINCE.set(Some(Instant::now()));
    }
}

/// What was done since the start or the last of these was this phase.
pub(crate) fn was(phase: Phase) {
    if MEASURED.load(Ordering::Relaxed) {
        let now = Instant::now();
        if let Some(since) = SINCE.replace(Some(now)) {
            let mut times = TIMES.get();
            times[phase as usize] += now - since;
            TIMES.set(times);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn time_goes_to_the_phase_that_it_was() {
        start();
        was(Phase::Ask);
        assert_eq!(take(), Times::default(), "nobody has asked for it");
        measure();
        start();
        let began = Instant::now();
        while began.elapsed() < Duration::from_millis(2) {}
        was(Phase::Ask);
        was(Phase::Enter);
        let times = take();
        assert!(times[Phase::Ask as usize] >= Duration::from_millis(2));
        assert!(times[Phase::Enter as usize] < times[Phase::Ask as usize]);
        assert_eq!(times[Phase::Look as usize], Duration::ZERO);
        assert_eq!(take(), Times::default());
        assert_eq!(Phase::ALL.map(|phase| phase as usize), [0, 1, 2, 3, 4, 5, 6, 7, 8]);
    }
}
