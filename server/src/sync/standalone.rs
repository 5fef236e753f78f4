//! Standalone packs: tensors encoded anew for a client that lacks their delta bases. Short-lived, in the server's state
//! directory.

use crate::{app::App, auth::Access, problem::Result, process::state, registry::RepoKey};
use mdl_objects::Id;
use mdl_remote::sync::TransferPlan;
use mdl_repo::{
    Progress,
    pack::PackId,
    storage::{Key, LocalStorage, Prefix, Storage, StoredKey},
};
use std::time::{Duration, SystemTime};

/// Name of their directory below the repository's.
const KIND: &str = "whole";
const PACKS: Prefix = Prefix::fixed("packs/");
/// Minimum bytes for a repository's packs, even if the operator gave no disk to caches.
const LEAST: u64 = 1 << 30;

/// How long a pack is kept after its last request.
const KEPT: Duration = Duration::from_secs(24 * 3600);

/// Storage of a repository's packs.
pub(super) fn storage_for(app: &App, repo: &RepoKey) -> LocalStorage {
    LocalStorage::new(app.incoming().room.dir(repo, KIND))
}

/// Encodes tensors; drops the oldest packs to make room.
pub(super) fn make(access: &Access, ids: &[Id], progress: &dyn Progress) -> Result<TransferPlan> {
    let storage = storage_for(&access.app, &access.key()?);
    state::make(storage.root())?;
    let plan = mdl_remote::sync::plan_standalone(&access.repo, ids, &storage, progress)?;
    let keep: Vec<Key> = plan.offers.iter().map(|o| PackId::key(&o.pack)).collect();
    let mut all = storage.list(&PACKS)?;
    all.sort_by_key(|s| s.modified);
    let mut sum = all.iter().map(|s| s.size).fold(0, u64::saturating_add);
    for old in all.iter().filter(|s| !keep.contains(&s.key)) {
        if sum <= access.app.options().cache.max(LEAST) {
            break;
        }
        storage.delete(&old.key)?;
        sum = sum.saturating_sub(old.size);
    }
    Ok(plan)
}

/// Drops old packs, and half-made ones of a killed server.
pub(crate) fn sweep(app: &App) {
    for (_, dir) in app.incoming().room.repositories() {
        let storage = LocalStorage::new(dir.join(KIND));
        let is_old = |s: &StoredKey| SystemTime::now().duration_since(s.modified).is_ok_and(|past| past >= KEPT);
        for old in storage.list(&PACKS).unwrap_or_default().iter().filter(|s| is_old(s)) {
            let _ = storage.delete(&old.key);
        }
        let _ = storage.sweep_uploads(false);
    }
}
