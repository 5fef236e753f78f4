//! Takes prunings back, as long as no collection has taken what versions gave up.

use super::PrunedVersion;
use crate::{
    pruned,
    pruned::{Level, Pruned, lacks_contents},
    repo::Repo,
};
use mdl_objects::Id;
use mdl_store::{Remedy, RepoError, Result, transaction::WriteTransaction};
use std::collections::HashMap;

/// Undoes prunings: of these versions, or (with none) the last one. A named version that aged, and whose exact contents
/// are still there, keeps them again; the next commit ages it once more unless a name points at it. Returns which.
///
/// # Errors
/// A version that was neither pruned nor aged; one that gave up contents which a collection has taken; an I/O error.
pub fn undo_prune(repo: &Repo, versions: Option<&[Id]>) -> Result<Vec<PrunedVersion>> {
    // Collectors stay out: what is there now is there when it is held on to again.
    let transaction = WriteTransaction::begin(repo)?;
    let record = pruned::pruned(repo)?;
    let (mut back, mut off) = (Vec::new(), HashMap::new());
    for (id, levels) in wanted(&record, versions) {
        let Some(lowest) = levels.first() else {
            let message = format!("version {} was not pruned", id.short());
            return Err(RepoError::user(message, "the log marks those that were"));
        };
        let mut held = Vec::new();
        for level in &levels {
            held.extend(is_held(repo, &record, &id, *level)?.then_some(*level));
        }
        if held.is_empty() && versions.is_some() {
            return Err(gone(&record, &id, *lowest));
        }
        if !held.is_empty() && off.insert(id, held).is_none() {
            back.push(id);
        }
    }
    if back.is_empty() {
        return Err(RepoError::user("there is no pruning to take back", Remedy::PruneGrace));
    }
    let mut out = Vec::with_capacity(back.len());
    for id in back {
        let commit = repo.odb().commit(&id)?;
        let stand_ins = record.stand_ins(&id).filter_map(|mark| mark.stand_in);
        transaction.pin(commit.contents().map(|(id, _)| id).chain(stand_ins))?;
        out.push(PrunedVersion { commit: id, step: commit.step });
    }
    pruned::change(&transaction, repo.storage(), |record| {
        record.keep(|level, id| off.get(id).is_none_or(|held: &Vec<Level>| !held.contains(&level)));
    })?;
    Ok(out)
}

/// Versions with the marks that are to be taken off, the one that leaves least first.
fn wanted(record: &Pruned, versions: Option<&[Id]>) -> Vec<(Id, Vec<Level>)> {
    let Some(versions) = versions else {
        return record.last().into_iter().map(|(id, level)| (id, vec![level])).collect();
    };
    let marks = |id: &Id| Level::ALL.into_iter().filter(|level| record.at(*level, id).is_some()).collect();
    versions.iter().map(|id| (*id, marks(id))).collect()
}

/// Whether what a version gave up by this mark is still here.
fn is_held(repo: &Repo, record: &Pruned, id: &Id, level: Level) -> Result<bool> {
    if level == Level::Gone {
        return Ok(!lacks_contents(repo, id)?);
    }
    let before = record.aged(id).filter(|_| level == Level::Weights).and_then(|mark| mark.stand_in);
    for tree in before.into_iter().chain([repo.odb().commit(id)?.tree]) {
        if repo.odb().has(&tree)? {
            return Ok(true);
        }
    }
    Ok(false)
}

fn gone(record: &Pruned, id: &Id, level: Level) -> RepoError {
    let short = id.short();
    match (level, record.get(id)) {
        (Level::Gone, Some(mark)) => mark.error(id),
        (Level::Weights, _) => {
            let message = format!("the optimizer state of version {short} is gone");
            RepoError::user(message, "a collection has taken it; the rest of the version is there")
        }
        _ => {
            let message = format!("the exact contents of version {short} are gone");
            RepoError::user(message, "a collection has taken them; its approximation stands for them")
        }
    }
}
