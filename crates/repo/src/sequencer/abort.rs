//! Takes an operation back: HEAD, branch and files are as they were before it, wherever it was cut off.

use crate::{
    checkout::{CheckedOut, restore},
    in_progress::{InProgress, Operation, Phase},
    pruned::files,
    repo::Repo,
    sequencer::{finish::end, hold::release, resume::record_of},
    work_tree::{WorkTreeLock, lock_work_tree},
};
use mdl_objects::Id;
use mdl_store::{Progress, RepoError, Result, object_db::Files, refs::Head, transaction::WriteTransaction};
use std::path::PathBuf;

/// What taking an operation back did.
#[derive(Clone, Debug)]
pub struct Aborted {
    /// The operation.
    pub operation: Operation,
    /// HEAD's commit, as before it.
    pub commit: Id,
    /// What happened to the files of the work tree.
    pub files: CheckedOut,
    /// New names of files that were in the way of others, and in no version of the operation.
    pub aside: Vec<PathBuf>,
    /// Where the branch is now, if others have moved it meanwhile: there it stays.
    pub moved_to: Option<Id>,
}

/// Takes the operation in progress back.
///
/// # Errors
/// `NotInProgress`: there is none of this kind. Absent or damaged objects; an I/O error: it can be called again.
pub fn abort(repo: &Repo, operation: Operation, progress: &dyn Progress) -> Result<Aborted> {
    let lock = lock_work_tree(repo, progress)?;
    let record = record_of(repo, operation)?;
    put_back(repo, &lock, record, progress)
}

/// Forgets the operation in progress, readable or not: branch, HEAD and files stay as they are.
///
/// # Errors
/// An I/O error.
pub fn forget(repo: &Repo, progress: &dyn Progress) -> Result<()> {
    let _lock = lock_work_tree(repo, progress)?;
    release(repo, "sequencer: forgotten")?;
    InProgress::remove(repo)
}

pub(super) fn put_back(
    repo: &Repo,
    lock: &WorkTreeLock,
    mut record: InProgress,
    progress: &dyn Progress,
) -> Result<Aborted> {
    let mut done = Aborted {
        operation: record.operation,
        commit: record.original,
        files: CheckedOut::default(),
        aside: Vec::new(),
        moved_to: None,
    };
    if record.touches_files() {
        if record.phase != Phase::Aborting {
            record.phase = Phase::Aborting;
            record.write(repo)?;
        }
        done.moved_to = head_back(repo, &record)?;
        if !record.without_files {
            let others = versions_on_disk(repo, &record)?;
            let head = repo.refs().head()?;
            (done.files, done.aside) = restore(repo, lock, &record.original, &head, &others, progress)?;
        }
    }
    end(repo, &record)?;
    Ok(done)
}

/// HEAD and its branch as they were. Returns where the branch stays because others moved it.
fn head_back(repo: &Repo, record: &InProgress) -> Result<Option<Id>> {
    let (head, message) = (record.head(), format!("{} (abort)", record.operation.name()));
    let who = repo.config.signature();
    let transaction = WriteTransaction::begin_at(repo, &record.original)?;
    if let Some(name) = &record.branch {
        let on_branch = Head::Branch(name.clone());
        match repo.refs().tip(&on_branch)? {
            // The finish was cut off once it had moved.
            Some(tip) if tip == record.now && tip != record.original => {
                transaction.advance(&on_branch, Some(tip), record.original, &who, &message)?;
            }
            _ => {}
        }
    }
    if repo.refs().head()? != head {
        transaction.set_head(&head, &who, &message)?;
    }
    let tip = repo.refs().head_commit()?;
    Ok(tip.filter(|tip| *tip != record.original))
}

/// The files of the versions whose files may be in the work tree.
fn versions_on_disk(repo: &Repo, record: &InProgress) -> Result<Vec<Files>> {
    let mut versions = vec![record.files_of, record.now];
    versions.extend(record.placing);
    versions.extend(record.stopped.as_ref().map(|s| s.partial));
    versions.retain(|id| *id != record.original);
    versions.sort_unstable();
    versions.dedup();
    let mut found = Vec::new();
    for id in versions {
        match files(repo, &id) {
            // Its files are then taken for the user's, and stay.
            Err(RepoError::NotFound { .. } | RepoError::Corrupt { .. } | RepoError::Pruned { .. }) => {}
            read => found.push(read?),
        }
    }
    Ok(found)
}
