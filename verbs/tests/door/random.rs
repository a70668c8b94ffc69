//! Random numbers from a seed.

use std::env;

/// A generator of numbers.
pub(crate) struct Random(u64);

impl Random {
    /// Uses the seed of the environment, or the first one, and prints it.
    pub(crate) fn new() -> Self {
        let named = env::var("MLX5_SEED").ok().and_then(|seed| seed.parse().ok());
        let seed = named.unwrap_or(1);
        println!("MLX5_SEED={seed}");
        Self::of(seed)
    }

    pub(crate) fn of(seed: u64) -> Self {
        // Neighbouring seeds differ in all bits.
        Self(seed.wrapping_add(1).wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1)
    }

    pub(crate) fn next(&mut self) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0.wrapping_mul(0x2545_f491_4f6c_dd1d)
    }

    pub(crate) fn below(&mut self, limit: usize) -> usize {
        ((self.next() >> 32) % limit as u64) as usize
    }

    pub(crate) fn one_in(&mut self, chances: usize) -> bool {
        self.below(chances) == 0
    }
}
