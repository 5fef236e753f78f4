//! Moves files and branch to the last version that was made, and ends the operation.

use crate::{
    aging::age_arrived,
    checkout::CheckedOut,
    in_progress::{InProgress, Operation, Phase},
    pruned::hold,
    repo::Repo,
    sequencer::{Outcome, ReplayDone, hold::release, place},
    work_tree::{WorkTreeLock, set_work_tree_base},
};
use mdl_store::{
    Progress, RepoError, Result,
    refs::{HEADS, Head},
    transaction::WriteTransaction,
};

/// Moves all to the last version.
///
/// # Errors
/// `Conflict` where HEAD or the branch was moved meanwhile; files in the way; an I/O error. It can be called again.
pub(super) fn finish(
    repo: &Repo,
    lock: &WorkTreeLock,
    record: &mut InProgress,
    progress: &dyn Progress,
) -> Result<Outcome> {
    let last = record.now;
    if last == record.original && !record.touches_files() {
        end(repo, record)?;
        return Ok(Outcome::UpToDate);
    }
    let has_moved = has_moved(repo, record)?;
    if record.phase != Phase::Finishing {
        record.phase = Phase::Finishing;
        record.placing = Some(last);
        record.write(repo)?;
    }
    let head = if has_moved { repo.refs().head()? } else { record.head() };
    let files = place(repo, lock, record, &head, progress)?;
    if !has_moved && last != record.original {
        let transaction = WriteTransaction::begin_at(repo, &last)?;
        hold(repo, &transaction, &last)?;
        let message = format!("{}: {}", record.operation.name(), summary(repo, record)?);
        transaction.advance(&head, Some(record.original), last, &repo.config.signature(), &message)?;
        // The branch has moved; what cannot be noted now is noted by the next commit.
        let _ = age_arrived(repo, &transaction, last);
    }
    set_work_tree_base(repo, Some(last));
    end(repo, record)?;
    Ok(Outcome::Done(done(record, files)))
}

fn done(record: &InProgress, files: CheckedOut) -> ReplayDone {
    ReplayDone {
        operation: record.operation,
        from: record.original,
        to: record.now,
        replayed: record.done.clone(),
        files,
    }
}

fn summary(repo: &Repo, record: &InProgress) -> Result<String> {
    if record.operation == Operation::Merge {
        let message = repo.odb().commit(&record.now)?.message;
        return Ok(message.lines().next().unwrap_or_default().to_owned());
    }
    let made = record.done.iter().filter(|v| v.to.is_some()).count();
    let versions = if made == 1 { "1 version".to_owned() } else { format!("{made} versions") };
    Ok(match record.onto {
        Some(onto) => format!("{versions} onto {}", onto.short()),
        None => versions,
    })
}

/// Whether the branch (or a detached HEAD) is at the last version already: a finish was cut off there.
///
/// # Errors
/// `Conflict`: it is neither there nor where the operation began.
pub(super) fn has_moved(repo: &Repo, record: &InProgress) -> Result<bool> {
    let (head, tip) = (repo.refs().head()?, repo.refs().head_commit()?);
    let same_place = head == record.head() || record.branch.is_none() && head == Head::Detached(record.now);
    match tip {
        Some(tip) if same_place && tip == record.original => Ok(false),
        Some(tip) if same_place && record.phase != Phase::Replaying && tip == record.now => Ok(true),
        found => {
            let name = record.branch.as_ref().map_or_else(|| "HEAD".to_owned(), |name| format!("{HEADS}{name}"));
            Err(RepoError::Conflict { name, expected: Some(record.original), found })
        }
    }
}

/// Ends the operation: nothing is in progress any more.
pub(super) fn end(repo: &Repo, record: &InProgress) -> Result<()> {
    release(repo, &format!("{}: over", record.operation.name()))?;
    InProgress::remove(repo)
}
