//! Finds the tensors inside checkpoint files: a file is a skeleton plus tensor extents. Neighbours: borrows `Dtype` from
//! `mdl-codec`; `mdl-repo` cuts and pastes by what is found here. It must not know objects, ids or compression.

mod layout;

pub use layout::{Extent, Format, Layout, ReadAt, ScanError, View};
