//! Advisory locks of files, each of one process: a forked child gives them up, a wait is told, a deleted file is
//! noticed.
//!
//! `flock` belongs to the open file, which a forked child shares: it would keep the lock for as long as it lives, and
//! could release it under its parent. So children close these files when they are made (docs/design/0010-locks.md
//! says why).

use crate::{
    RepoError, Result,
    storage::{Guard, fork, local::plainly, waiting},
};
use std::{
    fs::{self, File, OpenOptions, TryLockError},
    io,
    mem::ManuallyDrop,
    ops::Deref,
    os::unix::fs::MetadataExt,
    path::{Path, PathBuf},
};

/// Which other holders a lock excludes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Access {
    /// Excludes `Alone` holders.
    Shared,
    /// Excludes all other holders.
    Alone,
}

/// An open file that children forked from this process do not keep open.
#[derive(Debug)]
pub(super) struct OwnFile {
    file: ManuallyDrop<File>,
    process: u32,
}

impl OwnFile {
    /// Opens a file.
    pub fn open(options: &OpenOptions, path: &Path) -> io::Result<OwnFile> {
        Ok(OwnFile { file: ManuallyDrop::new(fork::open(options, path)?), process: std::process::id() })
    }

    /// Whether it was opened by this process: a forked child has closed it, and its number may be that of another file.
    pub fn is_ours(&self) -> bool {
        self.process == std::process::id()
    }

    /// Waits for the lock; reports a wait of more than a moment, with the processes that hold it.
    fn lock_for(&self, access: Access, path: &Path) -> io::Result<()> {
        let tried = match access {
            Access::Shared => self.file.try_lock_shared(),
            Access::Alone => self.file.try_lock(),
        };
        match tried {
            Ok(()) => Ok(()),
            Err(TryLockError::Error(e)) if e.kind() != io::ErrorKind::Interrupted => Err(e),
            Err(_) => waiting::report_wait(&self.file, path, || self.wait(access)),
        }
    }

    fn wait(&self, access: Access) -> io::Result<()> {
        loop {
            let locked = match access {
                Access::Shared => self.file.lock_shared(),
                Access::Alone => self.file.lock(),
            };
            match locked {
                Err(e) if e.kind() == io::ErrorKind::Interrupted => {}
                done => return done,
            }
        }
    }

    /// Whether the path still leads to this file.
    fn is_at(&self, path: &Path) -> io::Result<bool> {
        let own = self.file.metadata()?;
        match fs::symlink_metadata(path) {
            Ok(there) => Ok((own.dev(), own.ino()) == (there.dev(), there.ino())),
            Err(e) if e.kind() == io::ErrorKind::NotFound => Ok(false),
            Err(e) => Err(e),
        }
    }
}

impl Deref for OwnFile {
    type Target = File;

    fn deref(&self) -> &File {
        &self.file
    }
}

impl Drop for OwnFile {
    fn drop(&mut self) {
        if self.is_ours() {
            // Unlocked explicitly, not by closing: a program that was started by other means than fork may have the
            // file open.
            let _ = self.file.unlock();
            fork::close(&mut self.file);
        }
    }
}

#[derive(Debug)]
pub(super) struct FileLock {
    file: OwnFile,
    path: PathBuf,
}

impl FileLock {
    /// Waits for the lock of a file, which is made where there is none.
    pub fn acquire(path: &Path, access: Access) -> Result<FileLock> {
        let failed = |e| RepoError::io(format!("cannot lock {}", path.display()))(e);
        let mut options = OpenOptions::new();
        plainly(options.create(true).truncate(false).write(true));
        loop {
            let file = OwnFile::open(&options, path).map_err(failed)?;
            file.lock_for(access, path).map_err(failed)?;
            // A lock whose file was deleted during the wait excludes no other process.
            if file.is_at(path).map_err(failed)? {
                let path = path.to_owned();
                return Ok(FileLock { file, path });
            }
        }
    }

    /// Whether it still excludes other processes: not once its file was deleted or replaced.
    pub fn is_whole(&self) -> Result<bool> {
        let failed = RepoError::io(format!("cannot look at {}", self.path.display()));
        Ok(self.file.is_ours() && self.file.is_at(&self.path).map_err(failed)?)
    }
}

impl Guard for FileLock {
    fn check(&self) -> Result<()> {
        match self.is_whole()? {
            true => Ok(()),
            false => Err(RepoError::LockLost { path: self.path.clone() }),
        }
    }
}
