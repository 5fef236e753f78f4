//! Moves files and branch to a version that a merge made, so that a cut can be gone on from or taken back.

use crate::{
    in_progress::{InProgress, Operation, TensorRule},
    repo::Repo,
    sequencer::{Outcome, ReplayDone, ReplayOptions, abort::put_back, begin, finish::finish, hold::hold_version},
    work_tree::WorkTreeLock,
};
use mdl_objects::Id;
use mdl_store::{Progress, RepoError, Result, transaction::WriteTransaction};

/// Looks whether a merge may begin here. Nothing is written yet.
///
/// # Errors
/// A bare repository; uncommitted changes; an operation in progress.
pub(crate) fn begin_merge(repo: &Repo, progress: &dyn Progress) -> Result<InProgress> {
    begin(repo, Operation::Merge, &ReplayOptions::new(TensorRule::Snapshot), progress)
}

/// Moves all to the version that was made, which `transaction` keeps from collectors until a ref does.
///
/// # Errors
/// `Conflict` where HEAD or the branch was moved meanwhile; files in the way; an I/O error. All is as it was then, or
/// the record is there.
pub(crate) fn finish_merge(
    repo: &Repo,
    lock: &WorkTreeLock,
    mut record: InProgress,
    (version, transaction): (Id, WriteTransaction<'_>),
    progress: &dyn Progress,
) -> Result<ReplayDone> {
    record.now = version;
    record.write(repo)?;
    let held = hold_version(repo, &transaction, &record, &version);
    drop(transaction);
    match held.and_then(|()| finish(repo, lock, &mut record, progress)) {
        Ok(Outcome::Done(done)) => Ok(done),
        Ok(_) => Err(RepoError::NotInProgress { operation: Operation::Merge.name() }),
        Err(failed) => {
            // What cannot be put back now can be later: the record is there.
            let _ = put_back(repo, lock, record, progress);
            Err(failed)
        }
    }
}
