//! Merges of weights: pure functions from the tensors of several versions, as little-endian bytes, to one.
//!
//! The same inputs give the same bits on every machine and with any number of threads:
//!
//! * Elements are widened to f64 (exactly), combined in f64 in the order that each method states, and rounded once to
//!   the dtype: to the nearest, ties to even. Beyond the largest finite value lies infinity; f8e4m3 has none, and gets
//!   NaN.
//! * Only operations that IEEE 754 rounds correctly are used (`+ - * /` and square roots). Rust never contracts a
//!   product and a sum to a fused multiply-add, and the sine and the arc cosine are this crate's ([`angle`]).
//! * Sums over a tensor (the angle of [`Method::Slerp`]) are kept in pairs of f64 over blocks of fixed size, which are
//!   added up in order: their result, rounded to f64, is that of exact arithmetic in all but contrived cases.
//! * A NaN has sign and payload by accident of the processor. One that comes out of arithmetic is written as the
//!   dtype's positive quiet NaN without payload.
//!
//! Infinities, subnormals and the sign of zero follow IEEE 754. Subnormals are never flushed. Where all versions (and
//! the base, if the method has one) hold the same bytes, so does the result, whatever they mean, unless the method
//! scales what they share ([`Strategy::keeps_equal`]).

#[cfg(all(target_arch = "x86", not(target_feature = "sse2")))]
compile_error!("merges need SSE2: x87 rounds to other widths than f64");

pub mod angle;
mod blocks;
mod double;
mod draws;
mod element;
mod error;
mod linear;
mod merge;
mod slerp;
mod strategy;
mod task_vectors;
mod trim;
mod update;

pub use double::Double;
pub use error::MergeError;
pub use merge::{Tensors, merge, merge_f64};
pub use strategy::{Method, Strategy};
pub use update::apply_update;
