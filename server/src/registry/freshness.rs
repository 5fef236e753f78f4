//! Checks whether an open repository is still current: the same directory, with the same settings.
//!
//! For a directory each access does a few `stat`s. A bucket's settings are read again once they are [`BUCKET_FRESH`]
//! old; while one request reads them, others go on with the old ones for as long again, and then read themselves.

use crate::{
    problem::{Problem, Result},
    request::stamp::Stamp,
};
use mdl_repo::Repo;
use std::{
    io,
    path::{Path, PathBuf},
    sync::LazyLock,
    time::{Duration, Instant},
};

/// How old cached settings of a bucket may be.
pub const BUCKET_FRESH: Duration = Duration::from_secs(5);

/// Identity of a repository's directory. Its inode alone may be reused; the file `format` is written once.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Identity {
    directory: Stamp,
    format: Option<Stamp>,
}

impl Identity {
    fn is_same(&self, other: &Identity) -> bool {
        self.directory.is_same_file(&other.directory) && self.format == other.format
    }
}

/// A repository's directory and settings in one state.
#[derive(Clone, Copy, Debug)]
pub(crate) struct State {
    identity: Option<Identity>,
    settings: [Option<Stamp>; 2],
}

impl State {
    /// Of the repository at a path; none: there is none.
    pub(super) fn from_path(path: &Path) -> Result<Option<State>> {
        Repo::directory(path).map_or(Ok(None), |directory| State::in_directory(&directory))
    }

    /// Of the repository whose own directory this is; none: it is gone.
    pub(super) fn in_directory(directory: &Path) -> Result<Option<State>> {
        let failed = |e: io::Error| Problem::internal(format!("cannot look at {}: {e}", directory.display()));
        let Some(found) = Stamp::from_path(directory).map_err(failed)? else {
            return Ok(None);
        };
        let format = Stamp::from_path(&directory.join("format")).map_err(failed)?;
        Ok(Some(State {
            identity: Some(Identity { directory: found, format }),
            settings: [Stamp::from_path(&directory.join("config")).map_err(failed)?, user_settings()],
        }))
    }

    /// Whether the repository whose own directory this is still is in this state.
    pub(super) fn holds_in(&self, directory: &Path) -> bool {
        let stamps = || Some((Stamp::from_path(directory).ok()??, Stamp::from_path(&directory.join("config")).ok()?));
        let (Some(known), Some((found, config))) = (self.identity, stamps()) else {
            return false;
        };
        // Where nothing in the directory got another name, `format` is the file that it was.
        let same = found == known.directory
            || State::in_directory(directory).is_ok_and(|s| s.is_some_and(|s| self.is_same(&s)));
        same && self.settings == [config, user_settings()]
    }

    /// Of a repository in a bucket, which has no stamps.
    pub(super) fn of_bucket() -> State {
        State { identity: None, settings: [None, user_settings()] }
    }

    /// Whether it is the same repository, whatever its settings.
    pub(crate) fn is_same_repository(&self, other: &State) -> bool {
        match (&self.identity, &other.identity) {
            (Some(a), Some(b)) => a.is_same(b),
            (None, None) => true,
            _ => false,
        }
    }

    pub(super) fn is_same(&self, other: &State) -> bool {
        self.is_same_repository(other) && self.settings == other.settings
    }

    /// Whether any later change of the settings would show.
    pub(super) fn is_settled(&self) -> bool {
        self.settings.iter().flatten().all(Stamp::is_settled)
    }
}

fn user_settings() -> Option<Stamp> {
    static PATH: LazyLock<Option<PathBuf>> = LazyLock::new(mdl_repo::user_file);
    PATH.as_ref().and_then(|path| Stamp::from_path(path).ok().flatten())
}

/// When a repository's settings were last read from its bucket.
#[derive(Clone, Copy, Debug)]
pub(super) struct Asked {
    answered: Instant,
    asking: bool,
}

impl Asked {
    pub(super) fn now() -> Asked {
        Asked { answered: Instant::now(), asking: false }
    }

    /// Returns whether to read the settings now; a caller that gets true reads them, and then calls `asked`.
    pub(super) fn must_ask(&mut self) -> bool {
        let age = self.answered.elapsed();
        let fresh = age < BUCKET_FRESH || (self.asking && age < 2 * BUCKET_FRESH);
        self.asking |= !fresh;
        !fresh
    }

    /// Records when the settings were read that have arrived, or that reading failed.
    pub(super) fn asked(&mut self, answered: Option<Instant>) {
        self.asking = false;
        self.answered = answered.unwrap_or(self.answered);
    }
}
