//! A xorshift generator: fast enough not to show in the figures.

/// The generator's state.
#[derive(Clone)]
pub struct Rng(u64);

impl Rng {
    /// A generator of its own sequence.
    pub fn new(seed: u64) -> Self {
        Self(seed.wrapping_add(1).wrapping_mul(0x9E37_79B9_7F4A_7C15) | 1)
    }

    /// A number below `n`.
    #[inline]
    pub fn below(&mut self, n: u64) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        ((u128::from(self.0) * u128::from(n)) >> 64) as u64
    }
}
