//! The GPU engine: the same bytes as `mdl-codec`'s on the processor, made where the tensors already are.
//!
//! `open` chooses a device, `engine` and `resident` are the public interface, `batch` decides by the codec's own rules,
//! `schemes` dispatches to the schemes' modules, `quantiser` to those of lossy commits; `weights` keeps compressed ones
//! to run from. These launch kernels on a `device` session: a GPU through cudarc or, in tests, the same kernels on the
//! processor.

mod auto;
mod batch;
mod blake3;
mod copy;
mod device;
mod engine;
mod error;
mod job;
mod kernels;
mod layout;
#[doc(hidden)]
pub mod measure;
mod open;
mod quantiser;
mod resident;
mod schemes;
#[cfg(test)]
mod testing;
mod weights;

use batch::Job;
use device::{Arg, Buffer, Session, View};
pub use engine::CudaEngine;
pub use error::DeviceError;
use error::Result;
use job::{Decode, Encode};
use kernels::Kernel;
#[cfg(feature = "shim")]
pub use open::shim;
pub use open::{Choice, Finding, engine, findings, gpu, paths, prepare};
pub use weights::{Part, Product, Queue, Weights};
