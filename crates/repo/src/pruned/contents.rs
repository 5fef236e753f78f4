//! Pruned and aged versions in reachability walks: what of their contents need not be there.

use crate::{
    pruned::{Pruned, lacks_contents, pruned},
    repo::Repo,
};
use mdl_objects::{Commit, Id, Kind, Tag};
use mdl_store::{
    Remedy, RepoError, Result,
    reachability::{Catalog, Left, PrunedContents, Root},
    refs::POLICIES,
    storage::Storage,
};
use std::collections::{HashMap, HashSet};

/// Commits whose contents a walk passes by: those that were pruned or aged by `until` (milliseconds since 1970) and
/// that no name points at, and those whose contents are no longer there.
pub fn pruned_contents(
    catalog: &Catalog,
    storage: &dyn Storage,
    roots: &[Root],
    pruned: &Pruned,
    until: i64,
) -> Result<PrunedContents> {
    let named = if pruned.is_empty() { HashSet::new() } else { named(catalog, storage, roots)? };
    let mut out = HashMap::new();
    for (id, mark) in pruned.iter_aged() {
        let exact = || lacks(catalog, storage, id, |c| vec![c.tree]);
        if let Some(tree) = mark.stand_in
            && (mark.time_ms <= until && !named.contains(id) && catalog.find(&tree).is_some() || exact()?)
        {
            out.insert(*id, Left::StandIn(tree));
        }
    }
    for (id, mark) in pruned.iter() {
        let rest = |c: &Commit| {
            let tree = pruned.stand_in(id).unwrap_or(c.tree);
            c.blobs().chain([tree]).collect()
        };
        if mark.time_ms <= until && !named.contains(id) || lacks(catalog, storage, id, rest)? {
            out.insert(*id, Left::Nothing);
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

/// Whether one of these objects of a commit is not there. What is there is whole: collections keep that so.
fn lacks(catalog: &Catalog, storage: &dyn Storage, id: &Id, objects: impl Fn(&Commit) -> Vec<Id>) -> Result<bool> {
    let Some(n) = catalog.find(id) else { return Ok(false) };
    match catalog.content(storage, catalog.best(n)) {
        // Damage is reported by readers that need the commit.
        Err(RepoError::Io { context, source }) => Err(RepoError::Io { context, source }),
        Err(_) => Ok(false),
        Ok(bytes) => Ok(Commit::decode(&bytes).is_ok_and(|c| objects(&c).iter().any(|id| catalog.find(id).is_none()))),
    }
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
