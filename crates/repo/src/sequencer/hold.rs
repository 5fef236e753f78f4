//! The ref that keeps versions which are on no branch yet from collectors: one for each work tree.

use crate::{in_progress::InProgress, repo::Repo};
use mdl_objects::Id;
use mdl_store::{RepoError, Result, refs::RefName, transaction::WriteTransaction};
use std::os::unix::ffi::OsStrExt;

/// Digits of its name that tell work trees of one storage apart.
const DIGITS: usize = 16;

fn name(repo: &Repo) -> Result<RefName> {
    let dir = repo.dir().map(|dir| blake3::hash(dir.as_os_str().as_bytes()).to_hex());
    let name = dir.as_ref().and_then(|hex| hex.get(..DIGITS)).unwrap_or("work-tree");
    RefName::parse(&format!("refs/sequencer/{name}"))
}

/// Has the ref point at a version, wherever it stood.
pub(super) fn hold_version(
    repo: &Repo,
    transaction: &WriteTransaction<'_>,
    record: &InProgress,
    version: &Id,
) -> Result<()> {
    let name = name(repo)?;
    let message = format!("{}: {}", record.operation.name(), version.short());
    loop {
        let expected = repo.refs().get(&name)?;
        if expected == Some(*version) {
            return Ok(());
        }
        match transaction.update_ref(&name, expected, Some(*version), &repo.config.signature(), &message) {
            Err(RepoError::Conflict { .. }) => {}
            done => return done,
        }
    }
}

/// Deletes the ref: a branch has the versions, or they are not wanted.
pub(super) fn release(repo: &Repo, message: &str) -> Result<()> {
    let name = name(repo)?;
    let transaction = WriteTransaction::begin(repo)?;
    match repo.refs().get(&name)? {
        None => Ok(()),
        found => transaction.update_ref(&name, found, None, &repo.config.signature(), message),
    }
}
