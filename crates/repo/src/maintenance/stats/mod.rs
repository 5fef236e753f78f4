//! Storage statistics: bytes by branch, file, tensor, kind, scheme and chain depth.

mod gather;
mod names;

use crate::{config::is_partial, pruned::pruned, repo::Repo};
use gather::Gather;
use mdl_store::{
    Progress, Result,
    cache::TensorCache,
    reachability::{Catalog, roots},
};
use serde::Serialize;

/// Tensors that are listed, the largest in storage first.
const TOP: usize = 100;

/// Numbers about a repository.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Stats {
    /// Commits that a ref or HEAD reaches.
    pub commits: u64,
    /// Packs.
    pub packs: u64,
    /// Distinct objects.
    pub objects: u64,
    /// Bytes of all files of all reachable versions, as if each were stored by itself.
    pub logical_bytes: u64,
    /// Decoded bytes of all distinct objects.
    pub unique_bytes: u64,
    /// Bytes of all packs.
    pub stored_bytes: u64,
    /// Bytes of decoded tensors that are kept beside the packs to save time (`cache.size`).
    pub cache_bytes: u64,
    /// Bytes in packs that no ref or HEAD reaches, superfluous copies included (the reflog may still).
    pub unreachable_bytes: u64,
    /// Objects that no ref or HEAD reaches.
    pub unreachable_objects: u64,
    /// Whether the disposable index is there and can be had.
    pub index: bool,
    /// Branches, by name.
    pub branches: Vec<BranchStats>,
    /// File paths, the largest in storage first.
    pub files: Vec<NameStats>,
    /// Tensors by file and name, the largest in storage first; at most 100.
    pub tensors: Vec<TensorStats>,
    /// Reachable objects by kind.
    pub kinds: Vec<NameStats>,
    /// Reachable tensors by how they are stored: the scheme of their segments, or `mixed`.
    pub schemes: Vec<NameStats>,
    /// Reachable tensors by the deltas below them, from 0.
    pub depths: Vec<u64>,
    /// Packs that cannot be read: what they hold is counted nowhere.
    pub damaged_packs: u64,
}

/// A branch in numbers.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct BranchStats {
    /// Short name.
    pub name: String,
    /// Commits it reaches.
    pub commits: u64,
    /// Bytes of all files of these versions.
    #[serde(rename = "logical_bytes")]
    pub logical: u64,
    /// Stored bytes of all objects it reaches, delta bases included.
    #[serde(rename = "stored_bytes")]
    pub stored: u64,
    /// Of these, what no other branch reaches.
    #[serde(rename = "exclusive_bytes")]
    pub exclusive: u64,
}

/// Objects under a name, in numbers.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct NameStats {
    /// The path, kind or scheme.
    pub name: String,
    /// Distinct contents under it.
    pub versions: u64,
    /// Bytes of these.
    #[serde(rename = "logical_bytes")]
    pub logical: u64,
    /// Stored bytes of their objects, each object counted once.
    #[serde(rename = "stored_bytes")]
    pub stored: u64,
}

impl NameStats {
    fn add(&mut self, logical: u64, stored: u64) {
        self.versions += 1;
        // Records may lie: a sum that means nothing must not end the rest.
        self.logical = self.logical.saturating_add(logical);
        self.stored = self.stored.saturating_add(stored);
    }

    fn named(self, name: impl Into<String>) -> NameStats {
        NameStats { name: name.into(), ..self }
    }
}

/// A tensor through all versions, in numbers.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct TensorStats {
    /// The file it is in.
    pub path: String,
    /// Its name there.
    pub name: String,
    /// Distinct contents.
    pub versions: u64,
    /// Bytes of these.
    #[serde(rename = "logical_bytes")]
    pub logical: u64,
    /// Stored bytes of these.
    #[serde(rename = "stored_bytes")]
    pub stored: u64,
}

/// Adds up what is stored. What is damaged or missing is left out (`fsck` tells).
///
/// # Errors
/// Refs that make no sense; an I/O error; `Stopped`.
pub fn stats(repo: &Repo, progress: &dyn Progress) -> Result<Stats> {
    let storage = repo.storage();
    let _guard = storage.lock_shared().ok();
    let roots = roots(repo.refs(), None)?.complete()?;
    let catalog = Catalog::read(storage, is_partial(storage), |_| ())?;
    progress.begin("adding up objects", catalog.count() as u64);
    let mut gather = Gather::new(&catalog, repo.odb(), pruned(repo).unwrap_or_default(), progress);
    let mut out = Stats {
        packs: catalog.packs.len() as u64,
        objects: catalog.count() as u64,
        stored_bytes: catalog.bytes(),
        cache_bytes: repo.odb().cache().map_or(0, TensorCache::bytes),
        index: repo.odb().with_index(|index| index.packs()).is_some(),
        damaged_packs: catalog.damaged.len() as u64,
        ..Stats::default()
    };
    gather.branches(&roots, &mut out)?;
    gather.names(&roots, &mut out);
    gather.objects(&roots, &mut out);
    progress.end();
    Ok(out)
}
