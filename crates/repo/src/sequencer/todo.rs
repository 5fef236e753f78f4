//! Which versions are to be replayed.

use crate::{
    history::{history, reaches},
    repo::Repo,
};
use mdl_objects::Id;
use mdl_store::{Missing, Progress, RepoError, Result};
use std::collections::HashSet;

fn ancestors(repo: &Repo, of: &Id) -> Result<HashSet<Id>> {
    history(repo, &[*of])?.map(|step| Ok(step?.id)).collect()
}

/// The versions that `head` has and `base` has not, along the first parents of `head`, oldest first. A merge among them
/// is one of them: as a snapshot it is what came of it, and its other parents' versions are not.
pub fn range(repo: &Repo, base: &Id, head: &Id) -> Result<Vec<Id>> {
    let known = ancestors(repo, base)?;
    let (mut found, mut next) = (Vec::new(), Some(*head));
    while let Some(id) = next.filter(|id| !known.contains(id)) {
        found.push(id);
        next = repo.odb().commit(&id)?.parents.first().copied();
    }
    found.reverse();
    Ok(found)
}

/// Whether the present branch and `other` have parted: how many versions only this side has, and only the other. None:
/// one of the two moves forward to the other.
///
/// # Errors
/// Absent or damaged commits; an I/O error.
pub fn parted(repo: &Repo, other: &Id, progress: &dyn Progress) -> Result<Option<(u64, u64)>> {
    if progress.stopped() {
        return Err(RepoError::Stopped { what: super::WHAT });
    }
    let Some(head) = repo.refs().head_commit()? else { return Ok(None) };
    repo.odb().need(other, Missing::Commit)?;
    if reaches(repo, &head, other)? {
        return Ok(None);
    }
    let (here, there) = (ancestors(repo, &head)?, ancestors(repo, other)?);
    if there.contains(&head) {
        return Ok(None);
    }
    let count = |a: &HashSet<Id>, b: &HashSet<Id>| a.difference(b).count() as u64;
    Ok(Some((count(&here, &there), count(&there, &here))))
}
