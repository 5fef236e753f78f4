//! Replays one version: its change is made on top of another, and becomes a version there, on no ref yet.

use crate::{
    checkout::matcher,
    commit::{CommitRequest, Content, NewFile, OWN, Target, stored_file, write_commit_to},
    in_progress::{FileConflict, InProgress, Operation, Reason, TensorRule},
    pruned::{Standing, files, files_beside, standing},
    repo::Repo,
    sequencer::{
        combine::{Combined, combine},
        three_way::{Choices, FileChoice, Preferences, Sides, choose},
    },
};
use mdl_lossy::Scratch;
use mdl_objects::{Commit, Entry, Id, Kind, Mode};
use mdl_store::{Progress, RepoError, Result, object_db::Files, refs::Head, transaction::WriteTransaction};
use std::{collections::BTreeMap, path::Path};

/// What became of a version.
#[derive(Debug)]
pub(super) enum Step<'r> {
    /// It is there, and the transaction keeps collectors from it.
    Made(Id, WriteTransaction<'r>),
    /// Its changes were there already.
    Dropped,
    /// Some files are to be decided on. The version has the others.
    Stopped(Id, WriteTransaction<'r>, Vec<FileConflict>),
}

/// A version that is replayed, with what it is compared with.
pub(super) struct Replay {
    pub commit: Commit,
    pub sides: Sides,
}

impl Replay {
    /// Reads what the next version changed.
    pub fn read(repo: &Repo, record: &InProgress, id: &Id) -> Result<Replay> {
        let commit = repo.odb().commit(id)?;
        let parent = parent_of(record, id, &commit)?;
        let (before, after) = match &parent {
            Some(parent) => files_beside(repo, parent, id)?,
            None => (Files::new(), files(repo, id)?),
        };
        let (from, to) = match record.operation {
            Operation::Revert => (after, before),
            Operation::Rebase | Operation::CherryPick | Operation::Merge => (before, after),
        };
        Ok(Replay { commit, sides: Sides { from, to, ours: files(repo, &record.now)? } })
    }
}

/// The version that a change is told from.
fn parent_of(record: &InProgress, id: &Id, commit: &Commit) -> Result<Option<Id>> {
    if record.operation == Operation::Rebase || commit.parents.len() < 2 {
        return Ok(commit.parents.first().copied());
    }
    let nth = record.mainline.and_then(|n| usize::try_from(n).ok()).and_then(|n| n.checked_sub(1));
    let none = || {
        let message = format!("{} has {} parents: it is not clear what it changed", id.short(), commit.parents.len());
        RepoError::user(message, "say which parent is the mainline")
    };
    nth.and_then(|n| commit.parents.get(n)).copied().map(Some).ok_or_else(none)
}

/// Replays the next version.
pub(super) fn replay<'r>(repo: &'r Repo, record: &InProgress, id: &Id, progress: &dyn Progress) -> Result<Step<'r>> {
    let replayed = Replay::read(repo, record, id)?;
    if record.operation != Operation::Revert && !record.cite && replayed.commit.parents == [record.now] {
        return Ok(Step::Made(*id, WriteTransaction::begin_at(repo, id)?));
    }
    let preferred = Preferences { ours: globs(&record.ours)?, theirs: globs(&record.theirs)? };
    let choices = choose(repo, &replayed.sides, record.rule, &preferred)?;
    let scratch = Scratch::new(repo)?;
    let (list, conflicts) = made_files(repo, record, &scratch, choices, progress)?;
    if record.rule == TensorRule::Exact && !conflicts.is_empty() {
        let name = |c: FileConflict| match c.tensors.is_empty() {
            true => vec![c.path],
            false => c.tensors.iter().map(|tensor| format!("{}: {tensor}", c.path)).collect(),
        };
        return Err(RepoError::NotExact { names: conflicts.into_iter().flat_map(name).collect() });
    }
    if !conflicts.is_empty() {
        let (partial, transaction) = write(repo, record, id, &replayed.commit, list, progress)?;
        return Ok(Step::Stopped(partial, transaction, conflicts));
    }
    let changes_something = !is_made_of(&as_made(&replayed.sides.to), &replayed.sides.from);
    if changes_something && is_made_of(&list, &replayed.sides.ours) {
        return Ok(Step::Dropped);
    }
    let is_same_tree = record.operation == Operation::Rebase && is_made_of(&list, &replayed.sides.to);
    if is_same_tree && standing(repo, id, &replayed.commit)? == Standing::Committed {
        return same_tree(repo, record, id, &replayed.commit);
    }
    let (new, transaction) = write(repo, record, id, &replayed.commit, list, progress)?;
    Ok(Step::Made(new, transaction))
}

/// A file of the new version.
#[derive(Debug)]
pub(super) enum MadeFile {
    Stored(Entry),
    New(NewFile),
}

impl MadeFile {
    fn is(&self, entry: &Entry) -> bool {
        matches!(self, MadeFile::Stored(e) if (e.mode, e.id, e.executable) == (entry.mode, entry.id, entry.executable))
    }
}

/// Files of a version, as files of a new one.
pub(super) fn as_made(files: &Files) -> BTreeMap<String, MadeFile> {
    files.iter().map(|(rel, entry)| (rel.clone(), MadeFile::Stored(entry.clone()))).collect()
}

/// Whether these files are those of a version.
pub(super) fn is_made_of(list: &MadeFiles, files: &Files) -> bool {
    files.len() == list.len() && files.iter().all(|(rel, e)| list.get(rel).is_some_and(|f| f.is(e)))
}

fn globs(patterns: &[String]) -> Result<Option<globset::GlobSet>> {
    matcher(patterns)
}

type MadeFiles = BTreeMap<String, MadeFile>;

fn made_files(
    repo: &Repo,
    record: &InProgress,
    scratch: &Scratch,
    choices: Choices,
    progress: &dyn Progress,
) -> Result<(MadeFiles, Vec<FileConflict>)> {
    let (mut list, mut conflicts) = (MadeFiles::new(), choices.conflicts);
    for (rel, choice) in choices.files {
        let made = match choice {
            FileChoice::Take(entry) => MadeFile::Stored(entry),
            FileChoice::Combine { ours, from, to } => {
                match combine(repo, scratch, &rel, [&ours, &from, &to], record.rule, progress)? {
                    Combined::Made { path, executable } => {
                        MadeFile::New(NewFile { rel: rel.clone(), executable, content: Content::Disk(path) })
                    }
                    Combined::Conflict(conflict) => {
                        conflicts.push(conflict);
                        MadeFile::Stored(ours)
                    }
                    Combined::NotExact(tensors) => {
                        let reason = Reason::BothChanged;
                        conflicts.push(FileConflict { path: rel.clone(), reason, tensors });
                        MadeFile::Stored(ours)
                    }
                }
            }
        };
        list.insert(rel, made);
    }
    conflicts.sort_by(|a, b| a.path.cmp(&b.path));
    Ok((list, conflicts))
}

/// The version with its tree, on top of another one.
fn same_tree<'r>(repo: &'r Repo, record: &InProgress, id: &Id, commit: &Commit) -> Result<Step<'r>> {
    let transaction = WriteTransaction::begin_at(repo, id)?;
    let made = Commit { parents: vec![record.now], meta: lasting_meta(commit), unknown: Vec::new(), ..commit.clone() };
    let new = transaction.add(Kind::Commit, &made.encode(), [*id, record.now])?;
    Ok(Step::Made(new, transaction))
}

/// Stores a version of these files with what the replayed one says of itself.
pub(super) fn write<'r>(
    repo: &'r Repo,
    record: &InProgress,
    id: &Id,
    commit: &Commit,
    files: MadeFiles,
    progress: &dyn Progress,
) -> Result<(Id, WriteTransaction<'r>)> {
    let request = described(record, id, commit, has_weights_of(commit, &files, repo)?);
    let list = files.into_iter().map(|(rel, file)| match file {
        MadeFile::New(file) => Ok(file),
        MadeFile::Stored(entry) => {
            let content = Content::Stored(stored_file(repo, &entry)?);
            Ok(NewFile { rel, executable: entry.executable, content })
        }
    });
    let list = list.collect::<Result<Vec<_>>>()?;
    let transaction = WriteTransaction::begin_at(repo, id)?;
    let target = Target { head: Head::Detached(record.now), tip: Some(record.now), parent: Some(record.now) };
    let written = write_commit_to(repo, &request, (Path::new(""), &list), None, (transaction, target), progress)?;
    Ok((written.id, written.transaction))
}

/// Whether all files with tensors are those of the replayed version: what was measured of it then holds.
fn has_weights_of(commit: &Commit, files: &MadeFiles, repo: &Repo) -> Result<bool> {
    let Ok(before) = repo.odb().files(&commit.tree) else { return Ok(false) };
    let tensors = |(_, entry): &(&String, &Entry)| entry.mode == Mode::Manifest;
    let wanted: Vec<(&String, &Entry)> = before.iter().filter(tensors).collect();
    let have = files.values().filter(|f| match f {
        MadeFile::Stored(entry) => entry.mode == Mode::Manifest,
        MadeFile::New(_) => true,
    });
    Ok(have.count() == wanted.len() && wanted.iter().all(|(rel, e)| files.get(*rel).is_some_and(|f| f.is(e))))
}

/// Metadata that is still true. What mdl notes of a merge, its recipe, speaks of parents that the new version does not
/// have.
fn lasting_meta(commit: &Commit) -> BTreeMap<String, String> {
    let mut meta = commit.meta.clone();
    if commit.parents.len() > 1 {
        meta.retain(|key, _| !key.starts_with(OWN));
    }
    meta
}

fn described(record: &InProgress, id: &Id, commit: &Commit, same_weights: bool) -> CommitRequest {
    let subject = commit.message.lines().next().unwrap_or_default();
    let reverted = CommitRequest {
        message: format!("Revert \"{subject}\"\n\nThis takes back version {id}.\n"),
        allow_empty: true,
        files: Some(Vec::new()),
        ..CommitRequest::default()
    };
    if record.operation == Operation::Revert {
        return reverted;
    }
    let mut message = commit.message.clone();
    if record.cite {
        message = format!("{}\n\n(picked from version {id})\n", message.trim_end());
    }
    CommitRequest {
        message,
        author: Some(commit.author.clone()),
        step: commit.step,
        epoch: commit.epoch,
        metrics: if same_weights { commit.metrics.clone() } else { BTreeMap::new() },
        meta: lasting_meta(commit),
        resumed_from: commit.resumed_from,
        ..reverted
    }
}
