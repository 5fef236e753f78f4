//! Compression systems side by side on checkpoint files: what they emit, how wrong they are, how fast, and what an
//! evaluator says. It needs no repository and must not know how a version is stored.
//!
//! Everything is in memory: a checkpoint, its encoding and its reconstruction at a time.

mod candidate;
mod checkpoint;
mod evaluate;
mod measure;
mod search;

pub use checkpoint::Checkpoint;
pub use evaluate::{Evaluator, Verdict};
pub use measure::{Measured, measure};
pub use search::at_error;
