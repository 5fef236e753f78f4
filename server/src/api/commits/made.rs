//! JSON answer of `POST .../commits`: the fields of `mdl commit --json`.

use crate::{
    api::{diff::changed_files, entry::without_search_state},
    request::prelude::*,
};
use mdl_objects::Resume;
use mdl_repo::{Change, Files, Quality, pruned::resume};
use serde_json::Value;

/// A commit that was made.
#[derive(Debug, Serialize, ToSchema)]
#[schema(as = MadeCommit)]
pub(super) struct Made {
    /// Its id.
    commit: String,
    /// The branch that it was made on.
    branch: String,
    /// The commit before; none: it is the first.
    parent: Option<String>,
    message: String,
    step: Option<u64>,
    /// Files in the version.
    files: u64,
    files_changed: u64,
    files_added: u64,
    files_deleted: u64,
    /// Tensors in the version.
    tensors: u64,
    /// Tensors that were not stored before.
    new_tensors: u64,
    /// Bytes of the version's files.
    logical_bytes: u64,
    /// Bytes that storing it took.
    stored_bytes: u64,
    /// The version that training was restored from.
    resumed_from: Option<String>,
    /// What a run that goes on from it gets back: `exact-resume`, `approximate`, `weights-only`.
    resume: Option<String>,
    /// The policy it was made under.
    policy: Option<String>,
    /// What was chosen under the policy.
    configuration: Option<String>,
    /// The record of a commit under a policy.
    quality: Option<Value>,
}

impl Made {
    pub(super) fn from_commit(repo: &Repo, branch: String, id: Id) -> Result<Made> {
        let mut versions = Versions::new(repo);
        let version = versions.read(id)?;
        let (before, after) = match version.commit.parents.first() {
            Some(parent) => versions.read(*parent)?.files_beside(repo, &version)?,
            None => (Files::new(), version.files(repo)?),
        };
        let (commit, tree) = (version.commit, version.tree);
        let changes: Vec<Change> = changed_files(&before, &after).map(|(_, change, ..)| change).collect();
        let count = |what: Change| changes.iter().filter(|change| **change == what).count() as u64;
        let quality = Quality::from_commit(&commit)?;
        let s = commit.summary;
        Ok(Made {
            commit: id.to_hex(),
            branch,
            parent: commit.parents.first().map(Id::to_hex),
            step: commit.step,
            files: s.files,
            files_changed: count(Change::Modified),
            files_added: count(Change::Added),
            files_deleted: count(Change::Deleted),
            tensors: s.tensors,
            new_tensors: s.new_tensors,
            logical_bytes: s.logical_bytes,
            stored_bytes: s.stored_bytes,
            resumed_from: commit.resumed_from.map(|id| id.to_hex()),
            resume: resume(&commit, &tree).map(Resume::name).map(str::to_owned),
            policy: quality.as_ref().map(|q| q.policy.clone()),
            configuration: quality.as_ref().map(|q| q.configuration.clone()),
            quality: quality.map(|q| without_search_state(serde_json::to_value(q).unwrap_or_default())),
            message: commit.message,
        })
    }
}
