//! JSON answer of `POST .../commits`: the fields of `mdl commit --json`.

use crate::problem::Result;
use mdl_objects::{Commit, Id, Resume};
use mdl_repo::{Files, Quality, Repo};
use serde::Serialize;
use serde_json::Value;
use utoipa::ToSchema;

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

/// Files that differ from the first parent's: changed, added, deleted.
fn changes(repo: &Repo, commit: &Commit) -> Result<[u64; 3]> {
    let after = repo.odb().files(&commit.tree)?;
    let before = match commit.parents.first() {
        Some(parent) => mdl_repo::files(repo, parent)?,
        None => Files::new(),
    };
    let mut counts = [0; 3];
    let [changed, added, deleted] = &mut counts;
    for (path, e) in &after {
        match before.get(path) {
            None => *added += 1,
            Some(o) if (o.mode, o.id, o.executable) != (e.mode, e.id, e.executable) => *changed += 1,
            Some(_) => {}
        }
    }
    *deleted = before.keys().filter(|p| !after.contains_key(*p)).count() as u64;
    Ok(counts)
}

/// The record without what only the next search needs.
fn quality_json(quality: &Quality) -> Value {
    let mut value = serde_json::to_value(quality).unwrap_or(Value::Null);
    if let Some(map) = value.as_object_mut() {
        map.remove("state");
    }
    value
}

impl Made {
    pub(super) fn of(repo: &Repo, branch: String, id: Id) -> Result<Made> {
        let commit = repo.odb().commit(&id)?;
        let [files_changed, files_added, files_deleted] = changes(repo, &commit)?;
        let quality = Quality::of(&commit)?;
        let s = commit.summary;
        Ok(Made {
            commit: id.to_hex(),
            branch,
            parent: commit.parents.first().map(Id::to_hex),
            step: commit.step,
            files: s.files,
            files_changed,
            files_added,
            files_deleted,
            tensors: s.tensors,
            new_tensors: s.new_tensors,
            logical_bytes: s.logical_bytes,
            stored_bytes: s.stored_bytes,
            resumed_from: commit.resumed_from.map(|id| id.to_hex()),
            resume: commit.resume.map(Resume::name).map(str::to_owned),
            policy: quality.as_ref().map(|q| q.policy.clone()),
            configuration: quality.as_ref().map(|q| q.configuration.clone()),
            quality: quality.as_ref().map(quality_json),
            message: commit.message,
        })
    }
}
