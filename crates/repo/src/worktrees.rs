//! Linked work trees: made, removed, pruned. Each is a directory with files and a HEAD of its own; the store is one.

use crate::{
    checkout::{CheckedOut, CheckoutOptions, checkout_locked},
    linked::{DIR, Link, WORKTREES as STATES, is_name},
    pruned::files,
    repo::Repo,
    work_tree::{
        WorkTree, lock_branches, lock_work_tree, refuse_taken,
        remove::{Removal, remove_compared, states_below},
        set_work_tree_base, status, work_trees,
    },
};
use mdl_objects::Id;
use mdl_store::{
    Missing, Progress, RepoError, Result,
    refs::{Head, RefName, Refs, WORKTREES},
    storage::LocalStorage,
    transaction::WriteTransaction,
};
use std::{
    fs, io,
    path::{Path, PathBuf},
    sync::Arc,
};

/// The directory of the store that the repository is in, which linked work trees want.
fn store_of(repo: &Repo) -> Result<&Path> {
    repo.common_dir().ok_or_else(|| {
        RepoError::user("this repository's bytes are in a bucket", "make another work tree by naming the bucket")
    })
}

/// A directory that is not there, or is empty, and is no part of a work tree or of the store.
fn free_place(repo: &Repo, store: &Path, dir: &Path) -> Result<PathBuf> {
    let refused = |why: &str| {
        Err(RepoError::user(format!("{} {why}", dir.display()), "choose a directory that does not exist yet"))
    };
    let failed = || RepoError::io(format!("cannot create {}", dir.display()));
    match fs::read_dir(dir).map(|mut entries| entries.next().is_none()) {
        Ok(true) => {}
        Ok(false) => return refused("is not empty"),
        Err(e) if e.kind() == io::ErrorKind::NotFound => {}
        Err(e) => return Err(failed()(e)),
    }
    let whole = std::path::absolute(dir).map_err(failed())?;
    // Before it is made: a refusal leaves nothing behind.
    let there = whole.ancestors().find(|p| p.exists()).unwrap_or(&whole);
    let real = fs::canonicalize(there).map_err(failed())?;
    let rest = whole.strip_prefix(there).unwrap_or(Path::new(""));
    let place = if rest.as_os_str().is_empty() { real } else { real.join(rest) };
    if place.starts_with(store) || work_trees(repo)?.iter().any(|tree| place.starts_with(&tree.path)) {
        return refused("is inside of a work tree of this repository, whose versions would have its files");
    }
    fs::create_dir_all(&place).map_err(failed())?;
    Ok(place)
}

/// A name that no other work tree of the store has: that of the directory, if it can be one.
fn new_name(store: &Path, place: &Path) -> Result<Link> {
    let stem = place.file_name().and_then(|n| n.to_str()).unwrap_or_default();
    let stem: String = stem.chars().map(|c| if c.is_ascii_alphanumeric() { c } else { '-' }).take(40).collect();
    let stem = stem.trim_matches('-');
    let stem = if is_name(stem) { stem.to_owned() } else { "worktree".to_owned() };
    let states = store.join(STATES);
    let failed = || RepoError::io(format!("cannot create {}", states.display()));
    fs::create_dir_all(&states).map_err(failed())?;
    for n in 1.. {
        let name = if n == 1 { stem.clone() } else { format!("{stem}-{n}") };
        match fs::create_dir(states.join(&name)) {
            Ok(()) => return Ok(Link { store: store.to_owned(), name }),
            Err(e) if e.kind() == io::ErrorKind::AlreadyExists => {}
            Err(e) => return Err(failed()(e)),
        }
    }
    Err(RepoError::user("there is no free name for the work tree", ""))
}

/// Makes a work tree in `dir` that shares this repository's store, its HEAD at `head`, its files those of `commit`.
///
/// # Errors
/// The directory is not empty, or in another work tree; another work tree is on the branch; as a checkout. Nothing is
/// left but files that were written.
pub fn add_work_tree(
    repo: &Repo,
    dir: &Path,
    commit: &Id,
    head: &Head,
    options: &CheckoutOptions,
    progress: &dyn Progress,
) -> Result<(WorkTree, CheckedOut)> {
    let store = store_of(repo)?;
    // The commit must not be collected before the new HEAD keeps it.
    let _transaction = WriteTransaction::begin_at(repo, commit)?;
    let place = free_place(repo, store, dir)?;
    let link = new_name(store, &place)?;
    let made = made(repo, &link, &place, head).and_then(|new| {
        let lock = lock_work_tree(&new, progress)?;
        set_work_tree_base(&new, None);
        checkout_locked(&new, &lock, commit, head, options, progress)
    });
    match made {
        Ok(done) => {
            let found = work_trees(repo)?.into_iter().find(|tree| tree.name.as_ref() == Some(&link.name));
            let missing = || RepoError::not_found(Missing::Path, place.display());
            Ok((found.ok_or_else(missing)?, done))
        }
        Err(e) => {
            // The error that matters is the one that was met.
            let _ = fs::remove_file(place.join(DIR));
            let _ = forget(repo, &link);
            let _ = fs::remove_dir(&place);
            Err(e)
        }
    }
}

/// The new work tree, opened: everything but its files.
fn made(repo: &Repo, link: &Link, place: &Path, head: &Head) -> Result<Repo> {
    let _lock = lock_branches(repo)?;
    if let Head::Branch(name) = head {
        refuse_taken(repo, name)?;
        if repo.head_branch()? == Some(format!("{}{name}", mdl_store::refs::HEADS)) && repo.work().is_some() {
            return Err(RepoError::user(
                format!("branch {name} is checked out here"),
                "a branch is in one work tree only: name another one, or make one",
            ));
        }
    }
    link.set_place(place)?;
    // A branch that is never there, until HEAD is detached: what a kill leaves keeps nothing and names nothing.
    let first = match head {
        Head::Branch(name) => name.clone(),
        Head::Detached(_) => format!("worktree/{}", link.name),
    };
    Refs::new(Arc::new(LocalStorage::new(link.state()))).init_head(&first)?;
    link.write(place)?;
    let new = Repo::open(place, repo.odb().shared_engine())?;
    if let Head::Detached(id) = head {
        let transaction = WriteTransaction::begin_at(&new, id)?;
        transaction.set_head(head, &new.config().signature(), &format!("worktree: at {}", id.short()))?;
    }
    Ok(new)
}

/// The ref that keeps a detached HEAD, and all that is the work tree's own, go.
fn forget(repo: &Repo, link: &Link) -> Result<()> {
    let held = RefName::parse(&format!("{WORKTREES}{}", link.name))?;
    let transaction = WriteTransaction::begin(repo)?;
    if let Some(id) = repo.refs().get(&held)? {
        transaction.update_ref(&held, Some(id), None, &repo.config().signature(), "worktree: removed")?;
    }
    let state = link.state();
    match fs::remove_dir_all(&state) {
        Err(e) if e.kind() == io::ErrorKind::NotFound => Ok(()),
        done => done.map_err(RepoError::io(format!("cannot remove {}", state.display()))),
    }
}

/// The linked work tree in a directory.
fn linked(repo: &Repo, dir: &Path) -> Result<(WorkTree, Link)> {
    let whole = fs::canonicalize(dir).or_else(|_| std::path::absolute(dir));
    let whole = whole.map_err(RepoError::io(format!("cannot open {}", dir.display())))?;
    let store = store_of(repo)?.to_owned();
    match work_trees(repo)?.into_iter().find(|tree| tree.path == whole) {
        None => Err(RepoError::user(
            format!("{} is no work tree of this repository", dir.display()),
            "`mdl worktree list` shows them",
        )),
        Some(WorkTree { name: None, .. }) => {
            Err(RepoError::user(format!("{} is the main work tree", dir.display()), "the repository is in it"))
        }
        Some(tree) => {
            let name = tree.name.clone().unwrap_or_default();
            Ok((tree, Link { store, name }))
        }
    }
}

fn refuse_locked(tree: &WorkTree) -> Result<()> {
    match &tree.locked {
        None => Ok(()),
        Some(reason) => {
            let reason = if reason.is_empty() { String::new() } else { format!(": {reason}") };
            let message = format!("{} is locked{reason}", tree.path.display());
            Err(RepoError::user(message, "`mdl worktree unlock` unlocks it"))
        }
    }
}

/// Removes a linked work tree: its directory, and what the store has of it. Without force nothing goes that is in no
/// version: neither changes nor files that commits pass over.
///
/// # Errors
/// It is the main one, locked, or no work tree; `FilesInTheWay`; something was written there meanwhile.
pub fn remove_work_tree(repo: &Repo, dir: &Path, force: bool, progress: &dyn Progress) -> Result<WorkTree> {
    let (tree, link) = linked(repo, dir)?;
    refuse_locked(&tree)?;
    if tree.prunable.is_some() {
        forget(repo, &link)?;
        return Ok(tree);
    }
    let own = Repo::open(&tree.path, repo.odb().shared_engine())?;
    let _lock = lock_work_tree(&own, progress)?;
    let compared = states_below(&tree.path)?;
    if !force {
        let kept = match own.refs().head_commit()? {
            Some(id) => files(&own, &id)?,
            None => Default::default(),
        };
        let mut unsaved: Vec<String> = status(&own, progress)?.into_iter().map(|(path, _)| path).collect();
        let known = |rel: &str| rel == DIR || kept.contains_key(rel);
        unsaved.extend(compared.keys().filter(|rel| !known(rel)).cloned());
        unsaved.sort();
        unsaved.dedup();
        if !unsaved.is_empty() {
            return Err(RepoError::FilesInTheWay { files: unsaved });
        }
    }
    own.odb().release_index();
    match remove_compared(&tree.path, &compared)? {
        Removal::Done => forget(repo, &link).map(|()| tree),
        Removal::Kept(at) => Err(RepoError::user(
            format!("something was written to {} meanwhile; what is left is there", at.display()),
            "look at it, then try again",
        )),
    }
}

/// Forgets linked work trees whose directories are gone, but for locked ones; returns them. `dry_run`: only tells.
pub fn prune_work_trees(repo: &Repo, dry_run: bool) -> Result<Vec<WorkTree>> {
    let Some(store) = repo.common_dir().map(Path::to_owned) else { return Ok(Vec::new()) };
    let mut gone = work_trees(repo)?;
    gone.retain(|tree| tree.prunable.is_some() && tree.locked.is_none());
    for tree in gone.iter().filter(|_| !dry_run) {
        let name = tree.name.clone().unwrap_or_default();
        forget(repo, &Link { store: store.clone(), name })?;
    }
    Ok(gone)
}

/// Keeps a linked work tree from being pruned and removed, for a reason, or (none) no longer.
pub fn lock_linked_work_tree(repo: &Repo, dir: &Path, reason: Option<&str>) -> Result<WorkTree> {
    let (tree, link) = linked(repo, dir)?;
    match (reason, &tree.locked) {
        (Some(_), Some(_)) => refuse_locked(&tree)?,
        (None, None) => {
            return Err(RepoError::user(format!("{} is not locked", tree.path.display()), ""));
        }
        _ => link.set_locked(reason)?,
    }
    Ok(WorkTree { locked: reason.map(str::to_owned), ..tree })
}
