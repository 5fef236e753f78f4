//! Directories of incoming files, and how many bytes of quota each file counts for.

use crate::{
    incoming::quota::{Holder, NO_TOKEN, Quota, Reservation},
    problem::{Problem, Result, storage_failed},
    process::state::{self, entries},
    registry::{RepoKey, RepoName},
};
use parking_lot::Mutex;
use std::{
    collections::HashMap,
    fs::{self, File, OpenOptions},
    io::{self, Write},
    os::unix::fs::OpenOptionsExt,
    path::{Path, PathBuf},
    sync::Arc,
};
use tempfile::TempDir;

/// Below it, `OWNER/NAME/IDENTITY` of each repository.
const REPOS: &str = "repos";
/// Below it, a directory of each process for files that only live as long as a request.
const REQUEST_FILES: &str = "spool";

/// The directories, and the quota reservations of the files in them.
#[derive(Debug)]
pub(crate) struct Room {
    repos: PathBuf,
    request_files: TempDir,
    /// Locked as long as this process lives.
    _alive: File,
    pub(super) quota: Quota,
    held: Mutex<HashMap<PathBuf, Reservation>>,
}

impl Room {
    /// Opens the directories in the state directory; removes what dead processes left in the middle of requests.
    pub(super) fn new(state: &Path, quota: Quota) -> Result<Arc<Room>> {
        let (repos, processes) = (state.join(REPOS), state.join(REQUEST_FILES));
        state::make(&repos)?;
        state::make(&processes)?;
        let (request_files, alive) = loop {
            let dir = tempfile::Builder::new().prefix("").tempdir_in(&processes).map_err(storage_failed)?;
            let alive = File::open(dir.path()).map_err(storage_failed)?;
            alive.lock().map_err(storage_failed)?;
            // Until it was locked another process may have taken it for left behind.
            if dir.path().exists() {
                break (dir, alive);
            }
        };
        for path in entries(&processes) {
            // Those of processes that live are locked, this one's too.
            let left = fs::symlink_metadata(&path).is_ok_and(|m| !m.is_dir());
            match left {
                true => drop(fs::remove_file(&path)),
                false if is_unlocked(&path) => drop(fs::remove_dir_all(&path)),
                false => {}
            }
        }
        Ok(Arc::new(Room { repos, request_files, _alive: alive, quota, held: Mutex::default() }))
    }

    /// Directory of files that live as long as their request.
    pub(super) fn request_files(&self) -> &Path {
        self.request_files.path()
    }

    /// Looks whether the disk has room for so many bytes; where it does not say, it is tried.
    pub(super) fn need_disk(&self, bytes: u64) -> Result<()> {
        match rustix::fs::statvfs(self.request_files()) {
            Ok(disk) if bytes > disk.f_bavail.saturating_mul(disk.f_frsize) => {
                Err(storage_failed(io::ErrorKind::StorageFull.into()))
            }
            _ => Ok(()),
        }
    }

    /// Where a repository's files of a kind are.
    pub(crate) fn dir(&self, repo: &RepoKey, kind: &str) -> PathBuf {
        repo.dir(&self.repos).join(kind)
    }

    /// As `dir`, but creates it and its parents.
    pub(crate) fn make(&self, repo: &RepoKey, kind: &str) -> Result<PathBuf> {
        let dir = self.dir(repo, kind);
        state::make(&dir)?;
        Ok(dir)
    }

    /// The directory of every repository that has one, whether or not the repository is there still.
    pub(crate) fn repositories(&self) -> Vec<(RepoKey, PathBuf)> {
        let mut all = Vec::new();
        for path in entries(&self.repos).iter().flat_map(|o| entries(o)).flat_map(|n| entries(&n)) {
            let mut names = path.iter().rev().filter_map(|n| n.to_str());
            let (identity, name, owner) = (names.next(), names.next(), names.next());
            let name = owner.zip(name).and_then(|(o, n)| RepoName::new(o, n).ok());
            let identity = identity.and_then(|i| i.parse().ok());
            if let Some((name, identity)) = name.zip(identity) {
                all.push((RepoKey { name, identity }, path));
            }
        }
        all
    }

    /// Counts a file from now on until it is released.
    pub(super) fn hold(&self, path: &Path, reservation: Reservation) {
        self.held.lock().insert(path.to_owned(), reservation);
    }

    /// Counts a file that an earlier process left; its sender is noted beside it.
    pub(super) fn hold_again(&self, repo: &RepoKey, path: &Path, token: Option<String>, bytes: u64) {
        let token = token.or_else(|| fs::read_to_string(sender(path)).ok());
        let holder = Holder { repo: repo.clone(), token: token.unwrap_or_else(|| NO_TOKEN.to_owned()) };
        self.hold(path, self.quota.count(holder, bytes));
    }

    /// Writes a file's sender beside it, for a process that counts it again.
    pub(super) fn note_sender(&self, path: &Path, holder: &Holder) -> Result<()> {
        // A power cut may lose it: then the bytes count to callers without a token.
        let file = OpenOptions::new().write(true).create(true).truncate(true).mode(0o600).open(sender(path));
        let written = file.and_then(|mut f| f.write_all(holder.token.as_bytes()));
        written.map_err(storage_failed)
    }

    /// Counts a file no longer.
    pub(super) fn release(&self, path: &Path) {
        drop(self.held.lock().remove(path));
    }

    /// Removes a file; it counts no longer.
    pub(super) fn remove(&self, path: &Path) -> Result<()> {
        let removed = remove(path);
        let _ = fs::remove_file(sender(path));
        if removed.is_ok() {
            self.release(path);
        }
        removed
    }

    /// Releases the reservations of files that are gone.
    pub(super) fn recount(&self) {
        self.held.lock().retain(|path, _| path.exists());
    }
}

fn sender(path: &Path) -> PathBuf {
    path.with_extension("by")
}

fn is_unlocked(dir: &Path) -> bool {
    File::open(dir).is_ok_and(|d| d.try_lock().is_ok())
}

/// Removes a file; one that is gone is fine.
pub(super) fn remove(path: &Path) -> Result<()> {
    match fs::remove_file(path) {
        Err(e) if e.kind() != io::ErrorKind::NotFound => Err(storage_failed(e)),
        _ => Ok(()),
    }
}

/// The files of a directory, which need not be there.
pub(super) fn list(dir: &Path) -> Result<Vec<PathBuf>> {
    match fs::read_dir(dir) {
        Ok(entries) => Ok(entries.flatten().map(|e| e.path()).collect()),
        Err(e) if e.kind() == io::ErrorKind::NotFound => Ok(Vec::new()),
        Err(e) => Err(storage_failed(e)),
    }
}

/// How long ago a file was last written.
pub(super) fn age(path: &Path) -> Option<std::time::Duration> {
    let modified = fs::metadata(path).and_then(|m| m.modified());
    modified.ok()?.elapsed().ok()
}

/// Error: larger than one upload may be.
pub(super) fn too_large(max: u64) -> Problem {
    Problem::too_large(format!("more than {max} bytes"))
}
