//! The configuration manager (Inshrinkerator, section 5): which candidate is small enough and still good enough.
//!
//! `gate` says what may be lost, `cube` walks the paper's configuration cube (Algorithm 4, delta neighbourhood),
//! `ladder` a single parameter that sticks (the lattice's step, a number of bins). `ahead` says what can be measured
//! side by side.

mod ahead;
mod cube;
mod gate;
mod ladder;

pub use ahead::{Guess, ahead};
pub use cube::{Cube, Point, guided, neighbourhood};
pub use gate::{Direction, Gate, Progress};
pub use ladder::{Ladder, climb, coarser};

/// What a search may ask about a candidate.
pub trait Trials<K: ?Sized> {
    /// Why a trial could not be made at all.
    type Error;

    /// Bytes that storing the candidate takes.
    fn bytes(&mut self, key: &K) -> Result<u64, Self::Error>;

    /// Whether the gate lets the candidate through.
    ///
    /// # Errors
    /// The candidate could not be made. One that cannot be judged is rejected, which is no error.
    fn passes(&mut self, key: &K) -> Result<bool, Self::Error>;
}
