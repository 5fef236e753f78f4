//! Shared by the tests of all modules: a session on the shim, and data.

#[cfg(test)]
pub(crate) mod pairs;

use crate::{
    Session,
    device::{Lane, shim::Shim},
};
use std::sync::Arc;

/// Work on the shim.
pub(crate) fn session() -> Session {
    Session::new(Lane::new(Arc::new(Shim::new(1 << 30))).unwrap())
}

/// Numbers of elements that find the edges of groups, blocks of threads and the format's blocks.
pub(crate) const SIZES: [usize; 11] = [1, 2, 31, 32, 33, 127, 1000, 4099, (1 << 18) - 1, 1 << 18, (1 << 18) + 1];

/// Xorshift: the same numbers on every machine.
#[derive(Clone, Debug)]
pub(crate) struct Noise(pub u64);

impl Noise {
    /// The next number.
    pub(crate) fn next(&mut self) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0
    }

    /// A number that looks like a weight: a sum of four uniform ones, around 0, of this spread.
    pub(crate) fn weight(&mut self, spread: f32) -> f32 {
        let sum: f32 = (0..4).map(|_| (self.next() >> 40) as f32 / (1 << 24) as f32 - 0.5).sum();
        sum * spread
    }
}
