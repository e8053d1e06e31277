//! The only source of chance: xorshift64* seeded through splitmix64.
//!
//! One stream belongs to the machine (miss timing, backoff), others to the workload scripts, so
//! that perturbing the timing does not change the work asked for.

/// A small deterministic generator; equal seeds give equal streams on every host.
#[derive(Debug, Clone)]
pub struct Rng(u64);

impl Rng {
    /// A stream for `seed`; any seed, zero included, is good.
    pub fn new(seed: u64) -> Self {
        let mut z = seed.wrapping_add(0x9e37_79b9_7f4a_7c15);
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        Self((z ^ (z >> 31)) | 1)
    }

    /// The next 64 bits.
    pub fn next_u64(&mut self) -> u64 {
        self.0 ^= self.0 >> 12;
        self.0 ^= self.0 << 25;
        self.0 ^= self.0 >> 27;
        self.0.wrapping_mul(0x2545_f491_4f6c_dd1d)
    }

    /// A number in `0..n`; 0 when `n` is 0.
    pub fn below(&mut self, n: u32) -> u32 {
        (((self.next_u64() >> 32) * u64::from(n)) >> 32) as u32
    }

    /// True `percent` times in a hundred.
    pub fn percent(&mut self, percent: u32) -> bool {
        self.below(100) < percent
    }
}

#[cfg(test)]
mod tests {
    use super::Rng;

    #[test]
    fn equal_seeds_give_equal_streams_and_stay_in_range() {
        let (mut a, mut b, mut other) = (Rng::new(7), Rng::new(7), Rng::new(8));
        let mut differs = false;
        let mut buckets = [0u32; 10];
        for _ in 0..10_000 {
            let x = a.below(10);
            assert_eq!(x, b.below(10));
            differs |= x != other.below(10);
            buckets[x as usize] += 1;
        }
        assert!(differs);
        assert!(buckets.iter().all(|n| (800..1200).contains(n)), "{buckets:?}");
        assert_eq!(a.below(0), 0);
    }
}
