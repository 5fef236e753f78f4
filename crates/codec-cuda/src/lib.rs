//! The GPU engine: the same bytes as `mdl-codec`'s on the processor, made where the tensors already are.
//!
//! `open` chooses a device, `engine` and `resident` are the public interface, `batch` decides by the codec's own rules,
//! `schemes` dispatches to the schemes' modules, `quantiser` to those of lossy commits. These launch kernels on a
//! `device` session: a GPU through cudarc or, in tests, the same kernels on the processor.

mod auto;
mod batch;
mod blake3;
mod copy;
mod delta;
mod deviation;
mod device;
mod diff;
mod engine;
mod error;
mod huffman;
mod job;
mod kernels;
mod lattice;
#[doc(hidden)]
pub mod measure;
mod open;
#[cfg(test)]
mod pairs;
mod palette;
mod planes;
mod quantiser;
mod rans;
mod resident;
mod restore;
mod schemes;
mod sketch;
mod sparse;
mod tables;
#[cfg(test)]
mod testing;

pub use engine::CudaEngine;
pub use error::DeviceError;
#[cfg(feature = "shim")]
pub use open::shim;
pub use open::{Choice, Finding, engine, findings, gpu, paths, prepare};
