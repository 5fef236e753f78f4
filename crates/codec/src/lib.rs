//! Tensor compression: slices in, bytes out. This crate does no I/O, no async, and knows no file format, object or
//! pack.
//!
//! A tensor is cut into *segments* of at most [`SEGMENT_BYTES`]. An [`Engine`] encodes a segment by itself or as a
//! difference to its *bases*: the same segment of the parent's tensor (the base) and of that tensor's own base. It
//! picks the smallest [`Scheme`] from a sample, and every engine gives the same bytes. [`quant`] has the quantisers of
//! lossy commits.
//!
//! ```
//! use mdl_codec::{CpuEngine, Dtype, Engine, Bases};
//!
//! let old: Vec<u8> = (0..4096).flat_map(|i| (i as f32).sin().to_le_bytes()).collect();
//! let new: Vec<u8> = (0..4096).flat_map(|i| ((i as f32).sin() * 1.0001).to_le_bytes()).collect();
//! let engine = CpuEngine::new();
//! let alone = engine.encode(Dtype::F32, &new, Bases::NONE, None)?;
//! let delta = engine.encode(Dtype::F32, &new, old.as_slice().into(), None)?;
//! assert!(delta.bytes.len() < alone.bytes.len());
//!
//! let mut decoded = vec![0; new.len()];
//! engine.decode(Dtype::F32, &delta.bytes, old.as_slice().into(), &mut decoded)?;
//! assert_eq!(decoded, new);
//! # Ok::<(), mdl_codec::CodecError>(())
//! ```

// The kernels that have vectors are of x86-64; other processors run the plain code beside them.
#![cfg_attr(not(target_arch = "x86_64"), allow(dead_code, unused_imports, unused_mut, unused_variables))]

#[cfg(target_arch = "x86_64")]
mod avx2;
#[cfg(target_arch = "x86_64")]
mod avx512;
mod compressed;
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
pub mod locks;
pub mod quant;
mod schemes;
mod scratch;
mod simd;
mod threads;

pub use compressed::{Coding, CompressedTensor};
pub use cpu::CpuEngine;
pub use device::{Device, EncodedTensor, Held, Resident, Span};
pub use dtype::Dtype;
pub use engine::{Bases, Encoded, Engine, SEGMENT_BYTES, Scheme, scheme_of};
pub use error::{CodecError, Result};
pub use threads::{Team, alone, on_team};
