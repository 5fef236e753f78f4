//! Noise that is the same on every machine; tests of other crates include this file.
#![allow(dead_code, reason = "each test binary uses its part")]

/// Marsaglia's generator. A state of 0 stays 0.
pub struct Xorshift(pub u64);

impl Xorshift {
    /// Other seeds, and 0 too, give other numbers from the first one on.
    pub fn seeded(seed: u64) -> Xorshift {
        Xorshift(seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1)
    }

    pub fn next(&mut self) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0
    }
}
