//! The engine on a GPU: the same bytes as `mdl-codec`'s on the processor, made where the tensors already are. Neighbours: `mdl-codec`
//! decides (which scheme, which tables), this crate does the passes over data; the binaries choose between the two. It must not
//! know files, objects or packs.
//!
//! Rooms: `device` is memory, streams and launches, on a GPU through cudarc or, in tests, the same kernels on the processor;
//! `kernels` has the sources and compiles them.

mod copy;
// wired in by engine
#[allow(dead_code, unused_imports)]
mod delta;
mod device;
mod diff;
mod error;
// wired in by engine
#[allow(dead_code, unused_imports)]
mod job;
mod kernels;
#[cfg(test)]
mod pairs;
mod rans;
// wired in by engine
#[allow(dead_code, unused_imports)]
mod sparse;
// wired in by engine
#[allow(dead_code)]
mod tables;
#[cfg(test)]
mod testing;

pub use error::DeviceError;
