//! Policies of a repository, changed in its user's name, and what one would do to a checkpoint on disk.

use crate::{aging::check_rules, repo::Repo, work_tree::walk};
use mdl_lossy::{Policy, TensorTreatment};
use mdl_objects::Id;
use mdl_store::{RepoError, Result};
use std::path::Path;

/// Stores a policy under a name. Returns the id of its text.
///
/// # Errors
/// A bad name or policy; `Conflict` where another changed it meanwhile; an I/O error.
pub fn set_policy(repo: &Repo, name: &str, text: &str) -> Result<Id> {
    check_policy(&Policy::parse(name, text)?)?;
    mdl_lossy::set_policy(repo, name, text, &repo.config.signature())
}

/// Checks what a policy's text alone cannot be wrong in: its rules of retention.
///
/// # Errors
/// Rules that keep nothing, or go by a metric of which it is not known which end is best.
pub fn check_policy(policy: &Policy) -> Result<()> {
    check_rules(&policy.keep)
}

/// Removes the repository's own policy of this name; a built-in one of the same name is in force again.
pub fn remove_policy(repo: &Repo, name: &str) -> Result<()> {
    mdl_lossy::remove_policy(repo, name, &repo.config.signature())
}

/// What a policy would do to the tensors of the checkpoint at `path`.
pub fn treatments(policy: &Policy, path: &Path) -> Result<Vec<TensorTreatment>> {
    let path = std::path::absolute(path).map_err(RepoError::io("cannot find the current directory"))?;
    mdl_lossy::treatments(policy, &walk(&path, true)?)
}
