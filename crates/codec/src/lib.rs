//! Tensor compression: slices in, bytes out. This crate does no I/O, no async, and knows no file format, object or
//! pack.

#[cfg(target_arch = "x86_64")]
mod avx2;
mod bitplane;
mod bits;
mod blocks;
mod coder;
mod contexts;
mod cpu;
mod decide;
mod delta;
mod device;
mod diff;
mod dtype;
mod engine;
#[doc(hidden)]
pub mod engine_internals;
mod error;
mod estimate;
mod float;
mod huffman;
mod lanes;
mod log2;
mod low;
mod palette;
mod planes;
pub mod quant;
mod rans;
mod scratch;
mod simd;
mod sparse;
mod tables;
mod tree;

pub use cpu::CpuEngine;
pub use device::{Device, Held, Resident, Span, Stored};
pub use dtype::Dtype;
pub use engine::{Encoded, Engine, Relatives, SEGMENT_BYTES, Scheme, scheme_of};
pub use error::CodecError;
