//! Per-tensor storage statistics of one commit. Neighbours: `tensors` fills it, `commit` stores it as a blob, `stats` and
//! the faces read it. It must not know how a tensor is encoded.

use serde::{Deserialize, Serialize};

/// What storing one new tensor took. Ids are not repeated here: the manifest has the tensor's, the pack its base's.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct TensorReport {
    /// File in the tree.
    pub path: String,
    /// Tensor in the file.
    pub name: String,
    /// Element type.
    pub dtype: String,
    /// Scheme of its segments (`planes`, `delta`, ...); `mixed` where they differ.
    pub scheme: String,
    /// Decoded bytes.
    pub logical: u64,
    /// Stored bytes.
    pub stored: u64,
    /// Deltas down to a tensor stored whole.
    pub depth: u8,
}

/// The report blob (docs/format.md, "Canonical objects"): JSON, so that later versions can add to it.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Report {
    /// Tensors this commit added, in the order they were stored.
    pub tensors: Vec<TensorReport>,
    /// Tensors of all files, new or not.
    pub total: u64,
}
