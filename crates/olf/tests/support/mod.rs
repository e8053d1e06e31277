//! Shared by the integration tests: threads of the configuration, and recorded histories.

#![allow(dead_code)] // Each test binary uses its part.
#![allow(clippy::unwrap_used)] // Tests' helpers.

pub mod history;

#[cfg(not(any(loom, shuttle)))]
pub use std::thread;

#[cfg(shuttle)]
pub use shuttle::thread;

/// A small generator of the tests' own: reproducible, and the same under every scheduler.
#[derive(Clone)]
pub struct Dice(u64);

impl Dice {
    pub fn new(seed: u64) -> Self {
        Self(seed.wrapping_mul(0x9E37_79B9_7F4A_7C15) | 1)
    }

    pub fn roll(&mut self, below: usize) -> usize {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        (self.0 >> 33) as usize % below
    }
}
