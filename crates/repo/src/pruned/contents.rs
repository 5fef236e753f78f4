//! Versions that gave up contents in reachability walks: what of these need not be there.

use crate::{
    pruned::{Pruned, PrunedMark, lacks_contents, may_stand, pruned},
    repo::Repo,
};
use mdl_objects::{Commit, Id, Kind, Tag};
use mdl_store::{
    Remedy, RepoError, Result,
    reachability::{Catalog, Left, PrunedContents, Root},
    refs::POLICIES,
    storage::Storage,
};
use std::collections::{BTreeSet, HashMap, HashSet};

/// Commits of whose contents a walk passes by some: of those that were pruned, aged or lost their optimizer state by
/// `until` (milliseconds since 1970) and that no name points at, and of those whose contents are no longer there. What
/// aged stays as it is where it is `in_windows` again.
pub fn pruned_contents(
    repo: &Repo,
    catalog: &Catalog,
    roots: &[Root],
    pruned: &Pruned,
    until: i64,
    in_windows: &HashSet<Id>,
) -> Result<PrunedContents> {
    let storage = repo.storage();
    let named = if pruned.is_empty() { HashSet::new() } else { named(catalog, storage, roots)? };
    let ids: BTreeSet<&Id> = pruned.iter().chain(pruned.iter_stand_ins()).map(|(id, _)| id).collect();
    let mut out = HashMap::new();
    for id in ids {
        let is_kept = |mark: &PrunedMark| named.contains(id) || (mark.is_by_policy() && in_windows.contains(id));
        let is_due = |mark: &PrunedMark| mark.time_ms <= until && !is_kept(mark);
        let Some(commit) = commit(catalog, storage, id)? else {
            // What is left of a commit that cannot be read is not looked into.
            let due = pruned.get(id).is_some_and(is_due);
            out.extend(due.then_some((*id, Left::Nothing)));
            continue;
        };
        let left = match pruned.get(id) {
            Some(mark) if is_due(mark) || lacks(catalog, &commit, pruned.trees(id, &commit)) => Some(Left::Nothing),
            _ => stands(repo, catalog, &commit, pruned.stand_ins(id), &is_due)?,
        };
        out.extend(left.map(|left| (*id, left)));
    }
    Ok(PrunedContents::from(out))
}

/// What stands for a commit, or is to stand for it; none: what it names.
fn stands<'m>(
    repo: &Repo,
    catalog: &Catalog,
    commit: &Commit,
    marks: impl Iterator<Item = &'m PrunedMark>,
    is_due: &dyn Fn(&PrunedMark) -> bool,
) -> Result<Option<Left>> {
    let (mut now, mut later) = (Some(commit.tree).filter(|tree| catalog.find(tree).is_some()), None);
    for mark in marks {
        let Some(tree) = mark.stand_in.filter(|tree| catalog.find(tree).is_some()) else { continue };
        if !may_stand(repo.odb(), commit, mark)? {
            continue;
        }
        if is_due(mark) || now.is_none() {
            now = Some(tree);
        } else if commit.approximation != Some(tree) {
            later = Some(tree);
        }
    }
    let now = now.filter(|tree| *tree != commit.tree);
    Ok(match (now, later) {
        (now, Some(later)) => Some(Left::Waiting { now, later }),
        (now, None) => now.map(Left::StandIn),
    })
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

/// A commit; none if it is not there or damaged, which is reported by readers that need it.
fn commit(catalog: &Catalog, storage: &dyn Storage, id: &Id) -> Result<Option<Commit>> {
    let Some(n) = catalog.find(id) else { return Ok(None) };
    match catalog.content(storage, catalog.best(n)) {
        Err(RepoError::Io { context, source }) => Err(RepoError::Io { context, source }),
        Err(_) => Ok(None),
        Ok(bytes) => Ok(Commit::decode(&bytes).ok()),
    }
}

/// Whether all of these trees of a commit, or one of its blobs, are not there. What is there is whole: collections keep
/// that so.
fn lacks(catalog: &Catalog, commit: &Commit, mut trees: impl Iterator<Item = Id>) -> bool {
    let is_there = |id: &Id| catalog.find(id).is_some();
    !trees.any(|tree| is_there(&tree)) || !commit.blobs().all(|blob| is_there(&blob))
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
