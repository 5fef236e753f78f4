//! Marks of versions that gave up contents, taken over and lifted when versions arrive.

use crate::sync::update_refs::held_commits;
use mdl_objects::{Commit, Id, Kind};
use mdl_repo::{
    Level, PrunedMark, Repo, pruned,
    pruned::{may_stand, with_tree},
};
use mdl_store::{Result, transaction::WriteTransaction};
use std::collections::HashMap;

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
        let mark = mark.short();
        let is_known = record.at(mark.level(), id).is_some() || reached.contains(id);
        if !is_known && repo.odb().contains_kind(id, Kind::Commit)? && !has_more(repo, id, &mark)? {
            // What stands for a version is what its commit names or a part of it, or a mark could put anything in its
            // place.
            let may_stand = may_stand(repo.odb(), &repo.odb().commit(id)?, &mark)?;
            fresh.extend(may_stand.then_some((*id, mark)));
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
/// kept. One of which less is here, its approximation or the rest without optimizer state, keeps the mark that says so
/// and those above it.
pub(super) fn unmark(repo: &Repo, transaction: &WriteTransaction<'_>, commits: &[Id]) -> Result<()> {
    let record = pruned::pruned(repo)?;
    // The marks below what is here go.
    let mut most = HashMap::new();
    for id in commits {
        let commit = repo.odb().commit(id)?;
        if holds(repo, &commit)? {
            most.insert(*id, None);
            continue;
        }
        for mark in record.stand_ins(id) {
            let Some(tree) = mark.stand_in else { continue };
            if !most.contains_key(id) && holds(repo, &with_tree(commit.clone(), tree))? {
                most.insert(*id, Some(mark.level()));
            }
        }
    }
    if most.is_empty() {
        return Ok(());
    }
    pruned::change(transaction, repo.storage(), |p| {
        p.keep(|level, id| most.get(id).is_none_or(|most| most.is_some_and(|most| level >= most)));
    })
}

/// Whether more of a version is here, and not about to be collected, than a mark leaves: all that its commit points at,
/// or for one that takes the optimizer state its approximation.
fn has_more(repo: &Repo, id: &Id, mark: &PrunedMark) -> Result<bool> {
    let commit = repo.odb().commit(id)?;
    match commit.approximation.filter(|_| mark.level() == Level::Weights) {
        Some(tree) if holds(repo, &with_tree(commit.clone(), tree))? => Ok(true),
        _ => holds(repo, &commit),
    }
}

fn holds(repo: &Repo, commit: &Commit) -> Result<bool> {
    for (id, _) in commit.contents() {
        if !repo.odb().contains(&id)? {
            return Ok(false);
        }
    }
    Ok(true)
}
