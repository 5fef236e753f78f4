//! The work tree: which files there are, and what they are as objects. Neighbours: `ingest` hashes files, the index
//! remembers their state, `commit`, `status` and `checkout` ask. It must not know refs.

mod stat;
mod walk;

pub(crate) use stat::{FileState, recall, remember};
pub use walk::{WorkFile, survey, walk};
