//! Migrates the layout of earlier servers, which kept incoming files by repository name, to repository identity.

use crate::{
    incoming::{objects, packs, room::Room, uploads},
    process::state::{self, entries},
    registry::{Registry, RepoKey, RepoName},
};
use std::{fs, path::Path, time::SystemTime};

/// Directories of earlier servers, and the kinds that their files are now.
const EARLIER: [(&str, &str); 3] = [("uploads", uploads::KIND), ("lfs", objects::KIND), ("incoming", packs::KIND)];
/// One that can be made again.
const CACHE: &str = "whole";

/// Moves what an earlier server kept to the repositories that are there; what is older than the repository of its name
/// was another's, and is removed. What belongs to a repository that is not there stays where it is.
pub(super) fn migrate(state_dir: &Path, room: &Room, registry: &Registry) {
    let _ = fs::remove_dir_all(state_dir.join(CACHE));
    for (earlier, kind) in EARLIER {
        let top = state_dir.join(earlier);
        for dir in entries(&top).iter().flat_map(|owner| entries(owner)) {
            if let Err(error) = move_one(&dir, kind, room, registry) {
                tracing::warn!(error, dir = %dir.display(), "what an earlier server kept stays unused");
            }
        }
        // Each goes only if nothing is in it.
        entries(&top).iter().for_each(|owner| drop(fs::remove_dir(owner)));
        let _ = fs::remove_dir(&top);
    }
}

fn move_one(dir: &Path, kind: &str, room: &Room, registry: &Registry) -> Result<(), String> {
    let mut names = dir.iter().rev().filter_map(|n| n.to_str());
    let (name, owner) = (names.next().unwrap_or_default(), names.next().unwrap_or_default());
    let name = RepoName::new(owner, name).map_err(|p| p.message)?;
    let repo = registry.open(&name).map_err(|p| p.message)?;
    let key = RepoKey::new(&name, &repo).map_err(|p| p.message)?;
    if let Some(made) = made(&repo) {
        remove_older(dir, made);
    }
    let to = room.dir(&key, kind);
    state::make(to.parent().unwrap_or(&to)).map_err(|p| p.message)?;
    fs::rename(dir, &to).map_err(|e| e.to_string())
}

/// When a local repository was made.
pub(crate) fn made(repo: &mdl_repo::Repo) -> Option<SystemTime> {
    fs::metadata(repo.dir()?.join("format")).and_then(|m| m.modified()).ok()
}

fn remove_older(dir: &Path, made: SystemTime) {
    for path in entries(dir) {
        match path.is_dir() {
            true => remove_older(&path, made),
            false if fs::metadata(&path).and_then(|m| m.modified()).is_ok_and(|m| m < made) => {
                let _ = fs::remove_file(&path);
            }
            false => {}
        }
    }
}
