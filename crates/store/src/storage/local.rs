//! Storage in a local directory: temporary file, fsync, rename, fsync of the directory.
//!
//! Locks are advisory file locks, which the system drops when their process ends: there are no stale locks.

use crate::{
    Missing, RepoError, Result,
    storage::{
        Guard, Key, Prefix, Storage, StoredKey, Swap, Upload, copy_in, fork,
        lock::{Access, FileLock, OwnFile},
        too_large,
    },
};
use mdl_codec::locks::Mutex;
use std::{
    collections::HashMap,
    fs::{self, DirEntry, File, FileType, Metadata, OpenOptions, TryLockError},
    io::{self, Read, Write},
    os::unix::fs::{FileExt, OpenOptionsExt},
    path::{Path, PathBuf},
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
};

/// Open files that `read_at` keeps; above this the cache starts afresh.
const OPEN_FILES: usize = 128;

/// A directory.
#[derive(Debug)]
pub struct LocalStorage {
    root: PathBuf,
    open: Mutex<HashMap<Key, Arc<File>>>,
}

pub(super) fn failed(what: &str, path: &Path) -> impl FnOnce(io::Error) -> RepoError + use<> {
    RepoError::io(format!("cannot {what} {}", path.display()))
}

/// Makes opening follow no link out of a key, and wait for no other end of a pipe.
pub(super) fn plainly(options: &mut OpenOptions) -> &mut OpenOptions {
    let flags = rustix::fs::OFlags::NOFOLLOW | rustix::fs::OFlags::NONBLOCK;
    options.custom_flags(flags.bits().cast_signed())
}

/// Whether there is no value, and no failure: a directory at a ref's place (`refs/heads/a` beside `refs/heads/a/b`) is
/// none, and a name that the file system cannot hold has none.
fn is_absence(e: &io::Error) -> bool {
    use io::ErrorKind::{InvalidFilename, IsADirectory, NotADirectory, NotFound};
    matches!(e.kind(), NotFound | NotADirectory | IsADirectory | InvalidFilename)
}

fn no_file(key: &Key) -> RepoError {
    RepoError::corrupt(key, "no regular file")
}

/// Opens a value and says how long it is; none where there is none. `Corrupt`: it is a link, a pipe, a device or a
/// socket.
fn open_value(path: &Path, key: &Key) -> Result<Option<(File, u64)>> {
    let file = match plainly(OpenOptions::new().read(true)).open(path) {
        Ok(file) => file,
        Err(e) if is_absence(&e) => return Ok(None),
        // Sockets cannot be opened, and links are not followed.
        Err(e) => match fs::symlink_metadata(path) {
            Ok(m) if !m.is_file() => return Err(no_file(key)),
            _ => return Err(failed("open", path)(e)),
        },
    };
    let found = file.metadata().map_err(failed("look at", path))?;
    match (found.is_file(), found.is_dir()) {
        (true, _) => Ok(Some((file, found.len()))),
        (_, true) => Ok(None),
        _ => Err(no_file(key)),
    }
}

fn sync_dir(path: &Path) -> Result<()> {
    File::open(path).and_then(|d| d.sync_all()).map_err(failed("sync", path))
}

/// Has a file end with `tail` after its first `len` bytes, and all of it durable. During the sync of the bytes, which
/// is the long part, the file stays as it was: a transfer that is killed then can go on with it.
fn end_with(file: &File, len: u64, tail: &[u8]) -> io::Result<()> {
    file.sync_all()?;
    if file.metadata()?.len() == len + tail.len() as u64 {
        let mut found = vec![0; tail.len()];
        file.read_exact_at(&mut found, len)?;
        if found == tail {
            return Ok(());
        }
    }
    file.set_len(len)?;
    file.write_all_at(tail, len)?;
    file.sync_all()
}

impl LocalStorage {
    /// Uses `root`, which must exist.
    pub fn new(root: impl Into<PathBuf>) -> LocalStorage {
        fork::install();
        LocalStorage { root: root.into(), open: Mutex::default() }
    }

    /// The directory.
    pub fn root(&self) -> &Path {
        &self.root
    }

    fn path(&self, key: &Key) -> PathBuf {
        self.root.join(key.as_str())
    }

    /// Creates the directories above `path`, each durable before the next is relied on.
    fn make_parents(&self, path: &Path) -> Result<()> {
        let Some(dir) = path.parent() else { return Ok(()) };
        if dir.is_dir() {
            return Ok(());
        }
        self.make_parents(dir)?;
        match fs::create_dir(dir) {
            Err(e) if e.kind() != io::ErrorKind::AlreadyExists => return Err(failed("create", dir)(e)),
            _ => {}
        }
        dir.parent().map_or(Ok(()), sync_dir)
    }

    /// Renames a durable file to where a key's value is.
    fn place(&self, file: &Path, key: &Key) -> Result<()> {
        let target = self.path(key);
        self.make_parents(&target)?;
        let mut renamed = fs::rename(file, &target);
        if renamed.as_ref().is_err_and(|e| e.kind() == io::ErrorKind::NotFound) {
            // A directory that `delete` found empty may have gone since.
            self.make_parents(&target)?;
            renamed = fs::rename(file, &target);
        }
        renamed.map_err(failed("rename into place", &target))?;
        target.parent().map_or(Ok(()), sync_dir)
    }

    fn handle(&self, key: &Key) -> Result<Arc<File>> {
        let mut open = self.open.lock();
        if let Some(f) = open.get(key) {
            return Ok(f.clone());
        }
        let found = open_value(&self.path(key), key)?;
        let file = Arc::new(found.ok_or_else(|| RepoError::not_found(Missing::StoredFile, key))?.0);
        if open.len() >= OPEN_FILES {
            open.clear();
        }
        open.insert(key.clone(), file.clone());
        Ok(file)
    }

    fn lock(&self, name: &str, access: Access) -> Result<FileLock> {
        FileLock::acquire(&self.root.join(name), access)
    }

    fn temporary(&self) -> Result<LocalUpload> {
        static NEXT: AtomicU64 = AtomicU64::new(0);
        let dir = self.root.join("tmp");
        if !dir.is_dir() {
            self.make_parents(&dir.join("x"))?;
        }
        loop {
            let n = NEXT.fetch_add(1, Ordering::Relaxed);
            let path = dir.join(format!("{}-{n}-{:08x}", std::process::id(), nonce()));
            match OwnFile::open(OpenOptions::new().create_new(true).write(true), &path) {
                Err(e) if e.kind() == io::ErrorKind::AlreadyExists => continue,
                Err(e) => return Err(failed("create", &path)(e)),
                Ok(file) => {
                    // The lock tells `sweep_uploads` that a process is still writing.
                    file.lock().map_err(failed("lock", &path))?;
                    // Until then it was not locked, and may have been swept.
                    if if_present(fs::symlink_metadata(&path)).map_err(failed("look at", &path))?.is_none() {
                        continue;
                    }
                    return Ok(LocalUpload { root: self.root.clone(), path, file, live: true });
                }
            }
        }
    }
}

/// Distinguishes temporary files of processes that share a pid across containers or hosts.
pub fn nonce() -> u32 {
    std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).map_or(0, |d| d.subsec_nanos())
}

struct LocalUpload {
    root: PathBuf,
    path: PathBuf,
    file: OwnFile,
    live: bool,
}

impl Upload for LocalUpload {
    fn write(&mut self, bytes: &[u8]) -> Result<()> {
        (&*self.file).write_all(bytes).map_err(failed("write", &self.path))
    }

    fn finish(mut self: Box<Self>, key: &Key) -> Result<()> {
        self.file.sync_all().map_err(failed("sync", &self.path))?;
        LocalStorage::new(&self.root).place(&self.path, key)?;
        self.live = false;
        Ok(())
    }
}

impl Drop for LocalUpload {
    fn drop(&mut self) {
        // In a forked child it is the parent's.
        if self.live && self.file.is_ours() {
            // Best effort: `sweep_uploads` finds files that stay behind.
            let _ = fs::remove_file(&self.path);
        }
    }
}

impl Storage for LocalStorage {
    fn get_within(&self, key: &Key, most: u64) -> Result<Option<Vec<u8>>> {
        let path = self.path(key);
        let Some((file, len)) = open_value(&path, key)? else {
            return Ok(None);
        };
        let mut bytes = Vec::with_capacity(len.min(most) as usize);
        // One more than there may be, which shows a value that is too large, or grows while it is read.
        let read = file.take(most.saturating_add(1)).read_to_end(&mut bytes);
        match read.map_err(failed("read", &path))? as u64 > most {
            true => Err(too_large(key, most)),
            false => Ok(Some(bytes)),
        }
    }

    fn read_at(&self, key: &Key, offset: u64, buf: &mut [u8]) -> Result<()> {
        let file = self.handle(key)?;
        file.read_exact_at(buf, offset).map_err(|e| match e.kind() {
            io::ErrorKind::UnexpectedEof => RepoError::corrupt(key, "shorter than it should be"),
            _ => failed("read", &self.path(key))(e),
        })
    }

    fn room(&self) -> Result<Option<u64>> {
        room_at(&self.root).map(Some).map_err(failed("look at", &self.root))
    }

    fn size(&self, key: &Key) -> Result<Option<u64>> {
        let path = self.path(key);
        match fs::symlink_metadata(&path) {
            Ok(m) => Ok(m.is_file().then_some(m.len())),
            Err(e) if is_absence(&e) => Ok(None),
            Err(e) => Err(failed("look at", &path)(e)),
        }
    }

    fn list(&self, prefix: &Prefix) -> Result<Vec<StoredKey>> {
        let mut out = Vec::new();
        each_entry(
            &self.root.join(prefix.as_str()),
            prefix,
            DirEntry::metadata,
            Metadata::is_dir,
            &mut |key, meta| {
                let modified = meta.modified().map_err(|e| failed("look at", &self.path(&key))(e))?;
                out.push(StoredKey { key, size: meta.len(), modified });
                Ok(())
            },
        )?;
        out.sort_by(|a, b| a.key.cmp(&b.key));
        Ok(out)
    }

    fn keys(&self, prefix: &Prefix) -> Result<Vec<Key>> {
        let mut out = Vec::new();
        // What is a directory says the listing itself, so that no file is looked at.
        each_entry(&self.root.join(prefix.as_str()), prefix, DirEntry::file_type, FileType::is_dir, &mut |key, _| {
            out.push(key);
            Ok(())
        })?;
        Ok(out)
    }

    fn upload(&self) -> Result<Box<dyn Upload>> {
        Ok(Box::new(self.temporary()?))
    }

    /// By renaming it, where it is on the same file system.
    fn adopt(&self, file: &Path, len: u64, tail: &[u8], key: &Key) -> Result<()> {
        let whole = OpenOptions::new().read(true).write(true).open(file).map_err(failed("open", file))?;
        end_with(&whole, len, tail).map_err(failed("write", file))?;
        match self.place(file, key) {
            Err(RepoError::Io { source, .. }) if source.kind() == io::ErrorKind::CrossesDevices => {
                copy_in(self.upload()?, file, len, tail, key)
            }
            placed => placed,
        }
    }

    fn swap(&self, key: &Key, expected: Option<&[u8]>, new: Option<&[u8]>) -> Result<Swap> {
        let lock = loop {
            let lock = self.lock("swap.lock", Access::Alone)?;
            let found = self.get(key)?;
            if found.as_deref() != expected {
                return Ok(Swap::Lost(found));
            }
            // A lock whose file was deleted meanwhile excludes no other process.
            if lock.is_whole()? {
                break lock;
            }
        };
        match new {
            Some(value) => self.put(key, value)?,
            None => self.delete(key)?,
        }
        drop(lock);
        Ok(Swap::Done)
    }

    fn append(&self, key: &Key, bytes: &[u8]) -> Result<()> {
        let path = self.path(key);
        self.make_parents(&path)?;
        let fresh = !path.exists();
        let mut file =
            plainly(OpenOptions::new().create(true).append(true)).open(&path).map_err(failed("open", &path))?;
        if !file.metadata().map_err(failed("look at", &path))?.is_file() {
            return Err(no_file(key));
        }
        file.write_all(bytes).and_then(|()| file.sync_all()).map_err(failed("append to", &path))?;
        match path.parent() {
            Some(dir) if fresh => sync_dir(dir),
            _ => Ok(()),
        }
    }

    fn delete(&self, key: &Key) -> Result<()> {
        self.open.lock().remove(key);
        let path = self.path(key);
        match fs::remove_file(&path) {
            Ok(()) => {
                let mut dir = path.parent();
                // An empty directory `a` left by `a/b` must not be in the way of a new `a`; top-level directories stay.
                while let Some(empty) = dir.filter(|d| d.strip_prefix(&self.root).is_ok_and(|r| r.iter().count() > 1)) {
                    match fs::remove_dir(empty) {
                        Err(e) if e.kind() != io::ErrorKind::NotFound => break,
                        _ => dir = empty.parent(),
                    }
                }
                dir.map_or(Ok(()), sync_dir)
            }
            Err(e) if is_absence(&e) => Ok(()),
            Err(e) => Err(failed("remove", &path)(e)),
        }
    }

    fn lock_shared(&self) -> Result<Box<dyn Guard>> {
        Ok(Box::new(self.lock("gc.lock", Access::Shared)?))
    }

    fn lock_exclusive(&self) -> Result<Box<dyn Guard>> {
        Ok(Box::new(self.lock("gc.lock", Access::Alone)?))
    }

    fn sweep_uploads(&self, dry_run: bool) -> Result<u64> {
        let dir = self.root.join("tmp");
        let entries = match fs::read_dir(&dir) {
            Ok(entries) => entries,
            Err(e) if e.kind() == io::ErrorKind::NotFound => return Ok(0),
            Err(e) => return Err(failed("list", &dir)(e)),
        };
        let mut freed = 0;
        for entry in entries {
            let path = entry.map_err(failed("list", &dir))?.path();
            let Ok(file) = plainly(OpenOptions::new().read(true)).open(&path) else {
                continue;
            };
            match file.try_lock() {
                Ok(()) => {}
                Err(TryLockError::WouldBlock) => continue,
                Err(TryLockError::Error(e)) => return Err(failed("lock", &path)(e)),
            }
            let len = file.metadata().map_or(0, |m| m.len());
            let there = if dry_run {
                if_present(fs::symlink_metadata(&path)).map(|m| m.is_some())
            } else {
                if_present(fs::remove_file(&path)).map(|done| done.is_some())
            };
            // One that is gone was finished or dropped by its writer just before.
            if there.map_err(failed("remove", &path))? {
                freed += len;
            }
        }
        Ok(freed)
    }
}

/// Metadata of a file that a directory lists. One that went away between listing and looking was deleted by another
/// process: `None`. Any other failure is an error: a ref that cannot be looked at still holds its commits.
fn if_present<T>(looked: io::Result<T>) -> io::Result<Option<T>> {
    match looked {
        Ok(found) => Ok(Some(found)),
        Err(e) if e.kind() == io::ErrorKind::NotFound => Ok(None),
        Err(e) => Err(e),
    }
}

/// Visits the files below a directory whose names keys have, with what `look` finds of each.
fn each_entry<T>(
    dir: &Path,
    prefix: &Prefix,
    look: fn(&DirEntry) -> io::Result<T>,
    is_dir: fn(&T) -> bool,
    visit: &mut dyn FnMut(Key, T) -> Result<()>,
) -> Result<()> {
    let entries = match fs::read_dir(dir) {
        Ok(entries) => entries,
        Err(e) if matches!(e.kind(), io::ErrorKind::NotFound | io::ErrorKind::NotADirectory) => return Ok(()),
        Err(e) => return Err(failed("list", dir)(e)),
    };
    for entry in entries {
        let entry = entry.map_err(|e| failed("list", dir)(e))?;
        let Ok(name) = entry.file_name().into_string() else { continue };
        let Some(found) = if_present(look(&entry)).map_err(|e| failed("look at", &entry.path())(e))? else { continue };
        let Ok(key) = prefix.key(&name) else { continue };
        match is_dir(&found) {
            true => each_entry(&entry.path(), &key.below(), look, is_dir, visit)?,
            false => visit(key, found)?,
        }
    }
    Ok(())
}

/// Bytes that may still be written to the disk of a directory.
pub(crate) fn room_at(dir: &Path) -> io::Result<u64> {
    let told = rustix::fs::statvfs(dir)?;
    Ok(told.f_bavail.saturating_mul(told.f_frsize))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_a_file_that_is_gone_is_passed_over() {
        assert_eq!(if_present(Ok(1)).expect("present"), Some(1));
        assert_eq!(if_present::<()>(Err(io::ErrorKind::NotFound.into())).expect("gone"), None);
        for kind in [io::ErrorKind::PermissionDenied, io::ErrorKind::StaleNetworkFileHandle, io::ErrorKind::Other] {
            assert_eq!(if_present::<()>(Err(kind.into())).expect_err("a failure").kind(), kind);
        }
    }
}
