//! Optimizer moments: recognises them by name, and quantises them.
//!
//! Adam divides a smoothed gradient m by the root of a smoothed square v, so that what matters of both is their ratio
//! to their neighbours in time and place, not their absolute precision: logarithmic levels of 4 bits leave the run's
//! final loss where it is (8-bit optimizers, arXiv 2110.02861, and 4-bit ones, arXiv 2309.01507, keep such blocks with
//! a scale of each block's own). Here all blocks share one grid of the whole number line, so that a tensor has few
//! distinct values and the store's palette finds them by itself. Two things must never happen: a v of 0 under an m that
//! is not (the step explodes), and a NaN.

mod blocks;
mod grid;
mod names;
mod scaled;

pub use blocks::{BLOCK, FEW, quantise};
pub use names::moment_of;
pub use scaled::{Pair, STEP, quantise_pair};

/// Which moment a tensor holds.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Moment {
    /// The mean of the gradient: Adam's m (`exp_avg`). Signed.
    First,
    /// The mean of its square: Adam's v (`exp_avg_sq`). Never negative.
    Second,
    /// The accumulated gradient of SGD with momentum (`momentum_buffer`). Signed.
    Momentum,
}

/// How finely one moment is kept.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Bits {
    /// Levels one octave apart: 7 magnitudes of either sign and zero in a block of a signed moment, 16 in one of v.
    Four,
    /// Eight levels an octave: 127 magnitudes of either sign and zero, or 255 of v.
    Eight,
}

#[cfg(test)]
mod tests;
