//! The ref that a commit moves, and its move.

use crate::{
    commit::CommitRequest,
    repo::Repo,
    work_tree::{is_of_work_tree, refuse_moved},
};
use mdl_objects::{Commit, Id, Signature};
use mdl_store::{
    RepoError, Result,
    refs::{COMMITTED, HEADS, Head},
    transaction::WriteTransaction,
};
use std::path::Path;

/// What a commit is going to move: a branch, or a detached HEAD.
#[derive(Clone, Debug)]
pub(crate) struct Target {
    pub head: Head,
    /// Where it stands; none for a branch that is not there yet.
    pub tip: Option<Id>,
    pub parent: Option<Id>,
}

impl Target {
    /// Refuses to go on where it is not where the caller has seen it.
    pub fn check(&self, expects: Option<Option<Id>>) -> Result<()> {
        match expects {
            Some(expected) if expected != self.tip => {
                let name = self.head.branch().map_or_else(|| "HEAD".to_owned(), |name| format!("{HEADS}{name}"));
                Err(RepoError::Conflict { name, expected, found: self.tip })
            }
            _ => Ok(()),
        }
    }
}

/// What the next commit to a branch (none: to where HEAD is) moves.
pub(crate) fn branch_target(repo: &Repo, branch: Option<&str>) -> Result<Target> {
    let now = repo.refs().head()?;
    let head = branch.map_or(now, |name| Head::Branch(name.to_owned()));
    let tip = repo.refs().tip(&head)?;
    let parent = if tip.is_none() && branch.is_some() { repo.refs().head_commit()? } else { tip };
    Ok(Target { head, tip, parent })
}

/// Returns the ref that a request moves. Refuses where it is not where the request, or the work tree's base, has
/// it.
pub(super) fn target_of(repo: &Repo, request: &CommitRequest, source: &Path) -> Result<Target> {
    let branch = request.branch.as_deref();
    let target = branch_target(repo, branch)?;
    target.check(request.expects)?;
    if request.files.is_none() && is_of_work_tree(repo, source, branch)? {
        refuse_moved(repo)?;
    }
    Ok(target)
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
    transaction.advance(&target.head, target.tip, id, who, &message)
}
