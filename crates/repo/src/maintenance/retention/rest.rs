//! What is left of versions that are pruned to a level: nothing, their approximation, or all but their optimizer state.

use crate::{
    commit::{FileRole, role_of_file},
    history::Step,
    pruned::{LeftOut, LeftOutFiles, Level, Pruned, is_part, whole_tree},
    repo::Repo,
};
use mdl_objects::{Commit, Entry, Id};
use mdl_store::{
    Result, Silent,
    object_db::{Files, kind_of},
    reachability::Left,
    transaction::WriteTransaction,
    write::{Chains, Hints, Ingest, Policy, Report, Sink, store_trees},
};

/// What is left of a version.
pub(super) enum Rest {
    Nothing,
    Approximation(Id),
    Part { files: Files, without: LeftOutFiles },
}

/// Versions that have more than a level leaves, and why others do not.
#[derive(Default)]
pub(super) struct Lowered<'s> {
    pub versions: Vec<(&'s Step, Rest)>,
    pub no_approximation: u64,
    pub no_state: u64,
    pub mixed: u64,
}

impl Rest {
    /// As reachability walks have it.
    pub fn left(&self) -> Left {
        match self {
            Rest::Nothing => Left::Nothing,
            Rest::Approximation(tree) => Left::StandIn(*tree),
            Rest::Part { files, .. } => Left::Files(files.values().map(|e| (e.id, kind_of(e.mode))).collect()),
        }
    }
}

impl<'s> Lowered<'s> {
    /// What a level leaves of these versions. None is raised: one that has less is left alone.
    pub fn new(repo: &Repo, go: &[&'s Step], pruned: &Pruned, to: Level) -> Result<Lowered<'s>> {
        let mut out = Lowered::default();
        for step in go {
            let has_less = Level::ALL.iter().any(|level| *level <= to && pruned.at(*level, &step.id).is_some());
            if has_less {
                continue;
            }
            let rest = match (to, step.commit.approximation) {
                (Level::Gone, _) => Some(Rest::Nothing),
                (Level::Approximate, Some(tree)) => Some(Rest::Approximation(tree)),
                (Level::Approximate, None) => {
                    out.no_approximation += 1;
                    None
                }
                (Level::Weights, _) => out.part(repo, &step.commit)?,
            };
            out.versions.extend(rest.map(|rest| (*step, rest)));
        }
        Ok(out)
    }

    /// A version without its optimizer state; none if it has no file of nothing else, or no other file with weights.
    fn part(&mut self, repo: &Repo, commit: &Commit) -> Result<Option<Rest>> {
        let (odb, whole) = (repo.odb(), whole_tree(commit));
        let (mut files, mut without) = (Files::new(), LeftOutFiles::new());
        let (mut has_weights, mut is_mixed) = (false, false);
        for (path, entry) in odb.files(&whole)? {
            let role = role_of_file(odb, &path, &entry)?;
            is_mixed |= role == FileRole::Mixed;
            has_weights |= matches!(role, FileRole::Weights | FileRole::Mixed);
            if role == FileRole::State {
                without.insert(path, LeftOut::from_entry(&entry));
            } else {
                files.insert(path, entry);
            }
        }
        self.mixed += u64::from(is_mixed);
        // A tree that another program made in its own way would not be told from a foreign one.
        if has_weights && is_part(odb, files.clone(), &without, &whole)? {
            return Ok(Some(Rest::Part { files, without }));
        }
        self.no_state += 1;
        Ok(None)
    }

    /// Stores trees of what is left, durably. Returns which tree stands for each version.
    pub fn store(&self, repo: &Repo, transaction: &WriteTransaction<'_>) -> Result<Vec<Option<Id>>> {
        let parts = || {
            self.versions.iter().filter_map(|(_, rest)| match rest {
                Rest::Part { files, .. } => Some(files),
                Rest::Nothing | Rest::Approximation(_) => None,
            })
        };
        let mut pack = transaction.pack(parts().flat_map(Files::values).map(|e: &Entry| e.id))?;
        let policy = Policy { chains: Chains::NONE, allow_damaged: false };
        let (sink, hints, report) = (Sink::Pack(&mut pack), &Hints::default(), Report::default());
        let mut ingest = Ingest { odb: repo.odb(), sink, policy, hints, progress: &Silent, report };
        let mut trees = Vec::with_capacity(self.versions.len());
        for (_, rest) in &self.versions {
            trees.push(match rest {
                Rest::Nothing => None,
                Rest::Approximation(tree) => Some(*tree),
                Rest::Part { files, .. } => Some(store_trees(&mut ingest, files)?),
            });
        }
        drop(ingest);
        transaction.publish(pack)?;
        // Those that were there already.
        transaction.pin(trees.iter().flatten().copied())?;
        Ok(trees)
    }
}
