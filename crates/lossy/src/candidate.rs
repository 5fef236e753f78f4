//! Candidate directories: what a checkout would give if the candidate were committed.
//!
//! Files that no candidate changes are symbolic links to where they are.

use crate::model::Container;
use mdl_store::{RepoError, Result, Store, storage::nonce, write::DiskFile};
use std::{
    collections::HashMap,
    fs::{self, File, OpenOptions},
    os::unix::fs::{FileExt, symlink},
    path::{Path, PathBuf},
    time::{Duration, SystemTime},
};

/// Where candidates are made, inside the repository's directory.
const DIR: &str = "candidates";
/// The same where a repository has no directory of its own.
const TEMPORARY: &str = "mdl-candidates";
/// File in a directory of candidates that its process holds a lock on.
const LOCK: &str = ".lock";
/// A directory without a lock is removed after this long.
const STALE: Duration = Duration::from_secs(48 * 3600);

/// A directory that goes when it is dropped. The lock tells other processes that it is in use.
#[derive(Debug)]
pub struct Scratch {
    path: PathBuf,
    _lock: File,
}

impl Drop for Scratch {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.path);
    }
}

fn failed(path: &Path) -> impl FnOnce(std::io::Error) -> RepoError + use<> {
    RepoError::io(format!("cannot write {}", path.display()))
}

impl Scratch {
    /// A fresh directory beside the repository's objects; among the temporary ones for a repository without a
    /// directory.
    pub fn new(store: &Store) -> Result<Scratch> {
        // A directory that holds nothing else.
        let root = root(store);
        sweep(&root);
        Scratch::below(&root)
    }

    fn below(root: &Path) -> Result<Scratch> {
        let path = root.join(format!("{}-{:08x}", std::process::id(), nonce()));
        fs::create_dir_all(&path).map_err(failed(&path))?;
        // Under its name it has always been locked. On a file system without locks age tells.
        let new = path.join("new.lock");
        let lock = File::create(&new).map_err(failed(&path))?;
        let done = if lock.try_lock().is_ok() { fs::rename(&new, path.join(LOCK)) } else { fs::remove_file(&new) };
        done.map_err(failed(&path))?;
        Ok(Scratch { path, _lock: lock })
    }

    /// Where a file of this name in the tree goes inside, its directories made.
    pub fn place(&self, rel: &str) -> Result<PathBuf> {
        place(&self.path.join("given"), rel)
    }

    /// The directory named so inside, made anew.
    pub fn fresh(&self, name: &str) -> Result<PathBuf> {
        let path = self.path.join(name);
        if path.exists() {
            fs::remove_dir_all(&path).map_err(failed(&path))?;
        }
        fs::create_dir_all(&path).map_err(failed(&path))?;
        Ok(path)
    }
}

fn root(store: &Store) -> PathBuf {
    store.dir().map_or_else(|| std::env::temp_dir().join(TEMPORARY), |d| d.join(DIR))
}

/// Removes the candidates of processes that were killed.
pub fn sweep_candidates(store: &Store) {
    sweep(&root(store));
}

fn sweep(root: &Path) {
    let is_old = |e: &fs::DirEntry| {
        let age = e.metadata().and_then(|m| m.modified()).ok();
        age.and_then(|t| SystemTime::now().duration_since(t).ok()).is_some_and(|a| a > STALE)
    };
    let is_left = |e: &fs::DirEntry| match File::open(e.path().join(LOCK)) {
        Ok(lock) => lock.try_lock().is_ok(),
        // Its process may be about to make one.
        Err(_) => is_old(e),
    };
    for entry in fs::read_dir(root).into_iter().flatten().flatten().filter(is_left) {
        let _ = fs::remove_dir_all(entry.path());
    }
}

/// A file of a candidate that is being written: a copy, to be patched.
pub(crate) struct Draft {
    file: File,
    path: PathBuf,
}

impl Draft {
    /// Copies `from` to `dir/rel`.
    pub fn copy(from: &Path, dir: &Path, rel: &str) -> Result<Draft> {
        let path = place(dir, rel)?;
        fs::copy(from, &path).map_err(failed(&path))?;
        let writable = |path: &Path| {
            let mut permissions = fs::metadata(path)?.permissions();
            #[expect(
                clippy::permissions_set_readonly_false,
                reason = "it is the candidate's copy, not the user's file"
            )]
            permissions.set_readonly(false);
            fs::set_permissions(path, permissions)?;
            OpenOptions::new().read(true).write(true).open(path)
        };
        let file = writable(&path).map_err(failed(&path))?;
        Ok(Draft { file, path })
    }

    /// Writes at an offset.
    pub fn patch(&self, offset: u64, bytes: &[u8]) -> Result<()> {
        self.file.write_all_at(bytes, offset).map_err(failed(&self.path))
    }

    /// Sets the container's own checksums right; the file is done.
    pub fn finish(self, container: &Container) -> Result<PathBuf> {
        let source = mdl_files::FileSource::open(&self.path).map_err(failed(&self.path))?;
        let patches = mdl_files::checksums(&source, container.layout.format)
            .map_err(|source| RepoError::Scan { path: self.path.clone(), source })?;
        for (offset, bytes) in patches {
            self.patch(offset, &bytes)?;
        }
        Ok(self.path)
    }
}

/// `dir/rel`, its directories made.
fn place(dir: &Path, rel: &str) -> Result<PathBuf> {
    let path = dir.join(rel);
    if let Some(parent) = path.parent() {
        fs::create_dir_all(parent).map_err(failed(&path))?;
    }
    Ok(path)
}

/// Links the files that are not in `dir` yet: to where they were `replaced`, by their name in the tree, else to the
/// user's.
pub(crate) fn link_rest(dir: &Path, list: &[DiskFile], replaced: &HashMap<String, PathBuf>) -> Result<()> {
    for file in list {
        let path = dir.join(&file.rel);
        if path.symlink_metadata().is_err() {
            let path = place(dir, &file.rel)?;
            let target = replaced.get(&file.rel).unwrap_or(&file.path);
            symlink(target, &path).map_err(failed(&path))?;
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_a_killed_process_left_goes_and_what_is_in_use_stays() {
        let root = tempfile::tempdir().expect("a directory");
        let used = Scratch::below(root.path()).expect("a scratch");
        fs::write(used.fresh("candidate-0").expect("a directory").join("w"), "x").expect("a file");
        // As after a kill: the lock file is there, and no process holds it.
        let left = root.path().join("7-0000");
        fs::create_dir_all(left.join("candidate-0")).expect("a directory");
        fs::write(left.join(LOCK), "").expect("a file");
        // About to be locked.
        let begun = root.path().join("8-0000");
        fs::create_dir(&begun).expect("a directory");
        sweep(root.path());
        assert!(used.path.join("candidate-0/w").is_file() && begun.is_dir() && !left.exists());
        let path = used.path.clone();
        drop(used);
        assert!(!path.exists());
    }
}
