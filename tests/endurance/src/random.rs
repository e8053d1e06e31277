//! Random numbers from a seed that is printed, so that a run can be repeated.

use std::{
    sync::atomic::{AtomicU64, Ordering},
    time::{Duration, SystemTime, UNIX_EPOCH},
};

/// A generator (xorshift64*).
#[derive(Debug)]
pub struct Random(AtomicU64);

impl Random {
    /// One that begins at `seed`, or at the clock; the seed is printed.
    pub fn new(seed: Option<u64>) -> Random {
        let now = SystemTime::now().duration_since(UNIX_EPOCH);
        let seed = seed.unwrap_or_else(|| now.map_or(1, |since| since.as_nanos() as u64));
        println!("seed {seed}");
        Random(AtomicU64::new(seed | 1))
    }

    /// The next number.
    pub fn next(&self) -> u64 {
        let step = |mut state: u64| {
            state ^= state << 13;
            state ^= state >> 7;
            state ^ (state << 17)
        };
        let old = self.0.fetch_update(Ordering::Relaxed, Ordering::Relaxed, |old| Some(step(old)));
        let old = old.unwrap_or_else(|old| old);
        step(old).wrapping_mul(0x2545_F491_4F6C_DD1D) >> 11
    }

    /// A number below `limit`, which is not 0.
    pub fn below(&self, limit: u64) -> u64 {
        self.next() % limit
    }

    /// A time below `limit`.
    pub fn time(&self, limit: Duration) -> Duration {
        limit.mul_f64(self.below(10_000) as f64 / 10_000.0)
    }
}
