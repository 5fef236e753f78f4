//! The byte-level storage trait: keys, ranges, durable puts, compare-and-swap.
//!
//! Keys are `/`-separated names such as `packs/1f..e0` or `refs/heads/main`. What a call reports as done is durable.

mod fault;
mod fork;
mod key;
mod local;
mod lock;
mod memory;
mod network;
mod shared;
mod split;
mod waiting;

pub use fault::{Fault, FaultStorage};
pub use fork::without_forks;
pub use key::{Key, Prefix};
pub(crate) use local::room_at;
pub use local::{LocalStorage, nonce};
pub use memory::MemoryStorage;
pub use network::network_file_system;
pub use shared::share_with_group;
pub use split::Split;
pub use waiting::{Holder, Waiting, on_wait};

use crate::{RepoError, Result};
use std::{
    fs::{self, File},
    os::unix::fs::FileExt,
    path::Path,
    time::SystemTime,
};

/// Bytes of a file that are in memory while it is taken over.
const COPIED_AT_ONCE: u64 = 8 << 20;

/// Bytes that a value which is held in memory as a whole has at most; packs are read in parts.
pub const MAX_VALUE: u64 = 256 << 20;

/// A stored key, as `list` shows it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StoredKey {
    /// The key.
    pub key: Key,
    /// Length in bytes.
    pub size: u64,
    /// When it was last written.
    pub modified: SystemTime,
}

/// Outcome of a compare-and-swap.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Swap {
    /// The value was the expected one and is now the new one.
    Done,
    /// The value was another one (or absent), and still is.
    Lost(Option<Vec<u8>>),
}

/// Held while a guard lives; released by the system if the process dies.
pub trait Guard: Send + std::fmt::Debug {
    /// Checks that it still keeps other processes out: to be asked before anything comes to rely on that. `LockLost`
    /// where its file was deleted under it.
    fn check(&self) -> Result<()> {
        Ok(())
    }
}

/// An upload into storage: invisible until `finish`, gone if dropped before.
pub trait Upload: Send {
    /// Appends bytes. After an error the upload is useless.
    fn write(&mut self, bytes: &[u8]) -> Result<()>;

    /// Makes everything written durable and visible under `key`, at once or not at all. A key that exists is replaced.
    /// After an I/O error, under the key is what was there before, or everything written (perhaps not yet durably);
    /// never a part.
    fn finish(self: Box<Self>, key: &Key) -> Result<()>;
}

/// Byte-level storage of a repository.
pub trait Storage: Send + Sync + std::fmt::Debug {
    /// All bytes of a key; `None` where there is none. `Corrupt`: there are more than [`MAX_VALUE`], or it is no plain
    /// value.
    fn get(&self, key: &Key) -> Result<Option<Vec<u8>>> {
        self.get_within(key, MAX_VALUE)
    }

    /// As `get`, for a value of at most this many bytes: more are neither read nor held.
    fn get_within(&self, key: &Key, most: u64) -> Result<Option<Vec<u8>>>;

    /// Fills `buf` from `offset` of a key; `NotFound` where it has no value.
    fn read_at(&self, key: &Key, offset: u64, buf: &mut [u8]) -> Result<()>;

    /// Bytes that may still be written; `None` where the storage does not tell.
    fn room(&self) -> Result<Option<u64>> {
        Ok(None)
    }

    /// Length of a key's value; `None` where there is none.
    fn size(&self, key: &Key) -> Result<Option<u64>>;

    /// Every key below a prefix, sorted. Entries whose names no key has are passed over.
    fn list(&self, prefix: &Prefix) -> Result<Vec<StoredKey>>;

    /// As `list`, but only the keys, in any order: cheaper where looking at each costs.
    fn keys(&self, prefix: &Prefix) -> Result<Vec<Key>> {
        Ok(self.list(prefix)?.into_iter().map(|s| s.key).collect())
    }

    /// Starts an upload.
    fn upload(&self) -> Result<Box<dyn Upload>>;

    /// Takes over the first `len` bytes of a file, followed by `tail`, as the value of a key: durable and visible at
    /// once or not at all. The file is gone afterwards.
    ///
    /// # Errors
    /// An I/O error: under the key is what was there before, or all of it; the first `len` bytes are in the file,
    /// or under the key.
    fn adopt(&self, file: &Path, len: u64, tail: &[u8], key: &Key) -> Result<()> {
        copy_in(self.upload()?, file, len, tail, key)
    }

    /// Durably sets a small value, whole or not at all: after an I/O error it is the old one or the new one, never a
    /// part.
    fn put(&self, key: &Key, value: &[u8]) -> Result<()> {
        let mut up = self.upload()?;
        up.write(value)?;
        up.finish(key)
    }

    /// Sets (or with `None` removes) a small value if the present one is `expected` (`None`: absent). After an I/O
    /// error the value is the old one or the new one, and which is not known.
    fn swap(&self, key: &Key, expected: Option<&[u8]>, new: Option<&[u8]>) -> Result<Swap>;

    /// Durably appends to a log that many processes append to; one call's bytes stay together. Only keys below `logs/`
    /// are appended to: where nothing can be appended, these are kept in pieces.
    fn append(&self, key: &Key, bytes: &[u8]) -> Result<()>;

    /// Removes a key; absent is fine.
    fn delete(&self, key: &Key) -> Result<()>;

    /// Whether the locks below exclude other processes. Where they do not (object stores have none), they are granted
    /// at once and mean nothing: a collector then dooms packs first and deletes them a time of grace later.
    fn excludes(&self) -> bool {
        true
    }

    /// Waits until no collector runs, and keeps collectors out while the guard lives.
    fn lock_shared(&self) -> Result<Box<dyn Guard>>;

    /// Waits until no writer runs, and keeps writers and collectors out while the guard lives.
    fn lock_exclusive(&self) -> Result<Box<dyn Guard>>;

    /// Removes what dead uploads left behind; returns how many bytes that freed. `dry_run` only counts. In a storage
    /// without locks, dead is what no writer can still be writing. Nothing to do where a dead upload leaves nothing
    /// that is listed.
    fn sweep_uploads(&self, _dry_run: bool) -> Result<u64> {
        Ok(0)
    }
}

/// The error for a value that is larger than its reader can use.
pub fn too_large(key: &str, most: u64) -> RepoError {
    RepoError::corrupt(key, format!("more than {most} bytes, where no value has as many"))
}

/// Uploads the first `len` bytes of a file and what follows them, then removes the file.
fn copy_in(mut up: Box<dyn Upload>, file: &Path, len: u64, tail: &[u8], key: &Key) -> Result<()> {
    let failed = || RepoError::io(format!("cannot read {}", file.display()));
    let from = File::open(file).map_err(failed())?;
    let (mut at, mut part) = (0, vec![0; len.min(COPIED_AT_ONCE) as usize]);
    while at < len {
        let n = (len - at).min(COPIED_AT_ONCE) as usize;
        from.read_exact_at(&mut part[..n], at).map_err(failed())?;
        up.write(&part[..n])?;
        at += n as u64;
    }
    up.write(tail)?;
    up.finish(key)?;
    fs::remove_file(file).map_err(RepoError::io(format!("cannot remove {}", file.display())))
}
