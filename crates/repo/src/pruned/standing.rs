//! What a version gives today: its exact files, the approximation or the part of them that stands for it, or nothing.

use crate::{
    pruned::{Level, Pruned, PrunedMark, change, may_stand, pruned},
    repo::Repo,
};
use mdl_lossy::Quality;
use mdl_objects::{Commit, Id, Kind, Resume};
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
    /// It aged or lost its optimizer state, and what it was before is gone: the files of another tree stand for it.
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
    /// Its optimizer state is gone. What is left is exact, or a reconstruction if it was committed with one.
    Weights,
    /// Nothing is left.
    Gone,
}

impl Fidelity {
    /// As listings have it.
    pub const fn name(self) -> &'static str {
        match self {
            Fidelity::Exact => "exact",
            Fidelity::Approximate => "approximate",
            Fidelity::Weights => "weights",
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
    pruned(repo)?.standing_tree(repo.odb(), id, commit)
}

/// What a run that goes on from a version gets back, if it gives this tree: nothing exact from an approximation, and
/// weights only without optimizer state.
#[must_use]
pub fn resume(commit: &Commit, tree: &Id) -> Option<Resume> {
    let most = match tree {
        tree if *tree == commit.tree => return commit.resume,
        tree if commit.approximation == Some(*tree) => Resume::Approximate,
        _ => Resume::WeightsOnly,
    };
    commit.resume.map(|label| label.min(most))
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

/// Has a version that gave up contents keep those of them that are still here: a name is about to point at it. Once it
/// has none any more it may age anew, with the whole time of grace before it.
pub(crate) fn hold(repo: &Repo, transaction: &WriteTransaction<'_>, id: &Id) -> Result<()> {
    let record = pruned(repo)?;
    if record.stand_ins(id).next().is_none() {
        return Ok(());
    }
    let commit = repo.odb().commit(id)?;
    let stays = match record.aged(id).and_then(|mark| mark.stand_in) {
        _ if is_whole(repo.odb(), commit.tree)? => |_: Level| false,
        Some(tree) if is_whole(repo.odb(), tree)? => |level: Level| level == Level::Approximate,
        _ => return Ok(()),
    };
    change(transaction, repo.storage(), |record| {
        record.keep(|level, other| other != id || level == Level::Gone || stays(level));
    })
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
        // A partial repository has trees without what they name: there the least that is said to be left counts.
        let marks: Vec<&PrunedMark> = match partial {
            false if has_tree => Vec::new(),
            false => self.stand_ins(id).collect(),
            true => self.stand_ins(id).rev().collect(),
        };
        for mark in marks {
            let Some(tree) = mark.stand_in else { continue };
            let is_there = has_tree && mark.level() == Level::Approximate || odb.has(&tree)?;
            if is_there && may_stand(odb, commit, mark)? {
                return Ok(Standing::StandIn(tree, mark.clone()));
            }
        }
        Ok(if has_tree { Standing::Committed } else { Standing::Gone })
    }

    /// Root directory of what a version gives today, or would give if it were here.
    pub fn standing_tree(&self, odb: &Odb, id: &Id, commit: &Commit) -> Result<Id> {
        match self.standing(odb, id, commit)? {
            Standing::Committed => return Ok(commit.tree),
            Standing::StandIn(tree, _) => return Ok(tree),
            Standing::Gone => {}
        }
        // A partial repository fetches it, and with it what tells whether it may stand.
        for mark in self.stand_ins(id).rev() {
            if may_stand(odb, commit, mark)? {
                return Ok(mark.stand_in.unwrap_or(commit.tree));
            }
        }
        Ok(commit.tree)
    }

    /// How close what a version gives today is to what training had.
    pub fn fidelity(&self, odb: &Odb, id: &Id, commit: &Commit) -> Result<Fidelity> {
        let of_level = |mark: &PrunedMark| match mark.level() {
            Level::Weights => Fidelity::Weights,
            Level::Approximate | Level::Gone => Fidelity::Approximate,
        };
        Ok(match (self.standing(odb, id, commit)?, self.stand_ins(id).next_back()) {
            (Standing::Gone, _) if self.get(id).is_some() => Fidelity::Gone,
            (Standing::StandIn(_, mark), _) => of_level(&mark),
            // A partial repository may have to fetch what stands for it.
            (Standing::Gone, Some(mark)) if !odb.has(&commit.tree)? => of_level(mark),
            // A partial repository may have to fetch it.
            (Standing::Committed | Standing::Gone, _) if is_exact(commit)? => Fidelity::Exact,
            (Standing::Committed | Standing::Gone, _) => Fidelity::Approximate,
        })
    }

    /// Root directories that a version may give, the most first: what was committed, the approximation if it aged, what
    /// is left without optimizer state if it lost that.
    pub fn trees(&self, id: &Id, commit: &Commit) -> impl DoubleEndedIterator<Item = Id> {
        [commit.tree].into_iter().chain(self.stand_ins(id).filter_map(|mark| mark.stand_in))
    }

    /// Root directory of what is kept of a version once collections have taken what it gave up.
    pub fn lasting_tree(&self, id: &Id, commit: &Commit) -> Id {
        self.trees(id, commit).next_back().unwrap_or(commit.tree)
    }
}

/// A version with another tree in place of its own and its approximation's.
#[must_use]
pub fn with_tree(commit: Commit, tree: Id) -> Commit {
    if tree == commit.tree { commit } else { Commit { tree, approximation: None, ..commit } }
}
