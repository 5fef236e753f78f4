//! Pruned versions in reachability walks: whose contents need not be there, and the files of a version or why there are
//! none.

use crate::{
    pruned::{Pruned, pruned},
    repo::Repo,
};
use mdl_objects::{Commit, Id, Kind, Tag};
use mdl_store::{
    Remedy, RepoError, Result,
    object_db::Files,
    reachability::{Catalog, PrunedContents, Root},
    refs::POLICIES,
    storage::Storage,
};
use std::collections::HashSet;

/// Commits whose contents a walk passes by: those that were pruned by `until` (milliseconds since 1970) and that no
/// name points at, and those pruned ones whose contents are no longer there.
pub fn pruned_contents(
    catalog: &Catalog,
    storage: &dyn Storage,
    roots: &[Root],
    pruned: &Pruned,
    until: i64,
) -> Result<PrunedContents> {
    let named = if pruned.0.is_empty() { HashSet::new() } else { named(catalog, storage, roots)? };
    let mut out = HashSet::new();
    for (id, mark) in pruned.iter() {
        if mark.time_ms <= until && !named.contains(id) || is_hollow(catalog, storage, id)? {
            out.insert(*id);
        }
    }
    Ok(PrunedContents::from(out))
}

/// Commits that refs and HEAD point at: they are kept whatever the record says.
fn named(catalog: &Catalog, storage: &dyn Storage, roots: &[Root]) -> Result<HashSet<Id>> {
    let mut out = HashSet::new();
    for root in roots.iter().filter(|r| r.firm && !r.name.starts_with(POLICIES)) {
        out.insert(root.id);
        let tag = catalog.find(&root.id).filter(|n| catalog.best_record(*n).kind == Kind::Tag);
        if let Some(n) = tag {
            let bytes = catalog.content(storage, catalog.best(n))?;
            out.insert(Tag::decode(&bytes).map_err(mdl_store::error::bad_object(&root.id))?.target);
        }
    }
    Ok(out)
}

/// Whether something that a commit points at directly is not there. What is there is whole: collections keep that so.
fn is_hollow(catalog: &Catalog, storage: &dyn Storage, id: &Id) -> Result<bool> {
    let Some(n) = catalog.find(id) else { return Ok(false) };
    match catalog.content(storage, catalog.best(n)) {
        // Damage is reported by readers that need the commit.
        Err(RepoError::Io { context, source }) => Err(RepoError::Io { context, source }),
        Err(_) => Ok(false),
        Ok(bytes) => Ok(Commit::decode(&bytes).is_ok_and(|c| {
            let blobs = c.report.iter().chain(&c.side);
            std::iter::once(&c.tree).chain(blobs).any(|id| catalog.find(id).is_none())
        })),
    }
}

/// The files of a version by their paths.
///
/// # Errors
/// `Pruned` where a collection has taken what it held; absent or damaged objects; an I/O error.
pub fn files(repo: &Repo, commit: &Id) -> Result<Files> {
    let tree = repo.odb().commit(commit)?.tree;
    repo.odb().files(&tree).map_err(|e| explain(repo, commit, e))
}

/// Says of something that a version lacks that the version was pruned, if it was.
fn explain(repo: &Repo, commit: &Id, error: RepoError) -> RepoError {
    match (&error, pruned(repo)) {
        (RepoError::NotFound { .. }, Ok(pruned)) => match pruned.get(commit) {
            Some(mark) => mark.error(commit),
            None => error,
        },
        _ => error,
    }
}

/// Whether a version was pruned and its contents are no longer there.
pub fn is_collected(repo: &Repo, commit: &Id) -> Result<bool> {
    Ok(pruned(repo)?.get(commit).is_some() && lacks_contents(repo, commit)?)
}

/// Whether something that a commit points at directly is not there.
pub fn lacks_contents(repo: &Repo, commit: &Id) -> Result<bool> {
    let c = repo.odb().commit(commit)?;
    for id in std::iter::once(&c.tree).chain(&c.report).chain(&c.side) {
        if !repo.odb().has(id)? {
            return Ok(true);
        }
    }
    Ok(false)
}

/// Refuses to give a name to a version that was pruned: once the name has moved on, nothing would keep its
/// contents.
pub fn refuse_pruned(repo: &Repo, commit: &Id) -> Result<()> {
    match pruned(repo)?.get(commit) {
        None => Ok(()),
        Some(_) if !lacks_contents(repo, commit)? => Err(RepoError::user(
            format!("version {} was pruned: its contents go with a coming collection", commit.short()),
            Remedy::UndoPrune(*commit),
        )),
        Some(mark) => Err(mark.error(commit)),
    }
}
