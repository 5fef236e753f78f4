//! Marks of pruned versions, taken over and lifted when versions arrive.

use crate::sync::update_refs::held_commits;
use mdl_objects::{Commit, Id, Kind};
use mdl_repo::{PrunedMark, Repo, pruned};
use mdl_store::{Result, transaction::WriteTransaction};
use std::collections::HashSet;

/// Takes over what the other side has on record of pruned versions, once what it sent has been taken in. A mark
/// counts only for a commit that is here without its contents. It counts for none that a ref reaches: of those our
/// own record is right.
pub fn receive_pruned(repo: &Repo, pruned: &[(Id, PrunedMark)]) -> Result<()> {
    if pruned.is_empty() {
        return Ok(());
    }
    let transaction = WriteTransaction::begin(repo)?;
    let (reached, record) = (held_commits(repo)?, pruned::pruned(repo)?);
    let mut fresh = Vec::new();
    for (id, mark) in pruned {
        let on_record = if mark.stand_in.is_some() { record.aged(id) } else { record.get(id) };
        let is_known = on_record.is_some() || reached.contains(id);
        if !is_known && repo.odb().contains_kind(id, Kind::Commit)? && !is_whole(repo, id)? {
            // What stands for a version is what its commit names, or a mark could put anything in its place.
            let stands = mark.stand_in.is_none() || mark.stand_in == repo.odb().commit(id)?.approximation;
            fresh.extend(stands.then(|| (*id, mark.short())));
        }
    }
    if fresh.is_empty() {
        return Ok(());
    }
    pruned::change(&transaction, repo.storage(), |p| {
        fresh.iter().for_each(|(id, mark)| p.note(*id, mark));
    })?;
    // Another process may be bringing the contents. It looks at the record after it stored them, this one looks at
    // them after the record: one of the two sees the other.
    repo.odb().refresh();
    let fresh: Vec<Id> = fresh.into_iter().map(|(id, _)| id).collect();
    unmark(repo, &transaction, &fresh)
}

/// Takes the marks off those of these versions that are complete: they have come anew, and the sender wants them
/// kept. One whose approximation alone is here is no longer pruned, but aged.
pub(super) fn unmark(repo: &Repo, transaction: &WriteTransaction<'_>, commits: &[Id]) -> Result<()> {
    let record = pruned::pruned(repo)?;
    let (mut whole, mut approximate) = (HashSet::new(), HashSet::new());
    for id in commits {
        let commit = repo.odb().commit(id)?;
        if holds(repo, &commit)? {
            whole.insert(*id);
        } else if record.aged(id).is_some() && holds(repo, &record.lasting(id, commit))? {
            approximate.insert(*id);
        }
    }
    if whole.is_empty() && approximate.is_empty() {
        return Ok(());
    }
    pruned::change(transaction, repo.storage(), |p| {
        p.keep(|id| !whole.contains(id) && !approximate.contains(id));
        p.keep_aged(|id| !whole.contains(id));
    })
}

/// Whether what a commit points at is here, and not about to be collected.
fn is_whole(repo: &Repo, commit: &Id) -> Result<bool> {
    holds(repo, &repo.odb().commit(commit)?)
}

fn holds(repo: &Repo, commit: &Commit) -> Result<bool> {
    for (id, _) in commit.contents() {
        if !repo.odb().contains(&id)? {
            return Ok(false);
        }
    }
    Ok(true)
}
