//! What a version gives today: its exact files, the approximation that stands for them, or nothing.

use crate::{
    pruned::{Pruned, PrunedMark, change, pruned},
    repo::Repo,
};
use mdl_lossy::Quality;
use mdl_objects::{Commit, Id, Kind};
use mdl_store::{
    RepoError, Result,
    object_db::{Files, Odb, references},
    transaction::WriteTransaction,
};
use std::collections::HashSet;

/// What a version gives today.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Standing {
    /// What was committed.
    Committed,
    /// It aged, and its exact contents are gone: the files of another tree stand for them.
    StandIn(Id, PrunedMark),
    /// Neither is there.
    Gone,
}

/// How close what a version gives today is to what training had.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fidelity {
    /// The same bits.
    Exact,
    /// A reconstruction, within the bounds that its record tells.
    Approximate,
    /// Nothing is left.
    Gone,
}

impl Fidelity {
    /// As listings have it.
    pub const fn name(self) -> &'static str {
        match self {
            Fidelity::Exact => "exact",
            Fidelity::Approximate => "approximate",
            Fidelity::Gone => "gone",
        }
    }
}

/// What a version gives today. Its exact files are given for as long as they are there, whatever the record says.
/// In a partial repository, which has trees without what they name, the approximation is given once it aged.
pub fn standing(repo: &Repo, id: &Id, commit: &Commit) -> Result<Standing> {
    let sure = !repo.odb().is_partial() && repo.odb().has(&commit.tree)?;
    let record = if sure { Pruned::default() } else { pruned(repo)? };
    record.standing(repo.odb(), id, commit)
}

/// Root directory of what a version gives today. That of what was committed where nothing else is known: a partial
/// repository fetches it.
pub fn standing_tree(repo: &Repo, id: &Id, commit: &Commit) -> Result<Id> {
    if !repo.odb().is_partial() && repo.odb().has(&commit.tree)? {
        return Ok(commit.tree);
    }
    Ok(pruned(repo)?.lasting_tree(id, commit))
}

/// The files of a version by their paths: the exact ones, or those that stand for them.
///
/// # Errors
/// `Pruned` where a collection has taken what it held; absent or damaged objects; an I/O error.
pub fn files(repo: &Repo, commit: &Id) -> Result<Files> {
    let tree = standing_tree(repo, commit, &repo.odb().commit(commit)?)?;
    repo.odb().files(&tree).map_err(|e| explain(repo, commit, e))
}

/// Root directories of a version and of one after it that tell what was changed, each given with the tree that it gives
/// today: where one of the two is approximate now, the other's approximation, so that what training left alone is the
/// same.
pub fn comparable(before: (&Commit, Id), after: (&Commit, Id)) -> (Id, Id) {
    let is_stand_in = |(commit, tree): (&Commit, Id)| tree != commit.tree;
    if !is_stand_in(before) && !is_stand_in(after) {
        return (before.1, after.1);
    }
    let lasting = |v| if is_stand_in(v) { v.1 } else { v.0.approximation.unwrap_or(v.1) };
    (lasting(before), lasting(after))
}

/// Files of a version and of one after it that tell what was changed (`comparable`).
pub fn files_beside(repo: &Repo, before: &Id, after: &Id) -> Result<(Files, Files)> {
    let read = |id| {
        let commit = repo.odb().commit(id)?;
        Ok((standing_tree(repo, id, &commit)?, commit))
    };
    let ((tree, commit), (new_tree, new_commit)) = (read(before)?, read(after)?);
    let (old, new) = comparable((&commit, tree), (&new_commit, new_tree));
    let listed = |id, tree| repo.odb().files(tree).map_err(|e| explain(repo, id, e));
    Ok((listed(before, &old)?, listed(after, &new)?))
}

/// Has a version that aged keep its exact contents, if these are still here: a name is about to point at it. Once it
/// has none any more it may age anew, with the whole time of grace before it.
pub(crate) fn hold(repo: &Repo, transaction: &WriteTransaction<'_>, id: &Id) -> Result<()> {
    if pruned(repo)?.aged(id).is_none() || !is_whole(repo.odb(), repo.odb().commit(id)?.tree)? {
        return Ok(());
    }
    change(transaction, repo.storage(), |record| record.keep_aged(|other| other != id))
}

/// Whether all that a directory holds is here. A transfer that was cut off may have brought the directory alone.
fn is_whole(odb: &Odb, tree: Id) -> Result<bool> {
    let (mut stack, mut seen) = (vec![(tree, Kind::Tree)], HashSet::new());
    while let Some((id, kind)) = stack.pop() {
        if !seen.insert(id) {
            continue;
        }
        if !odb.contains(&id)? {
            return Ok(false);
        }
        if matches!(kind, Kind::Tree | Kind::Manifest) {
            stack.extend(references(kind, &id, &odb.read(&id, kind)?)?);
        }
    }
    Ok(true)
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

/// Whether neither a version's exact contents nor an approximation of them are there.
pub fn lacks_contents(repo: &Repo, commit: &Id) -> Result<bool> {
    Ok(standing(repo, commit, &repo.odb().commit(commit)?)? == Standing::Gone)
}

/// Whether what a commit names as its tree is what training had, as its record of quality says.
fn is_exact(commit: &Commit) -> Result<bool> {
    let exact = |q: Quality| q.family == "lossless" && matches!(q.moments.as_str(), "" | "exact");
    Ok(commit.approximation.is_some() || Quality::from_commit(commit)?.is_none_or(exact))
}

impl Pruned {
    /// What a version gives today.
    pub fn standing(&self, odb: &Odb, id: &Id, commit: &Commit) -> Result<Standing> {
        for blob in commit.blobs() {
            if !odb.has(&blob)? {
                return Ok(Standing::Gone);
            }
        }
        let (has_tree, partial) = (odb.has(&commit.tree)?, odb.is_partial());
        match self.aged(id).and_then(|mark| Some((mark.stand_in?, mark))) {
            Some((tree, mark)) if partial && has_tree || !has_tree && odb.has(&tree)? => {
                Ok(Standing::StandIn(tree, mark.clone()))
            }
            _ if has_tree => Ok(Standing::Committed),
            _ => Ok(Standing::Gone),
        }
    }

    /// How close what a version gives today is to what training had.
    pub fn fidelity(&self, odb: &Odb, id: &Id, commit: &Commit) -> Result<Fidelity> {
        Ok(match self.standing(odb, id, commit)? {
            Standing::Gone if self.get(id).is_some() => Fidelity::Gone,
            Standing::StandIn(..) => Fidelity::Approximate,
            // A partial repository may have to fetch what stands for it.
            Standing::Gone if self.aged(id).is_some() && !odb.has(&commit.tree)? => Fidelity::Approximate,
            // A partial repository may have to fetch it.
            Standing::Committed | Standing::Gone if is_exact(commit)? => Fidelity::Exact,
            Standing::Committed | Standing::Gone => Fidelity::Approximate,
        })
    }

    /// Root directory of what is kept of a version: what was committed, or after it aged the approximation.
    pub fn lasting_tree(&self, id: &Id, commit: &Commit) -> Id {
        self.stand_in(id).unwrap_or(commit.tree)
    }

    /// A version with that tree.
    pub fn lasting(&self, id: &Id, commit: Commit) -> Commit {
        match self.stand_in(id) {
            Some(tree) => Commit { tree, approximation: None, ..commit },
            None => commit,
        }
    }
}
