//! Per-tensor storage statistics of one commit.

use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;

/// What storing one new tensor took. Ids are not repeated here: the manifest has the tensor's, the pack its base's.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
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
    /// Lossy commits: largest deviation of an element from what was to be committed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub max_abs: Option<f64>,
    /// Lossy commits: the deviation's Euclidean norm relative to the tensor's.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub rel_l2: Option<f64>,
    /// Lossy commits: the same of the row that is furthest off, relative to the row.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub worst_row: Option<f64>,
    /// Lossy commits: the deviation relative to the tensor's change since the parent; none where that is unknown.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub update_error: Option<f64>,
    /// Lossy commits: the largest such error of a row, relative to the row's change.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub worst_row_update: Option<f64>,
}

/// How far a tensor's reconstruction is from it, as [`TensorReport`] has it.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct TensorError {
    /// Largest deviation of an element.
    pub max_abs: f64,
    /// The deviation's Euclidean norm relative to the tensor's.
    pub rel_l2: f64,
    /// The largest of a row, relative to the row.
    pub worst_row: f64,
    /// Relative to the tensor's change since the parent.
    pub update_error: Option<f64>,
    /// The largest of a row, relative to the row's change.
    pub worst_row_update: Option<f64>,
}

/// The report blob (docs/format.md, "Canonical objects"): JSON, so that later versions can add to it.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Report {
    /// Tensors this commit added, in the order they were stored.
    pub tensors: Vec<TensorReport>,
    /// Tensors of all files, new or not.
    pub total: u64,
}

impl Report {
    /// Notes how far reconstructions are from their tensors, by `FILE:NAME`.
    pub fn errors(&mut self, errors: &BTreeMap<String, TensorError>) {
        for t in &mut self.tensors {
            if let Some(e) = errors.get(&format!("{}:{}", t.path, t.name)) {
                (t.max_abs, t.rel_l2) = (Some(rounded(e.max_abs)), Some(rounded(e.rel_l2)));
                t.worst_row = Some(rounded(e.worst_row));
                (t.update_error, t.worst_row_update) = (e.update_error.map(rounded), e.worst_row_update.map(rounded));
            }
        }
    }
}

/// Four digits: more would say nothing, and take room in every commit.
fn rounded(x: f64) -> f64 {
    format!("{x:.3e}").parse().unwrap_or(x)
}
