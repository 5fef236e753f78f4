//! Branches, tags, reset and merge: ref updates without new files.

mod move_ref;

pub use move_ref::move_ref;

use crate::{
    aging::age_arrived,
    checkout::{CheckedOut, CheckoutOptions, checkout_locked},
    history::{is_in_history, named_commits, reaches},
    in_progress::refuse_in_progress,
    pruned::{hold, refuse_pruned},
    repo::Repo,
    signing::Signing,
    work_tree::{lock_branches, lock_work_tree, refuse_taken, set_work_tree_base},
};
use mdl_objects::{Id, Kind, Tag};
use mdl_store::{
    Missing, Progress, Remedy, RepoError, Result,
    refs::{Head, RefName, check_ref_name},
    transaction::WriteTransaction,
};

/// What a merge did.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Merged {
    /// The branch has the commit already.
    UpToDate,
    /// The branch moved forward.
    FastForward {
        /// Its commit before; none if it had none.
        from: Option<Id>,
        /// Its commit now.
        to: Id,
    },
}

fn add_tag(transaction: &WriteTransaction<'_>, tag: &Tag) -> Result<Id> {
    tag.check_bounds().map_err(RepoError::TooLong)?;
    transaction.add(Kind::Tag, &tag.encode(), [tag.target])
}

/// Makes a branch at a commit; `force` moves one that exists.
pub fn create_branch(repo: &Repo, name: &str, at: &Id, force: bool) -> Result<()> {
    let full = RefName::branch(name)?;
    let transaction = WriteTransaction::begin_at(repo, at)?;
    refuse_pruned(repo, at)?;
    let old = repo.refs().get(&full)?;
    if old.is_some() && !force {
        return Err(RepoError::user(format!("branch {name} exists"), Remedy::NameOrForce));
    }
    if force && repo.refs().head()? == Head::Branch(name.to_owned()) {
        return Err(RepoError::user(format!("you are on branch {name}"), Remedy::Reset));
    }
    let _branches = lock_branches(repo)?;
    if old.is_some() {
        refuse_taken(repo, name)?;
    }
    hold(repo, &transaction, at)?;
    transaction.update_ref(&full, old, Some(*at), &repo.config.signature(), "branch: created")
}

/// Deletes a branch; one whose commits no other branch, tag or HEAD reaches only by force. Returns its last commit
/// (the reflog keeps its commits for a while).
///
/// # Errors
/// No such branch; HEAD is on it; unmerged; an I/O error.
pub fn delete_branch(repo: &Repo, name: &str, force: bool, progress: &dyn Progress) -> Result<Id> {
    // HEAD must not get onto it between the look and the deletion.
    let _lock = lock_work_tree(repo, progress)?;
    let missing = || RepoError::not_found(Missing::Branch, name);
    let full = RefName::branch(name).map_err(|_| missing())?;
    // A collector that shortens the log at the same time would lose the line of the deletion.
    let transaction = WriteTransaction::begin(repo)?;
    let id = repo.refs().get(&full)?.ok_or_else(missing)?;
    if repo.refs().head()? == Head::Branch(name.to_owned()) {
        return Err(RepoError::user(format!("you are on branch {name}"), "switch to another branch first"));
    }
    let _branches = lock_branches(repo)?;
    refuse_taken(repo, name)?;
    if !force && !reached_by_others(repo, &full, &id)? {
        return Err(RepoError::user(
            format!("branch {name} has commits that nothing else reaches"),
            Remedy::ForceDeletion,
        ));
    }
    transaction.update_ref(&full, Some(id), None, &repo.config.signature(), "branch: deleted")?;
    Ok(id)
}

fn reached_by_others(repo: &Repo, full: &str, id: &Id) -> Result<bool> {
    let starts: Vec<Id> = named_commits(repo, full)?.into_iter().map(|(_, at)| at).collect();
    is_in_history(repo, &starts, id)
}

/// Renames a branch; HEAD goes along.
///
/// # Errors
/// No such branch; a bad or taken name; an I/O error.
pub fn rename_branch(repo: &Repo, old: &str, new: &str, progress: &dyn Progress) -> Result<()> {
    let _lock = lock_work_tree(repo, progress)?;
    let who = repo.config.signature();
    let transaction = WriteTransaction::begin(repo)?;
    let head = repo.refs().head()?;
    let (from, to) = (Head::Branch(old.to_owned()), Head::Branch(new.to_owned()));
    if head == from {
        refuse_in_progress(repo)?;
    }
    let missing = || RepoError::not_found(Missing::Branch, old);
    let full = RefName::branch(old).map_err(|_| missing())?;
    let message = format!("branch: renamed {old} to {new}");
    refuse_taken(repo, old)?;
    match repo.refs().get(&full)? {
        Some(id) => {
            create_branch(repo, new, &id, false)?;
            if head == from {
                match transaction.move_head(&from, &to, &who, &message) {
                    // It has left the branch meanwhile: nothing to take along.
                    Err(RepoError::Conflict { .. }) => {}
                    moved => moved?,
                }
            }
            transaction.update_ref(&full, Some(id), None, &who, &message)
        }
        // The branch a fresh repository is on has a name before it has a commit.
        None if head == from => {
            // HEAD would get onto a branch whose files are not in the work tree.
            if repo.refs().get(&RefName::branch(new)?)?.is_some() {
                return Err(RepoError::user(format!("branch {new} exists"), "choose another name"));
            }
            transaction.move_head(&from, &to, &who, &message)
        }
        None => Err(missing()),
    }
}

/// Tags a commit: lightly, or with a message as an object of its own. Returns the tag ref's target.
///
/// # Errors
/// A bad name; it exists and `force` is not given; an I/O error.
pub fn create_tag(repo: &Repo, name: &str, at: &Id, message: Option<&str>, force: bool) -> Result<Id> {
    create_signed_tag(repo, name, at, message, force, &Signing::Configured)
}

/// As `create_tag`, signed or not. A signature wants a message: a tag without one is only a name.
pub fn create_signed_tag(
    repo: &Repo,
    name: &str,
    at: &Id,
    message: Option<&str>,
    force: bool,
    signing: &Signing,
) -> Result<Id> {
    let signer = signing.signer(repo, "tag")?;
    if signer.is_some() && message.is_none() {
        return Err(RepoError::usage("a signed tag has a message", "say what the tag is"));
    }
    let full = RefName::tag(name)?;
    let old = repo.refs().get(&full)?;
    if old.is_some() && !force {
        return Err(RepoError::user(format!("tag {name} exists"), Remedy::NameOrForce));
    }
    let who = repo.config.signature();
    let transaction = WriteTransaction::begin(repo)?;
    repo.odb().need(at, Missing::Commit)?;
    refuse_pruned(repo, at)?;
    let id = match message {
        None => *at,
        Some(text) => {
            let (name, tagger, message) = (name.to_owned(), who.clone(), text.to_owned());
            let mut tag = Tag { target: *at, name, tagger, message, signature: None };
            tag.signature = signer.map(|key| key.sign(&tag.signed_bytes())).transpose()?;
            add_tag(&transaction, &tag)?
        }
    };
    hold(repo, &transaction, at)?;
    transaction.update_ref(&full, old, Some(id), &who, &format!("tag: {name}"))?;
    Ok(id)
}

/// Stores an annotated tag that no ref points at yet: `move_ref` makes the ref, and until then a collector may
/// delete the tag once it is old enough. Returns its id.
///
/// # Errors
/// A bad name; no such commit; it was pruned; an I/O error.
pub fn store_tag(repo: &Repo, tag: &Tag) -> Result<Id> {
    check_ref_name(&tag.name)?;
    let transaction = WriteTransaction::begin(repo)?;
    repo.odb().need(&tag.target, Missing::Commit)?;
    refuse_pruned(repo, &tag.target)?;
    add_tag(&transaction, tag)
}

/// Deletes a tag; returns its target.
pub fn delete_tag(repo: &Repo, name: &str) -> Result<Id> {
    let missing = || RepoError::not_found(Missing::Tag, name);
    let full = RefName::tag(name).map_err(|_| missing())?;
    let transaction = WriteTransaction::begin(repo)?;
    let id = repo.refs().get(&full)?.ok_or_else(missing)?;
    transaction.update_ref(&full, Some(id), None, &repo.config.signature(), "tag: deleted")?;
    Ok(id)
}

/// Moves the branch HEAD is on (or a detached HEAD) to a commit. `hard` makes the work tree that version too,
/// losing changes; otherwise files are not touched.
///
/// # Errors
/// Absent objects; the branch moved meanwhile; an I/O error.
pub fn reset(repo: &Repo, commit: &Id, hard: bool, progress: &dyn Progress) -> Result<CheckedOut> {
    let lock = lock_work_tree(repo, progress)?;
    refuse_in_progress(repo)?;
    let transaction = WriteTransaction::begin_at(repo, commit)?;
    if repo.refs().head_commit()? != Some(*commit) {
        refuse_pruned(repo, commit)?;
    }
    // Before the checkout, which may take long: a commit made meanwhile must not be overridden.
    let head = repo.refs().head()?;
    let from = repo.refs().tip(&head)?;
    let done = if hard {
        let options = CheckoutOptions { force: true, ..CheckoutOptions::default() };
        checkout_locked(repo, &lock, commit, &head, &options, progress)?
    } else {
        CheckedOut::default()
    };
    let who = repo.config.signature();
    hold(repo, &transaction, commit)?;
    let message = format!("reset: moving to {}", commit.short());
    transaction.advance(&head, from, *commit, &who, &message)?;
    if head.detached().is_some() {
        set_work_tree_base(repo, Some(*commit));
    }
    Ok(done)
}

/// Moves the present branch forward to a commit that builds on it, and the work tree with it. `label` is what the
/// user called the commit.
///
/// # Errors
/// Histories that have parted (not supported yet); uncommitted changes in the way; an I/O error.
pub fn merge(repo: &Repo, commit: &Id, label: &str, progress: &dyn Progress) -> Result<Merged> {
    let lock = lock_work_tree(repo, progress)?;
    refuse_in_progress(repo)?;
    let transaction = WriteTransaction::begin_at(repo, commit)?;
    let head = repo.refs().head()?;
    let from = repo.refs().tip(&head)?;
    if let Some(from) = &from {
        if reaches(repo, from, commit)? {
            return Ok(Merged::UpToDate);
        }
        if !reaches(repo, commit, from)? {
            return Err(RepoError::user(
                format!("{label} and the present branch have parted; only fast-forward merges are supported"),
                Remedy::BranchOrCheckOut(label.to_owned()),
            ));
        }
    }
    refuse_pruned(repo, commit)?;
    if repo.work().is_some() {
        let options = CheckoutOptions::default();
        checkout_locked(repo, &lock, commit, &head, &options, progress)?;
    }
    let who = repo.config.signature();
    hold(repo, &transaction, commit)?;
    let message = format!("merge {label}: Fast-forward");
    transaction.advance(&head, from, *commit, &who, &message)?;
    // The branch has moved; what cannot be noted now is noted by the next commit.
    let _ = age_arrived(repo, &transaction, *commit);
    Ok(Merged::FastForward { from, to: *commit })
}
