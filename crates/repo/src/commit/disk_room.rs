//! Disk space: looked for before files are stored, and waited for where `commit.on_full` says so.

use crate::{
    commit::new_file::{Content, NewFile},
    config::OnFull,
    repo::Repo,
};
use mdl_objects::{Commit, Summary};
use mdl_store::{
    Progress, RepoError, Result,
    write::{FileState, recall},
};
use std::{
    thread,
    time::{Duration, Instant},
};

/// How often to look whether there is room again.
const LOOK: Duration = Duration::from_millis(500);
/// Storing is tried again if this much more room has appeared.
const MORE: u64 = 1 << 20;
/// Storing is tried again after this long in any case: a quota that was raised does not show as room.
const AGAIN: Duration = Duration::from_secs(300);
/// Least bytes of any version: directories, a ref, its log.
const LEAST: u64 = 64 << 10;

/// A first version takes at least one of so many bytes; of one that begins a delta chain nothing is known.
const FIRST: u64 = 8;
const SECOND: u64 = 64;
/// A version takes at least one of so many parts of what the one before took.
const LATER: u64 = 4;

/// Least bytes that so many new ones take, going by the version before. It errs on the low side: to be refused where
/// there is room is worse than to find out late that there is none.
fn least(new: u64, before: Option<(&Summary, bool)>) -> u64 {
    let share = |part: u64, of: u64| (u128::from(new) * u128::from(part) / u128::from(of.max(1))) as u64;
    let bytes = match before {
        None => new / FIRST,
        Some((_, true)) => new / SECOND,
        Some((summary, false)) => {
            share(summary.stored_bytes.min(summary.logical_bytes), summary.logical_bytes.saturating_mul(LATER))
        }
    };
    bytes.saturating_add(LEAST)
}

/// Runs `store`; where the disk is full, and the settings say so, waits for room and runs it again. No lock is held
/// meanwhile, so that a collection can make room.
pub(crate) fn with_room<T>(repo: &Repo, progress: &dyn Progress, mut store: impl FnMut() -> Result<T>) -> Result<T> {
    let waits = repo.waits_for_room && repo.config.on_full() == OnFull::Wait;
    let mut is_told = false;
    let mut before = None;
    loop {
        let full = match store() {
            // What is only kept to save time goes first.
            Err(full) if full.is_full() && drop_cache(repo) > 0 => {
                before = Some(full);
                continue;
            }
            // It was all stored before the disk was full, and the caller has not been told of it yet.
            Err(RepoError::NothingToCommit(why)) => {
                return Err(before.take().unwrap_or(RepoError::NothingToCommit(why)));
            }
            Err(full) if waits && full.is_full() => full,
            done => return done,
        };
        progress.end();
        if !std::mem::replace(&mut is_told, true) {
            progress.waiting("room on the disk (commit.on_full is \"wait\")");
        }
        wait_for_room(repo, full, progress)?;
    }
}

/// Empties the cache of decoded tensors, and returns what that frees.
fn drop_cache(repo: &Repo) -> u64 {
    repo.odb().cache().map_or(0, |cache| cache.retain(|_| false))
}

/// Bytes that may still be written to the disk; none where it does not tell.
pub fn room(repo: &Repo) -> Result<Option<u64>> {
    repo.storage().room()
}

/// Looks whether there is room for files that come after a version, as far as can be told.
///
/// # Errors
/// `NoRoom`; a file cannot be looked at; an I/O error.
pub(crate) fn need_room(repo: &Repo, files: &[NewFile], parent: Option<&Commit>) -> Result<()> {
    let Some(free) = repo.storage().room()? else {
        return Ok(());
    };
    let wanted = least(new_bytes(repo, files)?, parent.map(|c| (&c.summary, c.parents.is_empty())));
    match free < wanted {
        true => Err(RepoError::NoRoom { wanted, free }),
        false => Ok(()),
    }
}

/// Returns when there may be room, or with the error once the caller gives up waiting.
fn wait_for_room(repo: &Repo, full: RepoError, progress: &dyn Progress) -> Result<()> {
    let before = room(repo)?;
    let enough = match &full {
        RepoError::NoRoom { wanted, .. } => Some(*wanted),
        _ => before.map(|free| free.saturating_add(MORE)),
    };
    let begun = Instant::now();
    while begun.elapsed() < AGAIN {
        if progress.gives_up_waiting() {
            return Err(full);
        }
        thread::sleep(LOOK);
        if room(repo)?.zip(enough).is_some_and(|(free, enough)| free >= enough) {
            break;
        }
    }
    Ok(())
}

/// Bytes of those files that are not known to be stored.
fn new_bytes(repo: &Repo, files: &[NewFile]) -> Result<u64> {
    files.iter().try_fold(0_u64, |sum, file| {
        let is_new = match &file.content {
            Content::Stored(_) => false,
            Content::Disk(path) => recall(repo.odb(), path, &FileState::from_path(path)?).is_none(),
            Content::Memory(_) => true,
        };
        Ok(if is_new { sum.saturating_add(file.size()?) } else { sum })
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_refused_would_not_have_fitted() {
        let summary = |stored_bytes| Summary { logical_bytes: 1 << 30, stored_bytes, ..Summary::default() };
        let new = 1 << 30;
        assert_eq!(least(new, None), (1 << 27) + LEAST);
        assert_eq!(least(new, Some((&summary(1 << 30), true))), (1 << 24) + LEAST, "it may be a small difference");
        assert_eq!(least(new, Some((&summary(1 << 26), false))), (1 << 24) + LEAST);
        assert_eq!(least(new, Some((&summary(u64::MAX), false))), (1 << 28) + LEAST);
        assert_eq!(least(u64::MAX, Some((&Summary::default(), false))), LEAST);
    }
}
