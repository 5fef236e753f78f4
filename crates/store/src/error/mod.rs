//! Errors of a repository, sorted by what the user can do about them.

mod missing;
mod refusal;
mod remedy;

pub use missing::Missing;
pub use refusal::Refusal;
pub use remedy::Remedy;

use mdl_files::ScanError;
use mdl_objects::{Id, ObjectError};
use std::{io, path::PathBuf};
use thiserror::Error;

/// Result of this crate.
pub type Result<T, E = RepoError> = std::result::Result<T, E>;

/// What the user can do about an error (exit codes 1 to 6).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ErrorKind {
    /// The request is refused.
    User,
    /// The request makes no sense as it is written.
    Usage,
    /// A thing that was named does not exist.
    NotFound,
    /// Another writer moved first.
    Conflict,
    /// Stored data is damaged.
    Corrupt,
    /// An I/O error (such as a full or read-only disk).
    Io,
}

/// Errors of repositories.
#[derive(Debug, Error)]
pub enum RepoError {
    /// The request is refused; the hint says what to do.
    #[error("{message}")]
    User {
        /// What is wrong.
        message: String,
        /// What the user may do.
        hint: Remedy,
    },
    /// A version would be what the branch holds already, or have no files.
    #[error("nothing to commit: {}", .0.text())]
    NothingToCommit(Unchanged),
    /// The request makes no sense as it is written; the hint says how it is written.
    #[error("{message}")]
    Usage {
        /// What is wrong.
        message: String,
        /// How to write it.
        hint: Remedy,
    },
    /// Nothing has this name.
    #[error("{what} not found: {name}")]
    NotFound {
        /// The kind of thing that was looked for.
        what: Missing,
        /// Its name.
        name: String,
    },
    /// The version was pruned, and a collection has taken its contents.
    #[error("version {} was pruned on {} (kept were: {rules}), and its contents are gone", commit.short(), day(*time_ms))]
    Pruned {
        /// The version.
        commit: Id,
        /// When: milliseconds since 1970.
        time_ms: i64,
        /// The rules none of which kept it, in words.
        rules: String,
    },
    /// The caller cancelled it.
    #[error("{what} was stopped; nothing is lost")]
    Stopped {
        /// What was going on, such as "the commit".
        what: &'static str,
    },
    /// A ref is not where it was expected.
    #[error("{name} moved meanwhile (expected {}, found {})", show(.expected), show(.found))]
    Conflict {
        /// The ref.
        name: String,
        /// What the caller had seen.
        expected: Option<Id>,
        /// What is there.
        found: Option<Id>,
    },
    /// Another writer has moved the branch that this work tree is on.
    #[error("{}", of_another(name, .base, .tip))]
    FilesOfAnother {
        /// The branch, by its short name; HEAD if it is on none.
        name: String,
        /// The version that the files were taken from or committed as.
        base: Option<Id>,
        /// The branch's present commit.
        tip: Option<Id>,
    },
    /// A rebase, cherry-pick or revert has begun in this work tree, and is neither over nor taken back.
    #[error("a {operation} is in progress")]
    InProgress {
        /// What is going on, by the name of its command.
        operation: &'static str,
    },
    /// There is nothing of the kind to go on with or to take back.
    #[error("no {operation} is in progress")]
    NotInProgress {
        /// What was asked about, by the name of its command.
        operation: &'static str,
    },
    /// The record of an operation in progress makes no sense.
    #[error("the record of the operation in progress cannot be read: {reason}")]
    RecordUnreadable {
        /// What is wrong with it.
        reason: String,
    },
    /// The histories of two sides have parted: neither can move forward to the other.
    #[error("{label} and the present branch have parted (new versions here: {here}, there: {there})")]
    Parted {
        /// What the caller called the other side.
        label: String,
        /// Versions that only this side has.
        here: u64,
        /// Versions that only the other side has.
        there: u64,
    },
    /// Files changed on both sides, and no option said which side counts.
    #[error("these files changed on both sides and are to be decided on; nothing was done:{}", some_of(files))]
    Undecided {
        /// Their names in the version.
        files: Vec<String>,
    },
    /// A change cannot be made or taken back to the byte: these were changed by others too.
    #[error("these changed on both sides; nothing was done:{}", some_of(names))]
    NotExact {
        /// Files, and tensors as `FILE: TENSOR`.
        names: Vec<String>,
    },
    /// A rule of whoever keeps the repository is against a move of a ref.
    #[error("{name} is protected: {refusal}")]
    Protected {
        /// The ref, such as "branch main".
        name: String,
        /// What the rule is against.
        refusal: Box<Refusal>,
    },
    /// A branch would leave commits behind.
    #[error("{name} would not move forward: {} is not in the history of {}", old.short(), new.short())]
    NotForward {
        /// The branch.
        name: String,
        /// The branch's present commit.
        old: Id,
        /// The commit it was to move to.
        new: Id,
    },
    /// A collector may be about to delete objects that the caller relied on: they have to be looked up again.
    #[error("a collection went on meanwhile; nothing was committed")]
    Overtaken,
    /// The file of a lock was deleted while the lock was held: other processes were not kept out.
    #[error("the lock {} was deleted while it was held; nothing was changed", path.display())]
    LockLost {
        /// The file.
        path: PathBuf,
    },
    /// A file was written to while it was read.
    #[error("{file} changed while it was read")]
    FileChanged {
        /// Its name in the version.
        file: String,
    },
    /// Files would be replaced or removed whose bytes are in no version.
    #[error("these files have changes that are not committed:{}", some_of(files))]
    FilesInTheWay {
        /// Their names in the version.
        files: Vec<String>,
    },
    /// A file was written to between the look at it and its turn to be replaced or removed.
    #[error("{file} was written to meanwhile and is left as it is{}; HEAD has not moved", put_aside(aside))]
    FileKept {
        /// Its name in the version.
        file: String,
        /// Its present name, if another file took its own.
        aside: Option<PathBuf>,
    },
    /// Two files of a version would be one on this file system.
    #[error("{one} and {other} are one name on this file system, which does not tell upper from lower case")]
    OneName {
        /// A name in the version.
        one: String,
        /// Another.
        other: String,
    },
    /// Stored bytes are not what was written.
    #[error("{what} is damaged: {reason}")]
    Corrupt {
        /// The object, pack or file.
        what: String,
        /// What is wrong with it.
        reason: String,
    },
    /// A checkpoint file is damaged.
    #[error("{}: {source}", path.display())]
    Scan {
        /// The file.
        path: PathBuf,
        /// What is wrong.
        source: ScanError,
    },
    /// A version holds a file that must not get onto a disk: an older program, or another one, made it.
    #[error("{path:?} is not written to a disk: {reason}")]
    UnsafePath {
        /// Its path in the version.
        path: String,
        /// Why not.
        reason: ObjectError,
    },
    /// A new version or tag has a field longer than its limit.
    #[error("nothing was made: {0}")]
    TooLong(ObjectError),
    /// There is less room on the disk than a new version takes at least.
    #[error("the disk has room for {} more, and this would take at least {}", bytes(*free), bytes(*wanted))]
    NoRoom {
        /// Bytes that it would take at least.
        wanted: u64,
        /// Bytes that there is room for.
        free: u64,
    },
    /// An I/O error.
    #[error("{context}: {source}")]
    Io {
        /// What was being done.
        context: String,
        /// What the system said.
        source: io::Error,
    },
}

/// Why there is nothing to commit.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Unchanged {
    /// The files are what the branch holds.
    SameFiles,
    /// There are no files.
    NoFiles {
        /// Where they were looked for; none: they were to be given one by one.
        source: Option<PathBuf>,
    },
}

impl Unchanged {
    fn text(&self) -> String {
        match self {
            Unchanged::SameFiles => "the files are what the branch holds".to_owned(),
            Unchanged::NoFiles { source: None } => "no files were given".to_owned(),
            Unchanged::NoFiles { source: Some(path) } => format!("there are no files in {}", path.display()),
        }
    }
}

fn of_another(name: &str, base: &Option<Id>, tip: &Option<Id>) -> String {
    let tip = tip.map(|id| id.short());
    match (base.map(|id| id.short()), tip) {
        (Some(base), Some(tip)) => {
            format!("{name} was moved to {tip} elsewhere; the files here are of {base}")
        }
        (Some(base), None) => format!("{name} was deleted elsewhere; the files here are of {base}"),
        (None, tip) => {
            let tip = tip.unwrap_or_else(|| "nothing".to_owned());
            format!("{name} is at {tip}, and the files here were not taken from it")
        }
    }
}

fn some_of(files: &[String]) -> String {
    let listed = files.iter().take(10).map(|file| format!("\n  {file}"));
    let more = files.len().checked_sub(11).map(|n| format!("\n  and {} more", n + 1));
    listed.chain(more).collect()
}

fn put_aside(aside: &Option<PathBuf>) -> String {
    let place = aside.as_ref().map(|path| format!(", now as {}", path.display()));
    place.unwrap_or_default()
}

fn show(id: &Option<Id>) -> String {
    id.map_or_else(|| "nothing".to_owned(), |id| id.short())
}

/// `2026-11-21 12:30 UTC`
fn day(time_ms: i64) -> String {
    let time = jiff::Timestamp::from_millisecond(time_ms);
    time.map_or_else(|_| format!("{time_ms} ms"), |t| t.strftime("%Y-%m-%d %H:%M UTC").to_string())
}

impl RepoError {
    /// Whether the disk has no room for what was to be written.
    pub fn is_full(&self) -> bool {
        match self {
            RepoError::NoRoom { .. } => true,
            RepoError::Io { source, .. } => is_full(source),
            _ => false,
        }
    }

    /// The request is refused.
    pub fn user(message: impl Into<String>, hint: impl Into<Remedy>) -> RepoError {
        RepoError::User { message: message.into(), hint: hint.into() }
    }

    /// The request makes no sense as it is written.
    pub fn usage(message: impl Into<String>, hint: impl Into<Remedy>) -> RepoError {
        RepoError::Usage { message: message.into(), hint: hint.into() }
    }

    /// Nothing has this name.
    pub fn not_found(what: impl Into<Missing>, name: impl ToString) -> RepoError {
        RepoError::NotFound { what: what.into(), name: name.to_string() }
    }

    /// Stored bytes are damaged.
    pub fn corrupt(what: impl ToString, reason: impl ToString) -> RepoError {
        RepoError::Corrupt { what: what.to_string(), reason: reason.to_string() }
    }

    /// Turns a system error into one that says what was being done.
    pub fn io(context: impl ToString) -> impl FnOnce(io::Error) -> RepoError {
        let context = context.to_string();
        move |source| RepoError::Io { context, source }
    }

    /// The same error for another thread or caller that it concerns.
    pub(crate) fn repeat(&self) -> RepoError {
        match self {
            RepoError::NotFound { what, name } => RepoError::not_found(*what, name),
            RepoError::Pruned { commit, time_ms, rules } => {
                RepoError::Pruned { commit: *commit, time_ms: *time_ms, rules: rules.clone() }
            }
            RepoError::Stopped { what } => RepoError::Stopped { what },
            RepoError::Overtaken => RepoError::Overtaken,
            RepoError::Corrupt { what, reason } => RepoError::corrupt(what, reason),
            RepoError::Io { context, source } => {
                RepoError::Io { context: context.clone(), source: io::Error::new(source.kind(), source.to_string()) }
            }
            other => RepoError::user(other.to_string(), other.hint().unwrap_or_default()),
        }
    }

    /// What the user can do about it.
    pub fn kind(&self) -> ErrorKind {
        match self {
            RepoError::User { .. }
            | RepoError::NothingToCommit(_)
            | RepoError::Stopped { .. }
            | RepoError::FileChanged { .. }
            | RepoError::FilesInTheWay { .. }
            | RepoError::OneName { .. }
            | RepoError::UnsafePath { .. }
            | RepoError::InProgress { .. }
            | RepoError::NotInProgress { .. }
            | RepoError::Protected { .. }
            | RepoError::TooLong(_) => ErrorKind::User,
            RepoError::Usage { .. } => ErrorKind::Usage,
            RepoError::NotFound { .. } | RepoError::Pruned { .. } => ErrorKind::NotFound,
            RepoError::Conflict { .. }
            | RepoError::FilesOfAnother { .. }
            | RepoError::NotForward { .. }
            | RepoError::Parted { .. }
            | RepoError::NotExact { .. }
            | RepoError::Undecided { .. }
            | RepoError::LockLost { .. }
            | RepoError::FileKept { .. }
            | RepoError::Overtaken => ErrorKind::Conflict,
            RepoError::Corrupt { .. } | RepoError::RecordUnreadable { .. } => ErrorKind::Corrupt,
            RepoError::Scan { source: ScanError::Damaged { .. }, .. } => ErrorKind::User,
            RepoError::Scan { source: ScanError::Io(_), .. } => ErrorKind::Io,
            RepoError::NoRoom { .. } | RepoError::Io { .. } => ErrorKind::Io,
        }
    }

    /// A next step, if there is one to give, in words that fit every caller.
    pub fn hint(&self) -> Option<String> {
        let text = match self {
            RepoError::User { hint, .. } | RepoError::Usage { hint, .. } => hint.to_string(),
            RepoError::NothingToCommit(Unchanged::SameFiles) => {
                "a version of the same files has to be asked for".into()
            }
            RepoError::NothingToCommit(Unchanged::NoFiles { .. }) => "put checkpoints there first".into(),
            RepoError::NotFound { what: Missing::Bucket, .. } => "create the bucket first, or correct its name".into(),
            RepoError::Pruned { .. } => {
                "its message, step and metrics are kept; versions that are not pruned are whole".into()
            }
            RepoError::Protected { refusal, .. } => refusal.hint().into(),
            RepoError::NotForward { .. } => "get what is there first, or force the move".into(),
            RepoError::InProgress { .. } => "go on with it, or take it back, first".into(),
            RepoError::RecordUnreadable { .. } => {
                "have it forgotten: branch and HEAD are where they were, then check out what is wanted".into()
            }
            RepoError::Parted { .. } => "replay the versions here on top of the others, or merge the two".into(),
            RepoError::Undecided { .. } => "say for each of them which side counts".into(),
            RepoError::NotExact { .. } => "make the change as arithmetic on the weights instead".into(),
            RepoError::FilesOfAnother { base: Some(base), tip: None, .. } => {
                format!("go on from {} on a new branch", base.short())
            }
            RepoError::FilesOfAnother { .. } => "check out what is there, or reset to it and commit on top".into(),
            RepoError::UnsafePath { .. } => "the version's other files can be checked out by their names".into(),
            RepoError::Overtaken => "try again".into(),
            RepoError::LockLost { .. } => {
                "try again; a lock ends with the process that holds it, and its file is never to be deleted".into()
            }
            RepoError::FileChanged { .. } => {
                "commit once the writer is done, or write to a temporary name and rename".into()
            }
            RepoError::FilesInTheWay { .. } => "commit them first".into(),
            RepoError::OneName { .. } => "check out one of the two alone, or on another file system".into(),
            RepoError::FileKept { .. } => "commit this file or move it away, then try again".into(),
            RepoError::Conflict { .. } => "look at what moved it, then try again".into(),
            RepoError::Corrupt { .. } => "a check says which commits, files and tensors are affected".into(),
            RepoError::Scan { source: ScanError::Damaged { .. }, .. } => {
                "if the file is still being written, wait; damaged files can be stored as plain bytes".into()
            }
            full if full.is_full() => "nothing was lost: free some space, then try again".into(),
            _ => String::new(),
        };
        Some(text).filter(|text| !text.is_empty())
    }
}

/// `3 MiB`
fn bytes(n: u64) -> String {
    const UNITS: [&str; 5] = ["bytes", "KiB", "MiB", "GiB", "TiB"];
    let fits = |unit: &usize| n >> (10 * unit) < 10_000;
    let unit = (0..UNITS.len()).find(fits).unwrap_or(UNITS.len() - 1);
    format!("{} {}", n >> (10 * unit), UNITS[unit])
}

/// Whether there is no more room, on the disk or for this user.
pub fn is_full(e: &io::Error) -> bool {
    matches!(e.kind(), io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded)
}

/// Ties a parser's or decoder's error to the object.
pub fn bad_object<E: ToString>(id: &Id) -> impl FnOnce(E) -> RepoError + use<E> {
    let what = format!("object {}", id.short());
    move |e| RepoError::corrupt(what, e)
}
