//! Tensor compression: slices in, bytes out. This crate does no I/O, no async, and knows no file format, object or
//! pack.

#[cfg(target_arch = "x86_64")]
mod avx2;
mod cpu;
mod decide;
mod device;
mod dtype;
mod engine;
#[doc(hidden)]
pub mod engine_internals;
mod entropy;
mod error;
mod estimate;
pub mod quant;
mod schemes;
mod scratch;
mod simd;

pub use cpu::CpuEngine;
pub use device::{Device, Held, Resident, Span, Stored};
pub use dtype::Dtype;
pub use engine::{Encoded, Engine, Relatives, SEGMENT_BYTES, Scheme, scheme_of};
pub use error::CodecError;
