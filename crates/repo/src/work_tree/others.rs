//! The work trees of a store: which there are, and which of them is on a branch. As in git, a branch is checked out in
//! one work tree only: a commit in another would move it under the first one's files.

use crate::{
    linked::{DIR, Link},
    repo::Repo,
};
use mdl_store::{
    RepoError, Result,
    refs::{Head, Refs},
    storage::LocalStorage,
};
use std::{
    fs::{File, OpenOptions},
    path::{Path, PathBuf},
    sync::Arc,
};

/// Held while a HEAD gets onto a branch.
const LOCK: &str = "worktrees.lock";

/// A work tree of a store.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct WorkTree {
    /// Where it is.
    pub path: PathBuf,
    /// Its name in the store; none: the main one.
    pub name: Option<String>,
    /// Where its HEAD is; none: that cannot be read.
    pub head: Option<Head>,
    /// Why it must be neither pruned nor removed; none: it may.
    pub locked: Option<String>,
    /// Why it is of no use any more; none: it is there.
    pub prunable: Option<String>,
}

/// Held while a HEAD gets onto a branch that no other work tree is on.
#[derive(Debug)]
pub(crate) struct BranchLock(Option<File>);

impl Drop for BranchLock {
    fn drop(&mut self) {
        let _ = self.0.as_ref().map(File::unlock);
    }
}

fn head_in(dir: &Path) -> Option<Head> {
    Refs::new(Arc::new(LocalStorage::new(dir))).head().ok()
}

/// Why a linked work tree is of no use any more.
fn prunable(link: &Link, place: Option<&Path>) -> Option<String> {
    let Some(place) = place else { return Some("nothing says where it is".to_owned()) };
    match Link::read(place) {
        Ok(Some(found)) if found == *link => None,
        Ok(Some(_)) => Some("another work tree is in its place".to_owned()),
        Ok(None) => Some("its directory is gone".to_owned()),
        Err(e) => Some(e.to_string()),
    }
}

/// Every work tree of the repository's store, the main one first. A store without a directory has none.
pub fn work_trees(repo: &Repo) -> Result<Vec<WorkTree>> {
    let Some(store) = repo.common_dir() else { return Ok(Vec::new()) };
    let mut all = Vec::new();
    if let Some(work) = store.parent().filter(|_| store.file_name().is_some_and(|n| n == DIR)) {
        let (path, head) = (work.to_owned(), head_in(store));
        all.push(WorkTree { path, name: None, head, locked: None, prunable: None });
    }
    for link in Link::all(store)? {
        let place = link.place()?;
        all.push(WorkTree {
            head: head_in(&link.state()),
            locked: link.locked()?,
            prunable: prunable(&link, place.as_deref()),
            path: place.unwrap_or_default(),
            name: Some(link.name),
        });
    }
    Ok(all)
}

/// Keeps other work trees from getting onto a branch while the lock lives. It is asked for after the work tree's own
/// lock.
pub(crate) fn lock_branches(repo: &Repo) -> Result<BranchLock> {
    let Some(path) = repo.common_dir().map(|dir| dir.join(LOCK)) else { return Ok(BranchLock(None)) };
    let failed = || RepoError::io(format!("cannot lock {}", path.display()));
    let file = OpenOptions::new().create(true).truncate(false).write(true).open(&path).map_err(failed())?;
    // Held for as long as it takes to write a HEAD.
    file.lock().map_err(failed())?;
    Ok(BranchLock(Some(file)))
}

/// Refuses a branch that another work tree is on.
pub(crate) fn refuse_taken(repo: &Repo, branch: &str) -> Result<()> {
    let on_it = |tree: &WorkTree| tree.head.as_ref().and_then(Head::branch) == Some(branch);
    // The main work tree of a handle that is linked to none is this one; one that works from elsewhere is none.
    let is_own = |tree: &WorkTree| repo.is_in(tree.name.as_deref());
    match work_trees(repo)?.into_iter().find(|tree| on_it(tree) && !is_own(tree)) {
        None => Ok(()),
        Some(tree) => Err(RepoError::user(
            format!("branch {branch} is checked out in {}", tree.path.display()),
            "a branch is in one work tree only: work there, go to another branch there, or detach HEAD here",
        )),
    }
}
