//! Finds the tensors inside checkpoint files: a file is a skeleton plus tensor extents.
//!
//! [`scan`] is the way in. It recognises safetensors, PyTorch files (zip archives and what preceded them), `.npz`,
//! `.npy` and GGUF; anything else has the plain layout. docs/design/0002-checkpoint-files.md says which rules the
//! results follow.
//!
//! A [`Layout`] lists *extents*, the ranges of a file that hold tensors' elements, and *views*, names for parts of
//! them. What lies between the extents is the skeleton: headers, pickles, padding.
//!
//! ```
//! use mdl_files::{FileSource, Format, scan};
//!
//! let dir = tempfile::tempdir()?;
//! let path = dir.path().join("w.safetensors");
//! let header = br#"{"w":{"dtype":"F32","shape":[2],"data_offsets":[0,8]}}"#;
//! std::fs::write(&path, [&(header.len() as u64).to_le_bytes(), &header[..], &[0; 8]].concat())?;
//! let layout = scan(&FileSource::open(&path)?, &path)?;
//! assert_eq!(layout.format, Format::Safetensors);
//! assert_eq!((layout.extents.len(), layout.extents[0].shape.as_slice()), (1, &[2][..]));
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```

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
pub use npy::npy_kind;
pub use safetensors::SAFETENSORS_TYPES;
pub use scan::scan;
pub use source::FileSource;
