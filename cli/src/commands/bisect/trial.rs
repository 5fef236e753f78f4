//! A trial: a version's files in a directory of their own, a command run in it, and what its end says.
//!
//! Directories of trials are `bisect-trials/` beside the repository. One run at a time holds the lock there, so that
//! what lies there unlocked is left over from a run that was killed.

use crate::commands::prelude::*;
use mdl_repo::{CheckoutOptions, ErrorKind, Verdict};
use std::{
    env,
    ffi::{OsStr, OsString},
    fs::{self, File, OpenOptions},
    io,
    os::{fd::AsFd, unix::process::ExitStatusExt},
    process::{Command, ExitStatus, Stdio},
};

/// The exit code that says "cannot be tested", and the last that says "bad", as git has them.
const CANNOT: i32 = 125;
const LAST_BAD: i32 = 127;

/// Where trials of a repository lie, while no other run is at it.
#[derive(Debug)]
pub struct Room {
    dir: PathBuf,
    _lock: File,
}

fn room_of(repo: &Repo) -> PathBuf {
    repo.dir().map_or_else(|| env::temp_dir().join("mdl-bisect-trials"), |dir| dir.join("bisect-trials"))
}

impl Room {
    /// Takes it, and removes what a killed run left there.
    pub fn take(repo: &Repo) -> Result<Room> {
        let dir = room_of(repo);
        let failed = || RepoError::io(format!("cannot make {}", dir.display()));
        fs::create_dir_all(&dir).map_err(failed())?;
        let lock = OpenOptions::new().create(true).truncate(false).write(true).open(dir.join("lock"));
        let lock = lock.map_err(failed())?;
        if lock.try_lock().is_err() {
            return Err(crate::commands::refused(
                "another `mdl bisect run` is under way in this repository",
                "wait for its end, or stop it",
            ));
        }
        remove_left(&dir);
        Ok(Room { dir, _lock: lock })
    }
}

fn remove_left(dir: &Path) {
    for entry in fs::read_dir(dir).into_iter().flatten().flatten().filter(|e| e.file_name() != "lock") {
        // What cannot be removed is no reason to refuse.
        let _ = fs::remove_dir_all(entry.path());
    }
}

/// Removes what runs have left, unless one is under way.
pub fn sweep(repo: &Repo) {
    if room_of(repo).is_dir()
        && let Ok(room) = Room::take(repo)
    {
        let _ = fs::remove_dir_all(&room.dir);
    }
}

/// What is run for each version.
#[derive(Debug)]
pub struct Trial<'a> {
    pub repo: &'a Repo,
    pub room: &'a Room,
    pub program: &'a OsStr,
    pub args: &'a [OsString],
    pub only: &'a [String],
    /// Whether standard output is ours to keep free.
    pub quiet_output: bool,
}

/// A program that is named by a relative path is meant from here, not from the trial's directory.
pub fn from_here(program: &OsStr) -> OsString {
    let path = Path::new(program);
    if path.components().count() < 2 || path.is_absolute() {
        return program.to_owned();
    }
    env::current_dir().map_or_else(|_| program.to_owned(), |here| here.join(path).into_os_string())
}

impl Trial<'_> {
    /// Tests a version.
    ///
    /// # Errors
    /// The command could not be started, ended with more than 127, or was killed; damaged objects; an I/O error.
    pub fn verdict(&self, commit: &Id, number: usize) -> Result<Verdict> {
        let dir = self.room.dir.join(format!("{}-{number}", commit.short()));
        let made = self.fill(commit, &dir);
        let verdict = match made {
            Ok(()) => self.run(commit, &dir).and_then(|status| self.said(commit, status)),
            // Its contents are gone, or it has none of the files: it cannot be tested.
            Err(RepoError::Pruned { .. } | RepoError::NotFound { what: Missing::File, .. }) => Ok(Verdict::Skip),
            Err(e) => Err(e.into()),
        };
        let _ = fs::remove_dir_all(&dir);
        verdict
    }

    fn fill(&self, commit: &Id, dir: &Path) -> mdl_repo::Result<()> {
        fs::create_dir_all(dir).map_err(RepoError::io(format!("cannot make {}", dir.display())))?;
        let options = CheckoutOptions { only: self.only.to_vec(), ..CheckoutOptions::default() };
        mdl_repo::checkout_to(self.repo, commit, dir, &options, &mdl_repo::Silent).map(drop)
    }

    fn run(&self, commit: &Id, dir: &Path) -> Result<ExitStatus> {
        let mut command = Command::new(from_here(self.program));
        command.args(self.args).current_dir(dir).stdin(Stdio::null());
        command.env("MDL_BISECT_DIR", dir).env("MDL_BISECT_COMMIT", commit.to_hex());
        command.env("MDL_BISECT_FROM", env::current_dir().unwrap_or_default());
        if self.quiet_output {
            let errors = io::stderr().as_fd().try_clone_to_owned();
            command.stdout(Stdio::from(errors.map_err(RepoError::io("cannot share standard error"))?));
        }
        command.status().map_err(|error| {
            let (code, kind) = match error.kind() {
                io::ErrorKind::NotFound => (127, ErrorKind::NotFound),
                _ => (126, ErrorKind::Io),
            };
            let message = format!("cannot start {}: {error}", self.program.display());
            let hint =
                "it is run in a directory of the version's files: name it by its whole path, or by $MDL_BISECT_FROM";
            CliError::Command { code, kind, message, hint: hint.into() }
        })
    }

    fn said(&self, commit: &Id, status: ExitStatus) -> Result<Verdict> {
        match status.code() {
            Some(0) => Ok(Verdict::Good),
            Some(CANNOT) => Ok(Verdict::Skip),
            Some(1..=LAST_BAD) => Ok(Verdict::Bad),
            code => {
                let how = match (code, status.signal()) {
                    (Some(code), _) => format!("ended with {code}"),
                    (None, Some(signal)) => format!("was killed by signal {signal}"),
                    (None, None) => "ended in a way that is not known".to_owned(),
                };
                Err(crate::commands::refused(
                    format!("the command {how} on version {}: the bisection stops", commit.short()),
                    "0 means good, 1 to 127 bad, 125 cannot be tested; what was found so far is kept: run it again",
                ))
            }
        }
    }
}
