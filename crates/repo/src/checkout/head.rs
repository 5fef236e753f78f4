//! Moves HEAD, after a checkout or without one.

use crate::{
    in_progress::refuse_in_progress,
    repo::Repo,
    work_tree::{lock_branches, lock_work_tree, refuse_taken, set_work_tree_base},
};
use mdl_objects::Id;
use mdl_store::{
    Progress, RepoError, Result,
    refs::{HEADS, Head},
    transaction::WriteTransaction,
};

fn place(head: &Head) -> String {
    match head {
        Head::Branch(name) => name.clone(),
        Head::Detached(id) => id.short(),
    }
}

/// Points HEAD elsewhere without touching files. A branch must stand at `seen`.
///
/// # Errors
/// `Conflict` where the branch moved or went meanwhile; an I/O error.
pub fn attach(repo: &Repo, head: &Head, seen: Option<Id>, progress: &dyn Progress) -> Result<()> {
    let _lock = lock_work_tree(repo, progress)?;
    refuse_in_progress(repo)?;
    let transaction = match head {
        Head::Branch(_) => WriteTransaction::begin(repo)?,
        Head::Detached(id) => WriteTransaction::begin_at(repo, id)?,
    };
    if repo.refs().head()? == *head {
        return Ok(());
    }
    refuse_another_tip(repo, head, seen)?;
    let _branches = lock_branches(repo)?;
    refuse_checked_out(repo, head)?;
    let message = format!("checkout: moving to {}", place(head));
    transaction.set_head(head, &repo.config.signature(), &message)
}

pub(super) fn move_head(
    repo: &Repo,
    transaction: &WriteTransaction<'_>,
    commit: &Id,
    from: &Head,
    head: &Head,
) -> Result<()> {
    if from == head {
        set_work_tree_base(repo, Some(*commit));
        return Ok(());
    }
    refuse_another_tip(repo, head, Some(*commit))?;
    let _branches = lock_branches(repo)?;
    refuse_checked_out(repo, head)?;
    let message = format!("checkout: moving to {}", place(head));
    transaction.move_head(from, head, &repo.config.signature(), &message)?;
    set_work_tree_base(repo, Some(*commit));
    Ok(())
}

/// HEAD must not get onto a branch that another work tree is on.
pub(super) fn refuse_checked_out(repo: &Repo, head: &Head) -> Result<()> {
    head.branch().map_or(Ok(()), |name| refuse_taken(repo, name))
}

/// HEAD must not get onto a branch that was deleted, or whose files are not in the work tree.
fn refuse_another_tip(repo: &Repo, head: &Head, expected: Option<Id>) -> Result<()> {
    let found = repo.refs().tip(head)?;
    match head {
        Head::Branch(name) if found != expected => {
            Err(RepoError::Conflict { name: format!("{HEADS}{name}"), expected, found })
        }
        _ => Ok(()),
    }
}
