//! Weights that live encoded in memory, for `mdl.nn`.

mod load;
mod weight;

pub use weight::{CompressedWeight, Contents};
