//! Benchmark of compression systems on checkpoint files: size, error, speed and an evaluator's score. It needs no
//! repository and must not know how a version is stored.
//!
//! Everything is in memory: a checkpoint, its encoding and its reconstruction at a time.

mod candidate;
mod checkpoint;
mod evaluate;
mod measure;
mod search;

pub use checkpoint::Checkpoint;
pub use evaluate::{Evaluator, Verdict};
pub use measure::{Measured, WEIGHT_BOUND, measure};
pub use search::at_error;
