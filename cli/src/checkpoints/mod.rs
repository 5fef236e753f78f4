//! Checkpoints in a directory that a training framework writes: which entries are some, and where in the run each is.

pub mod find;
pub mod name;
pub mod trainer;
pub mod whole;

/// Key of a commit's meta: the name that the checkpoint had in the directory.
pub const SOURCE: &str = "source";
/// Key of a lossy commit's meta: the tree that the originals would have been.
pub const SOURCE_TREE: &str = "source_tree";
