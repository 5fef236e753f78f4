//! Weights that live encoded in memory, for `mdl.nn`.

mod load;
mod team;
mod weight;

pub use team::use_openmp;
pub use weight::{CompressedWeight, Contents};
