//! Files on disk that are to become files of a version.

use std::path::PathBuf;

/// A file of the work tree.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DiskFile {
    /// Name in the tree: `/`-separated, relative.
    pub rel: String,
    /// Where it is.
    pub path: PathBuf,
    /// Length in bytes when it was listed.
    pub size: u64,
    /// Whether it is executable.
    pub executable: bool,
}
