//! The record of a rebase, cherry-pick or revert in progress: what it began from, what is left to do, what is done.
//! It is on the disk before anything else changes, and goes when all is done or undone.
//!
//! One file beside the work tree, `sequencer`, replaced by rename (docs/work-tree.md). Branch and HEAD stand where they
//! stood for as long as it is there, but for the last step: the next command can go on, or back.

use crate::{
    repo::Repo,
    sealed::{open, seal},
};
use mdl_objects::Id;
use mdl_store::{RepoError, Result, refs::Head};
use serde::{Deserialize, Serialize};
use std::{
    fs::{self, File},
    io::{self, Read, Write},
    path::PathBuf,
};

const FILE: &str = "sequencer";
const HEADER: &str = "mdl sequencer 1";
/// Bytes of a record at most: some hundred thousand versions.
const MAX: u64 = 64 << 20;

/// What is going on.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Operation {
    /// Versions of this side are made anew on top of others.
    Rebase,
    /// The changes of versions are made here too.
    CherryPick,
    /// The changes of versions are taken back.
    Revert,
    /// Versions become one: it is made, and files and branch are being moved to it.
    Merge,
}

impl Operation {
    /// Its name, which is that of the command.
    pub const fn name(self) -> &'static str {
        match self {
            Operation::Rebase => "rebase",
            Operation::CherryPick => "cherry-pick",
            Operation::Revert => "revert",
            Operation::Merge => "merge",
        }
    }
}

/// What becomes of files with tensors that changed on both sides.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum TensorRule {
    /// They are those of the version that is replayed: a snapshot stays what it was.
    Snapshot,
    /// Each element changes by as much as it changed in that version.
    Update,
    /// Nothing that both sides changed: the bytes are those of a version, or nothing is done.
    Exact,
}

/// Why a file cannot be chosen by itself.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Reason {
    /// Both sides changed it, and it has no tensors.
    BothChanged,
    /// One side deleted what the other changed.
    Deleted,
    /// The two sides have other tensors, dtypes or shapes.
    Shapes,
    /// Elements that are no floating-point numbers changed on both sides.
    NotFloats,
    /// One side has a directory where the other has a file.
    Names,
}

impl Reason {
    /// In words.
    pub const fn text(self) -> &'static str {
        match self {
            Reason::BothChanged => "both sides changed it",
            Reason::Deleted => "one side deleted it, the other changed it",
            Reason::Shapes => "the two sides have different tensors",
            Reason::NotFloats => "both sides changed tensors that are no floating-point numbers",
            Reason::Names => "one side has a directory where the other has a file",
        }
    }

    /// For programs.
    pub const fn name(self) -> &'static str {
        match self {
            Reason::BothChanged => "both-changed",
            Reason::Deleted => "deleted",
            Reason::Shapes => "shapes",
            Reason::NotFloats => "not-floats",
            Reason::Names => "names",
        }
    }
}

/// A file that the user has to decide on.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct FileConflict {
    /// Path in the tree.
    pub path: String,
    /// Why.
    pub reason: Reason,
    /// Names of the tensors that it is about, if it is about some.
    pub tensors: Vec<String>,
}

/// A version that was replayed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ReplayedVersion {
    /// What it was.
    pub from: Id,
    /// What it became; none where its changes were there already, or it was skipped.
    pub to: Option<Id>,
}

/// A version whose replay waits for the user.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct StoppedVersion {
    /// The version.
    pub version: Id,
    /// A version of all that could be chosen, with the files that could not as they are on this side. It is on no
    /// branch; its files are in the work tree.
    pub partial: Id,
    /// What is to be decided.
    pub conflicts: Vec<FileConflict>,
}

/// How far it is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Phase {
    /// Versions are being made, or one waits for the user.
    Replaying,
    /// All versions are made: files and branch are being moved to the last one.
    Finishing,
    /// Everything is being put back.
    Aborting,
}

/// An operation in progress.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct InProgress {
    /// What is going on.
    pub operation: Operation,
    /// The branch that it began on; none: HEAD was detached.
    pub branch: Option<String>,
    /// HEAD's commit when it began.
    pub original: Id,
    /// Of a rebase: what the versions are put on.
    pub onto: Option<Id>,
    /// What becomes of tensors that both sides changed.
    pub rule: TensorRule,
    /// Of a merge that is picked or reverted: the parent, from 1, that the change is told from.
    pub mainline: Option<u64>,
    /// Whether messages are to say where a version was picked from.
    pub cite: bool,
    /// Globs of files that stay as they are on the side that is built upon.
    pub ours: Vec<String>,
    /// Globs of files that are taken as they are in the version that is replayed.
    pub theirs: Vec<String>,
    /// Whether the work tree had none of the version's files, as where versions are committed from memory: none are put
    /// there.
    pub without_files: bool,
    /// Versions still to be replayed, the next one first.
    pub todo: Vec<Id>,
    /// Versions that were.
    pub done: Vec<ReplayedVersion>,
    /// The last version that was made.
    pub now: Id,
    /// The version that the files of the work tree are of.
    pub files_of: Id,
    /// The version whose files are being put there.
    pub placing: Option<Id>,
    /// How far it is.
    pub phase: Phase,
    /// The version that waits for the user.
    pub stopped: Option<StoppedVersion>,
}

impl InProgress {
    /// Where HEAD was when it began.
    pub fn head(&self) -> Head {
        self.branch.clone().map_or(Head::Detached(self.original), Head::Branch)
    }

    /// Whether the files of the work tree may be other than they were.
    pub(crate) fn touches_files(&self) -> bool {
        self.placing.is_some() || self.files_of != self.original || self.phase != Phase::Replaying
    }

    /// Makes the record durable.
    pub(crate) fn write(&self, repo: &Repo) -> Result<()> {
        let path = place(repo)?;
        let bytes = seal(HEADER, self)?;
        if bytes.len() as u64 > MAX {
            return Err(RepoError::user("there are too many versions to replay at once", "name fewer"));
        }
        let new = path.with_extension("new");
        let written = File::create(&new).and_then(|mut file| {
            file.write_all(&bytes)?;
            file.sync_all()
        });
        let renamed = written.and_then(|()| fs::rename(&new, &path)).and_then(|()| sync_dir(&path));
        renamed.map_err(RepoError::io(format!("cannot write {}", path.display())))
    }

    /// Removes the record: the operation is over.
    pub(crate) fn remove(repo: &Repo) -> Result<()> {
        let path = place(repo)?;
        match fs::remove_file(&path) {
            Err(e) if e.kind() == io::ErrorKind::NotFound => Ok(()),
            done => {
                done.and_then(|()| sync_dir(&path)).map_err(RepoError::io(format!("cannot remove {}", path.display())))
            }
        }
    }
}

fn place(repo: &Repo) -> Result<PathBuf> {
    repo.need_work()?;
    let none = || RepoError::user("the repository has no directory of its own", "work in one that is on a disk");
    Ok(repo.dir().ok_or_else(none)?.join(FILE))
}

fn sync_dir(path: &std::path::Path) -> io::Result<()> {
    path.parent().map_or(Ok(()), |dir| File::open(dir)?.sync_all())
}

/// The operation in progress in this work tree, if there is one.
///
/// # Errors
/// `RecordUnreadable`: there is a record, and it makes no sense. An I/O error.
pub fn in_progress(repo: &Repo) -> Result<Option<InProgress>> {
    let Some(path) = repo.dir().filter(|_| repo.work().is_some()).map(|dir| dir.join(FILE)) else {
        return Ok(None);
    };
    let file = match File::open(&path) {
        Err(e) if e.kind() == io::ErrorKind::NotFound => return Ok(None),
        opened => opened.map_err(RepoError::io(format!("cannot open {}", path.display())))?,
    };
    let mut bytes = Vec::new();
    file.take(MAX + 1).read_to_end(&mut bytes).map_err(RepoError::io(format!("cannot read {}", path.display())))?;
    let unreadable = |reason: String| RepoError::RecordUnreadable { reason };
    if bytes.len() as u64 > MAX {
        return Err(unreadable("it is longer than any".to_owned()));
    }
    let record: InProgress = match open(HEADER, FILE, &bytes) {
        Err(RepoError::Corrupt { reason, .. }) => return Err(unreadable(reason)),
        Err(RepoError::User { .. }) => return Err(unreadable("another version of mdl wrote it".to_owned())),
        read => read?,
    };
    match &record.branch {
        Some(name) if mdl_store::refs::check_ref_name(name).is_err() => {
            Err(unreadable("its branch has no valid name".to_owned()))
        }
        _ => Ok(Some(record)),
    }
}

/// Refuses what would move HEAD, its branch or the files of the work tree away under an operation in progress.
///
/// # Errors
/// `InProgress`; as `in_progress`.
pub fn refuse_in_progress(repo: &Repo) -> Result<()> {
    match in_progress(repo)? {
        None => Ok(()),
        Some(record) => Err(RepoError::InProgress { operation: record.operation.name() }),
    }
}
