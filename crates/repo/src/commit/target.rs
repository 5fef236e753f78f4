//! The ref that a commit moves, and its move.

use crate::{
    commit::CommitRequest,
    repo::Repo,
    work_tree::{is_of_work_tree, refuse_moved},
};
use mdl_objects::{Commit, Id, Signature};
use mdl_store::{
    RepoError, Result,
    refs::{COMMITTED, HEADS, Head, RefName},
    transaction::WriteTransaction,
};
use std::path::Path;

/// The ref that a commit is going to move.
#[derive(Clone, Debug)]
pub(crate) enum Target {
    Branch { name: String, tip: Option<Id>, parent: Option<Id> },
    Detached(Id),
}

impl Target {
    pub fn parent(&self) -> Option<Id> {
        match self {
            Target::Branch { parent, .. } => *parent,
            Target::Detached(id) => Some(*id),
        }
    }

    /// Refuses to go on where it is not where the caller has seen it.
    pub fn check(&self, expects: Option<Option<Id>>) -> Result<()> {
        let (name, found) = match self {
            Target::Branch { name, tip, .. } => (format!("{HEADS}{name}"), *tip),
            Target::Detached(id) => ("HEAD".to_owned(), Some(*id)),
        };
        match expects {
            Some(expected) if expected != found => Err(RepoError::Conflict { name, expected, found }),
            _ => Ok(()),
        }
    }
}

fn target(repo: &Repo, branch: Option<&str>) -> Result<Target> {
    let tip = |name: &str| repo.refs().get(&RefName::branch(name)?);
    match (branch, repo.refs().head()?) {
        (None, Head::Detached(id)) => Ok(Target::Detached(id)),
        (None, Head::Branch(name)) => {
            let tip = tip(&name)?;
            Ok(Target::Branch { name, tip, parent: tip })
        }
        (Some(name), _) => {
            let tip = tip(name)?;
            let parent = if tip.is_some() { tip } else { repo.refs().head_commit()? };
            Ok(Target::Branch { name: name.to_owned(), tip, parent })
        }
    }
}

/// Returns the ref that a request moves. Refuses where it is not where the request, or the work tree's base, has
/// it.
pub(super) fn target_of(repo: &Repo, request: &CommitRequest, source: &Path) -> Result<Target> {
    let branch = request.branch.as_deref();
    let target = target(repo, branch)?;
    target.check(request.expects)?;
    if request.files.is_none() && is_of_work_tree(repo, source, branch)? {
        refuse_moved(repo)?;
    }
    Ok(target)
}

/// The version that the next commit to a branch (none: HEAD's) has as its parent.
pub(crate) fn parent_of(repo: &Repo, branch: Option<&str>) -> Result<Option<Id>> {
    Ok(target(repo, branch)?.parent())
}

/// Moves the ref of a commit from its old value to the commit.
pub(crate) fn advance(
    transaction: &WriteTransaction<'_>,
    target: &Target,
    id: Id,
    commit: &Commit,
    who: &Signature,
) -> Result<()> {
    let first_line = commit.message.lines().next().unwrap_or_default();
    let initial = if commit.parents.is_empty() { " (initial)" } else { "" };
    let message = format!("{COMMITTED}{initial}: {first_line}");
    match target {
        Target::Branch { name, tip, .. } => {
            transaction.update_ref(&RefName::branch(name)?, *tip, Some(id), who, &message)
        }
        Target::Detached(from) => {
            let (from, to) = (Head::Detached(*from), Head::Detached(id));
            transaction.move_head(&from, &to, who, &message)
        }
    }
}
