//! Goes on with an operation that was cut off, or that waited for the user.

use crate::{
    checkout::{matcher, restore},
    commit::{Content, NewFile},
    history::Change,
    in_progress::{FileConflict, InProgress, Operation, Phase, ReplayedVersion, StoppedVersion, in_progress},
    pruned::files,
    repo::Repo,
    sequencer::{
        Outcome, advance,
        hold::hold_version,
        place,
        step::{MadeFile, Replay, as_made, is_made_of, write},
        stop_of,
    },
    work_tree::{lock_work_tree, set_work_tree_base, status},
};
use globset::GlobSet;
use mdl_objects::Entry;
use mdl_store::{Progress, RepoError, Result};
use std::{
    collections::{BTreeMap, HashMap},
    fs,
    os::unix::fs::PermissionsExt,
};

/// How to go on.
#[derive(Clone, Debug, Default)]
pub struct GoOn {
    /// Globs of files in conflict that stay as they are on the side that is built upon.
    pub ours: Vec<String>,
    /// Globs of files in conflict that are taken as they are in the version that is replayed.
    pub theirs: Vec<String>,
    /// Leave the version out that waits for the user.
    pub skip: bool,
}

/// Goes on with the operation in progress.
///
/// # Errors
/// `NotInProgress`: there is none of this kind. It is being taken back. As of the operation: what is done stays done,
/// and it can be called again.
pub fn go_on_with(repo: &Repo, operation: Operation, how: &GoOn, progress: &dyn Progress) -> Result<Outcome> {
    let lock = lock_work_tree(repo, progress)?;
    let mut record = record_of(repo, operation)?;
    if record.phase == Phase::Aborting {
        let message = format!("the {} is being taken back", operation.name());
        return Err(RepoError::user(message, "take it back to the end"));
    }
    for (list, more) in [(&mut record.ours, &how.ours), (&mut record.theirs, &how.theirs)] {
        matcher(more)?;
        list.extend(more.iter().filter(|glob| !list.contains(glob)).cloned().collect::<Vec<_>>());
    }
    // The note may be of a step that was cut off; the record is not.
    set_work_tree_base(repo, Some(record.files_of));
    let was_placed = record.placing.is_none();
    match record.stopped.clone() {
        None if how.skip => {
            let message = format!("the {} waits for nothing", operation.name());
            return Err(RepoError::user(message, "go on with it"));
        }
        Some(stopped) if how.skip => {
            let head = record.head();
            place(repo, &lock, &mut record, &head, progress)?;
            restore(repo, &lock, &stopped.partial, &head, &[], progress)?;
            record.done.push(ReplayedVersion { from: stopped.version, to: None });
            record.stopped = None;
        }
        // What is to be decided has not been shown yet.
        Some(stopped) if was_placed => {
            if let Some(waiting) = decide(repo, &mut record, &stopped, progress)? {
                return Ok(Outcome::Stopped(stop_of(&record, &stopped, waiting)));
            }
        }
        _ => {}
    }
    record.write(repo)?;
    advance(repo, &lock, &mut record, progress)
}

/// The record of the operation in progress, if it is of this kind.
pub(super) fn record_of(repo: &Repo, operation: Operation) -> Result<InProgress> {
    let none = RepoError::NotInProgress { operation: operation.name() };
    match in_progress(repo)? {
        None => Err(none),
        Some(record) if record.operation == operation => Ok(record),
        Some(record) => Err(RepoError::InProgress { operation: record.operation.name() }),
    }
}

/// Makes the version that waited of what could be chosen and what the user decided. Returns what is still open.
fn decide(
    repo: &Repo,
    record: &mut InProgress,
    stopped: &StoppedVersion,
    progress: &dyn Progress,
) -> Result<Option<Vec<FileConflict>>> {
    let changes: HashMap<String, Change> = status(repo, progress)?.into_iter().collect();
    let replayed = Replay::read(repo, record, &stopped.version)?;
    let partial = files(repo, &stopped.partial)?;
    let mut list = as_made(&partial);
    let conflicts: BTreeMap<&str, &FileConflict> = stopped.conflicts.iter().map(|c| (c.path.as_str(), c)).collect();
    for (rel, change) in &changes {
        match change {
            Change::Deleted => drop(list.remove(rel)),
            Change::Modified => drop(list.insert(rel.clone(), from_disk(repo, rel)?)),
            // Files of the user's that no version has are none of the operation's.
            Change::Added if conflicts.contains_key(rel.as_str()) => {
                list.insert(rel.clone(), from_disk(repo, rel)?);
            }
            Change::Added => {}
        }
    }
    let (ours, theirs) = (matcher(&record.ours)?, matcher(&record.theirs)?);
    let mut open = Vec::new();
    for (rel, conflict) in conflicts {
        let is_match = |globs: &Option<GlobSet>| globs.as_ref().is_some_and(|globs| globs.is_match(rel));
        // What the user has put in place is decided.
        if changes.contains_key(rel) {
        } else if is_match(&theirs) {
            put(&mut list, rel, replayed.sides.to.get(rel));
        } else if is_match(&ours) {
            put(&mut list, rel, replayed.sides.ours.get(rel));
        } else {
            open.push(conflict.clone());
        }
    }
    if !open.is_empty() {
        return Ok(Some(open));
    }
    let made = match is_made_of(&list, &replayed.sides.ours) {
        true => None,
        false => {
            let (made, transaction) = write(repo, record, &stopped.version, &replayed.commit, list, progress)?;
            hold_version(repo, &transaction, record, &made)?;
            Some(made)
        }
    };
    record.done.push(ReplayedVersion { from: stopped.version, to: made });
    record.now = made.unwrap_or(record.now);
    record.placing = Some(record.now);
    record.stopped = None;
    Ok(None)
}

fn put(list: &mut BTreeMap<String, MadeFile>, rel: &str, entry: Option<&Entry>) {
    match entry {
        Some(entry) => drop(list.insert(rel.to_owned(), MadeFile::Stored(entry.clone()))),
        None => drop(list.remove(rel)),
    }
}

fn from_disk(repo: &Repo, rel: &str) -> Result<MadeFile> {
    let path = repo.need_work()?.join(rel);
    let found = fs::metadata(&path).map_err(RepoError::io(format!("cannot read {}", path.display())))?;
    let executable = found.permissions().mode() & 0o100 != 0;
    Ok(MadeFile::New(NewFile { rel: rel.to_owned(), executable, content: Content::Disk(path) }))
}
