//! Pure compression for tensors: slices in, bytes out. Neighbours: `mdl-codec-cuda` implements the same [`Engine`];
//! `mdl-repo` calls it. This crate does no I/O, no async, and knows no file format, object or pack.

mod dtype;
mod engine;
mod error;

pub use dtype::Dtype;
pub use engine::{Encoded, Engine, SEGMENT_BYTES, Scheme, scheme_of};
pub use error::CodecError;
