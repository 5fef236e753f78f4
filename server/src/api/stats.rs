//! Route `GET .../stats`: storage by branch, file, tensor and kind of object.

use crate::request::prelude::*;
use mdl_repo::{BranchStats, NameStats, Stats, TensorStats};

/// Most branches and most files in an answer.
const MOST: usize = 1000;

/// What is stored.
#[derive(Debug, Serialize, ToSchema)]
pub(super) struct StatsInfo {
    /// Versions that a ref or HEAD reaches.
    commits: u64,
    packs: u64,
    /// Distinct objects.
    objects: u64,
    /// Bytes of all files of all these versions.
    logical_bytes: u64,
    /// Decoded bytes of all distinct objects.
    unique_bytes: u64,
    /// Bytes of all packs.
    stored_bytes: u64,
    /// Bytes that no ref or HEAD reaches.
    unreachable_bytes: u64,
    unreachable_objects: u64,
    /// Whether the index is there and can be had.
    index: bool,
    /// Branches, by name; at most 1000.
    branches: Vec<BranchInfo>,
    /// File paths, the largest in storage first; at most 1000.
    files: Vec<NameInfo>,
    /// Tensors, the largest in storage first; at most 100.
    tensors: Vec<TensorInfo>,
    /// Objects by kind.
    kinds: Vec<NameInfo>,
    /// Tensors by how they are stored.
    schemes: Vec<NameInfo>,
    /// Tensors by the deltas below them, from 0.
    depths: Vec<u64>,
    /// Packs that cannot be read: what they hold is counted nowhere.
    damaged_packs: u64,
}

/// What a branch reaches.
#[derive(Debug, Serialize, ToSchema)]
struct BranchInfo {
    name: String,
    commits: u64,
    logical_bytes: u64,
    stored_bytes: u64,
    /// Of these, what no other branch reaches.
    exclusive_bytes: u64,
}

/// What goes by a name.
#[derive(Debug, Serialize, ToSchema)]
struct NameInfo {
    name: String,
    /// Distinct contents.
    versions: u64,
    logical_bytes: u64,
    stored_bytes: u64,
}

/// A tensor in all versions.
#[derive(Debug, Serialize, ToSchema)]
#[schema(as = TensorTotals)]
struct TensorInfo {
    path: String,
    name: String,
    /// Distinct contents.
    versions: u64,
    logical_bytes: u64,
    stored_bytes: u64,
}

/// Add up what is stored
#[utoipa::path(get, path = "/stats", tag = "repositories", responses((status = 200, body = StatsInfo)))]
pub(super) async fn stats(Read(access): Read) -> Result<Json<StatsInfo>> {
    access.heavy(|access, watch| Ok(Json(info(mdl_repo::stats(&access.repo, watch)?)))).await
}

fn info(s: Stats) -> StatsInfo {
    let name = |n: NameStats| NameInfo {
        name: n.name,
        versions: n.versions,
        logical_bytes: n.logical,
        stored_bytes: n.stored,
    };
    let names = |all: Vec<NameStats>| all.into_iter().take(MOST).map(name).collect();
    let branch = |b: BranchStats| BranchInfo {
        name: b.name,
        commits: b.commits,
        logical_bytes: b.logical,
        stored_bytes: b.stored,
        exclusive_bytes: b.exclusive,
    };
    let tensor = |t: TensorStats| TensorInfo {
        path: t.path,
        name: t.name,
        versions: t.versions,
        logical_bytes: t.logical,
        stored_bytes: t.stored,
    };
    StatsInfo {
        commits: s.commits,
        packs: s.packs,
        objects: s.objects,
        logical_bytes: s.logical_bytes,
        unique_bytes: s.unique_bytes,
        stored_bytes: s.stored_bytes,
        unreachable_bytes: s.unreachable_bytes,
        unreachable_objects: s.unreachable_objects,
        index: s.index,
        branches: s.branches.into_iter().take(MOST).map(branch).collect(),
        files: names(s.files),
        tensors: s.tensors.into_iter().take(MOST).map(tensor).collect(),
        kinds: names(s.kinds),
        schemes: names(s.schemes),
        depths: s.depths,
        damaged_packs: s.damaged_packs,
    }
}
