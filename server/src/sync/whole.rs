//! Packs of tensors that were encoded anew for somebody who lacks their bases: short-lived, below the server's own directory.
//! Neighbours: `offer` has them made, `read` reads them. It must not know who asked, nor touch a repository's own packs.

use crate::{problem::Result, registry::RepoName, state};
use mdl_objects::Id;
use mdl_repo::{
    Progress, Repo,
    pack::PackId,
    storage::{Key, LocalStorage, Prefix, Storage, Stored},
    sync::Plan,
};
use std::{
    fs,
    path::{Path, PathBuf},
    time::{Duration, SystemTime},
};

const DIR: &str = "whole";
const PACKS: Prefix = Prefix::fixed("packs/");
/// Bytes that a repository's may have even where the operator gave no disk to caches.
const LEAST: u64 = 1 << 30;

/// The packs, by repository.
#[derive(Debug)]
pub(super) struct Whole {
    dir: PathBuf,
    max: u64,
}

impl Whole {
    /// Each repository's may have `max` bytes (and never less than some).
    pub(super) fn new(state: &Path, max: u64) -> Whole {
        Whole {
            dir: state.join(DIR),
            max: max.max(LEAST),
        }
    }

    /// A repository's.
    pub(super) fn of(&self, name: &RepoName) -> LocalStorage {
        LocalStorage::new(self.dir.join(name.owner()).join(name.name()))
    }

    /// Encodes tensors; the oldest packs make room.
    pub(super) fn make(&self, repo: &Repo, name: &RepoName, ids: &[Id], progress: &dyn Progress) -> Result<Plan> {
        let storage = self.of(name);
        state::make(storage.root())?;
        let plan = repo.offer_whole(ids, &storage, progress)?;
        let keep: Vec<Key> = plan.offers.iter().map(|o| PackId::key(&o.pack)).collect();
        let mut all = storage.list(&PACKS)?;
        all.sort_by_key(|s| s.modified);
        let mut sum = total(&all);
        for old in all.iter().filter(|s| !keep.contains(&s.key)) {
            if sum <= self.max {
                break;
            }
            storage.delete(&old.key)?;
            sum = sum.saturating_sub(old.size);
        }
        Ok(plan)
    }

    /// Drops packs that were made this long ago, and what a server that was killed left half made.
    pub(super) fn rest(&self, age: Duration) {
        for dir in inside(&self.dir).iter().flat_map(|owner| inside(owner)) {
            let storage = LocalStorage::new(dir);
            let listed = storage.list(&PACKS).unwrap_or_default();
            let is_old = |s: &Stored| {
                SystemTime::now()
                    .duration_since(s.modified)
                    .is_ok_and(|past| past >= age)
            };
            for old in listed.iter().filter(|s| is_old(s)) {
                let _ = storage.delete(&old.key);
            }
            let _ = storage.sweep_uploads(false);
        }
    }
}

fn total(all: &[Stored]) -> u64 {
    all.iter().map(|s| s.size).fold(0, u64::saturating_add)
}

/// What is in a directory of directories.
pub(super) fn inside(dir: &Path) -> Vec<PathBuf> {
    let entries = fs::read_dir(dir).into_iter().flatten().flatten();
    entries.map(|e| e.path()).filter(|p| p.is_dir()).collect()
}
