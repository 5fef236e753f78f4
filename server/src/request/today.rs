//! What versions give today: their root directories, and the ids that caches may keep them under.
//!
//! Of a version that gave up contents, these are there until a collection takes them; then an approximation, or what is
//! left without optimizer state, stands for the version, under the same commit id. A client that keeps what it got
//! under that id would mix the two: it is given another.

use mdl_objects::{Commit, Id};
use mdl_repo::{Files, Pruned, Repo, RepoError, Result};

/// Separates these ids' hashes from every object's.
const CONTEXT: &str = "mdl 2026-11-21 approximation as a revision v1";

/// A version and what it gives today.
#[derive(Debug)]
pub(crate) struct Version {
    pub id: Id,
    pub commit: Commit,
    /// Root directory of the exact files, or of what stands for them.
    pub tree: Id,
}

impl Version {
    /// Reads one; the record of versions that aged only if its exact contents are not there.
    pub fn read(repo: &Repo, id: Id) -> Result<Version> {
        Versions::new(repo).read(id)
    }

    /// Whether something else stands for its exact contents.
    pub fn is_stand_in(&self) -> bool {
        self.tree != self.commit.tree
    }

    /// Id under which caches may keep what it gives.
    pub fn cache_id(&self) -> Id {
        cache_id(&self.id, &self.commit, &self.tree)
    }

    /// The id that caches keep something else under: once an approximation stands for its exact contents its own, and
    /// until then that of the approximation.
    pub fn other_id(&self) -> Option<Id> {
        match self.is_stand_in() {
            true => Some(self.id),
            false => self.commit.approximation.map(|tree| stand_in_id(&self.id, &tree)),
        }
    }

    /// Its files.
    pub fn files(&self, repo: &Repo) -> Result<Files> {
        self.files_below(repo, &self.tree)
    }

    /// The files below one of its root directories.
    fn files_below(&self, repo: &Repo, tree: &Id) -> Result<Files> {
        repo.odb().files(tree).map_err(|e| explained(repo, &self.id, e))
    }

    /// Files of a version and of one after it, for comparison (`comparable`).
    pub fn files_beside(&self, repo: &Repo, after: &Version) -> Result<(Files, Files)> {
        let (before, now) = comparable(self, after);
        Ok((self.files_below(repo, &before)?, after.files_below(repo, &now)?))
    }
}

/// Versions that are read for one answer: the record of those that aged is read once, when it is needed.
#[derive(Debug)]
pub(crate) struct Versions<'r> {
    repo: &'r Repo,
    record: Option<Pruned>,
}

impl Versions<'_> {
    /// Of a repository.
    pub fn new(repo: &Repo) -> Versions<'_> {
        Versions { repo, record: None }
    }

    fn record(&mut self) -> Result<&Pruned> {
        let record = match self.record.take() {
            Some(record) => record,
            None => mdl_repo::pruned(self.repo)?,
        };
        Ok(self.record.insert(record))
    }

    /// Root directory of what a version gives today.
    pub fn tree(&mut self, id: &Id, commit: &Commit) -> Result<Id> {
        let odb = self.repo.odb();
        match odb.has(&commit.tree)? {
            true => Ok(commit.tree),
            false => self.record()?.standing_tree(odb, id, commit),
        }
    }

    /// Reads a version.
    pub fn read(&mut self, id: Id) -> Result<Version> {
        let commit = self.repo.odb().commit(&id)?;
        let tree = self.tree(&id, &commit)?;
        Ok(Version { id, commit, tree })
    }

    /// Id under which caches may keep what a version gives. The commit is read only if it gave up contents.
    pub fn cache_id(&mut self, id: Id) -> Result<Id> {
        let is_marked = self.record()?.stand_ins(&id).next().is_some();
        if is_marked { Ok(self.read(id)?.cache_id()) } else { Ok(id) }
    }
}

/// Id under which caches may keep what a version gives: its own, or if an approximation stands for it another.
pub(crate) fn cache_id(id: &Id, commit: &Commit, tree: &Id) -> Id {
    if *tree == commit.tree { *id } else { stand_in_id(id, tree) }
}

fn stand_in_id(id: &Id, tree: &Id) -> Id {
    let mut hasher = blake3::Hasher::new_derive_key(CONTEXT);
    hasher.update(id.as_bytes()).update(tree.as_bytes());
    Id::from_bytes(hasher.finalize().into())
}

/// The version whose approximation, or rest without optimizer state, has an id that begins so, whether that stands for
/// the version already or not.
pub(crate) fn by_stand_in(repo: &Repo, prefix: &str) -> Result<Option<Id>> {
    let record = mdl_repo::pruned(repo)?;
    let is_it = |(id, tree): &(Id, Id)| stand_in_id(id, tree).to_hex().starts_with(prefix);
    let all = record.iter_stand_ins().filter_map(|(id, mark)| Some((*id, mark.stand_in?)));
    Ok(all.into_iter().find(is_it).map(|(id, _)| id))
}

/// Root directories of a version and of one after it that tell what was changed.
pub(crate) fn comparable(before: &Version, after: &Version) -> (Id, Id) {
    mdl_repo::comparable((&before.commit, before.tree), (&after.commit, after.tree))
}

/// Why a part of a version cannot be read: of one that was pruned, listing its files says so.
pub(crate) fn explained(repo: &Repo, commit: &Id, error: RepoError) -> RepoError {
    let is_absent = matches!(error, RepoError::NotFound { .. });
    let pruned = is_absent.then(|| mdl_repo::files(repo, commit).err()).flatten();
    pruned.unwrap_or(error)
}
