//! Moves one ref by its full name, as a remote client asks for it.

use crate::{
    history::{no_commit, peel},
    pruned::{hold, refuse_pruned},
    repo::Repo,
    work_tree::{lock_branches, lock_work_tree, refuse_taken},
};
use mdl_objects::{Id, Kind, Signature};
use mdl_store::{
    Missing, RepoError, Result,
    refs::{HEADS, Head, RefName, TAGS, check_ref_name},
    transaction::WriteTransaction,
};

/// Moves, makes (`expected` none) or deletes (`new` none) the branch or tag of this full name, if it is where it is
/// expected. `who` none: the author in the settings.
///
/// # Errors
/// `Conflict` where it stands elsewhere; a bad name; a target that is no commit (for a tag: nor a tag of one), or
/// that was pruned; deleting the branch HEAD is on; an I/O error.
pub fn move_ref(
    repo: &Repo,
    name: &str,
    expected: Option<Id>,
    new: Option<Id>,
    who: Option<Signature>,
    message: &str,
) -> Result<()> {
    let branch = name.strip_prefix(HEADS);
    let short = branch.or_else(|| name.strip_prefix(TAGS));
    check_ref_name(short.ok_or_else(|| {
        let message = format!("{name:?} is neither a branch nor a tag");
        RepoError::user(message, "name refs/heads/... or refs/tags/...")
    })?)?;
    // HEAD must not get onto a branch between the look and its deletion.
    let _lock = match new {
        None => Some((lock_work_tree(repo, &mdl_store::Silent)?, lock_branches(repo)?)),
        Some(_) => None,
    };
    let full = RefName::parse(name)?;
    // Perhaps nothing else keeps the ref's target, and a collector would lose the line in the log.
    let transaction = match &new {
        Some(id) => WriteTransaction::begin_at(repo, id)?,
        None => WriteTransaction::begin(repo)?,
    };
    // Before anything is logged; the swap itself looks again.
    let (name, found) = (name.to_owned(), repo.refs().get(&full)?);
    if found != expected {
        return Err(RepoError::Conflict { name, expected, found });
    }
    match &new {
        Some(id) => check_target(repo, id, branch.is_some())?,
        None if expected.is_none() => return Ok(()),
        None => check_deletion(repo, branch)?,
    }
    if let Some(id) = &new {
        hold(repo, &transaction, &peel(repo, id)?)?;
    }
    let who = repo.config.moved_by(who.as_ref());
    transaction.update_ref(&full, expected, new, &who, message)
}

fn check_target(repo: &Repo, id: &Id, of_branch: bool) -> Result<()> {
    let kind_of = |id: &Id| Ok::<_, RepoError>(repo.odb().need(id, Missing::Commit)?.record.kind);
    let commit = match kind_of(id)? {
        Kind::Tag if of_branch => return Err(no_commit(id, Kind::Tag)),
        _ => peel(repo, id)?,
    };
    match kind_of(&commit)? {
        Kind::Commit => refuse_pruned(repo, &commit),
        kind => Err(no_commit(&commit, kind)),
    }
}

fn check_deletion(repo: &Repo, branch: Option<&str>) -> Result<()> {
    match (repo.refs().head()?, branch) {
        (Head::Branch(head), Some(branch)) if head == branch => Err(RepoError::user(
            format!("HEAD is on branch {branch}"),
            "it is the branch that everything starts from: delete another one",
        )),
        (_, Some(branch)) => refuse_taken(repo, branch),
        _ => Ok(()),
    }
}
