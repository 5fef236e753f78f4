//! Finds the tensors inside checkpoint files: a file is a skeleton plus tensor extents.
//!
//! [`scan`] is the way in. It recognises safetensors, PyTorch files (zip archives and what preceded them), `.npz`,
//! `.npy` and GGUF; anything else has the plain layout. docs/design/0002-checkpoint-files.md says which rules the
//! results follow.

mod archive;
mod bytes;
mod check;
mod checksums;
mod ggml;
mod gguf;
mod layout;
mod literal;
mod npy;
mod npz;
mod pickle;
mod resolve;
mod safetensors;
mod scan;
mod source;
mod torch;
mod zip;

pub use checksums::checksums;
pub use layout::{Extent, Format, Layout, ReadAt, ScanError, View};
pub use scan::scan;
pub use source::FileSource;
