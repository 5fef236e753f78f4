//! What a merge cannot decide by itself.

use serde::Serialize;

/// Why.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum MergeReason {
    /// The file has no tensors, and more than one side changed it.
    BothChanged,
    /// One side deleted it, another changed it.
    Deleted,
    /// Not all sides have the tensor.
    Missing,
    /// The sides have other dtypes or shapes.
    Shapes,
    /// Its elements are no floating-point numbers, and more than one side changed it.
    NotFloats,
    /// The strategy starts from a common ancestor, which does not have it.
    NoBase,
    /// Two tensors of the file have one name.
    Names,
    /// One side has a directory where another has a file.
    Directory,
}

impl MergeReason {
    /// In words.
    pub const fn text(self) -> &'static str {
        match self {
            MergeReason::BothChanged => "more than one side changed it",
            MergeReason::Deleted => "one side deleted it, another changed it",
            MergeReason::Missing => "not all sides have it",
            MergeReason::Shapes => "the sides have other dtypes or shapes",
            MergeReason::NotFloats => "more than one side changed it, and its elements are no floats",
            MergeReason::NoBase => "the common ancestor, where the strategy starts, does not have it",
            MergeReason::Names => "two tensors have this name",
            MergeReason::Directory => "one side has a directory where another has a file",
        }
    }

    /// For programs.
    pub const fn name(self) -> &'static str {
        match self {
            MergeReason::BothChanged => "both-changed",
            MergeReason::Deleted => "deleted",
            MergeReason::Missing => "missing",
            MergeReason::Shapes => "shapes",
            MergeReason::NotFloats => "not-floats",
            MergeReason::NoBase => "no-base",
            MergeReason::Names => "names",
            MergeReason::Directory => "directory",
        }
    }
}

/// A file, or one tensor of it, that the user has to decide on.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct MergeConflict {
    /// Path in the tree.
    pub path: String,
    /// Name of the tensor; none: the file.
    pub tensor: Option<String>,
    /// Why.
    pub reason: MergeReason,
}
