//! Waiting: a little in a spin, then giving the processor away, then asleep.
//!
//! Who waits for a lock may sleep: holders wake all sleepers when they free it, and only then if
//! anybody sleeps. Who waits for a cell does not: cells are held for the length of a commit.

use crate::sync::{Condvar, Mutex, PoisonError, SPINS, YIELDS, const_outside_loom};
use crate::sync::{spin_loop, yield_now};
use crate::word::{Stamp, Word};

/// One step of a short wait; `round` counts the steps from 0.
pub(crate) fn pause(round: u32) {
    if round < SPINS {
        for _ in 0..1 << round {
            spin_loop();
        }
    } else {
        yield_now();
    }
}

/// Where the threads that wait for one lock sleep.
#[derive(Debug, Default)]
pub(crate) struct Dormitory {
    door: Mutex<()>,
    bell: Condvar,
}

impl Dormitory {
    const_outside_loom! {
        pub(crate) fn new() -> Self {
            Self { door: Mutex::new(()), bell: Condvar::new() }
        }
    }

    /// Sleeps until `word` may be free. The note in the word is made under the door, and who frees
    /// the word takes the note out with the same instruction and rings under the door: so no ring
    /// falls between the note and the sleep.
    #[cold]
    fn sleep(&self, word: &Word) {
        let door = self.door.lock().unwrap_or_else(PoisonError::into_inner);
        let seen = word.load();
        if seen.is_parked() || word.park(seen) {
            drop(self.bell.wait(door).unwrap_or_else(PoisonError::into_inner));
        }
    }

    /// Wakes everybody, if the word that was freed says that somebody sleeps.
    #[inline]
    pub(crate) fn wake(&self, freed: Stamp) {
        if freed.is_parked() {
            self.ring();
        }
    }

    #[cold]
    fn ring(&self) {
        drop(self.door.lock().unwrap_or_else(PoisonError::into_inner));
        self.bell.notify_all();
    }
}

/// A wait for a lock word, from its first step on.
#[derive(Debug, Default)]
pub(crate) struct Wait {
    round: u32,
}

impl Wait {
    /// One step of a wait for `word` to be free.
    pub(crate) fn step(&mut self, word: &Word, dormitory: &Dormitory) {
        if self.round < SPINS + YIELDS {
            pause(self.round);
            self.round += 1;
        } else {
            dormitory.sleep(word);
        }
    }

    /// Steps made so far, asleep not counted.
    pub(crate) fn rounds(&self) -> u32 {
        self.round
    }

    /// One step of a wait for something that nobody rings for.
    pub(crate) fn pause(&mut self) {
        pause(self.round);
        self.round = self.round.saturating_add(1);
    }
}

/// Growing, irregular pauses between attempts that lost.
#[derive(Debug)]
pub(crate) struct Backoff {
    losses: u32,
    noise: u64,
}

/// Doubling stops here: 2^10 spins are a few microseconds.
const LONGEST: u32 = 10;

impl Backoff {
    pub(crate) fn new() -> Self {
        Self { losses: 0, noise: 0 }
    }

    /// Losses so far.
    pub(crate) fn losses(&self) -> u32 {
        self.losses
    }

    /// Counts a loss and pauses.
    pub(crate) fn pause(&mut self) {
        self.losses = self.losses.saturating_add(1);
        if cfg!(loom) || self.losses > LONGEST {
            yield_now();
            return;
        }
        // Two threads that keep meeting must not pause equally long. The address of this value
        // differs between their stacks, and a step of xorshift makes noise of it.
        if self.noise == 0 {
            self.noise = std::ptr::from_ref(self).addr() as u64 | 1;
        }
        self.noise ^= self.noise << 13;
        self.noise ^= self.noise >> 7;
        self.noise ^= self.noise << 17;
        let spins = self.noise % (1 << self.losses);
        for _ in 0..spins {
            spin_loop();
        }
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;
    use std::sync::Arc;
    use std::time::Duration;

    #[test]
    fn a_sleeper_is_woken_and_only_then_is_there_a_ring() {
        let shared = Arc::new((Word::new(), Dormitory::new()));
        assert!(shared.0.try_hold(shared.0.load()));
        let sleeper = {
            let shared = Arc::clone(&shared);
            std::thread::spawn(move || {
                let mut wait = Wait::default();
                while shared.0.load().is_held() {
                    wait.step(&shared.0, &shared.1);
                }
            })
        };
        while !shared.0.load().is_parked() {
            std::thread::sleep(Duration::from_millis(1));
        }
        let freed = shared.0.free(3);
        assert!(freed.is_parked());
        shared.1.wake(freed);
        sleeper.join().expect("the sleeper ends");
        assert_eq!(shared.0.load().version(), 3);
        assert!(!shared.0.load().is_parked());
    }
}
