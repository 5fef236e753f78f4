//! Cache of decoded tensors: their bytes, by id, in files of a directory of this machine.
//!
//! It spares a commit the decoding of what a new version is coded against, and a checkout that of the newest version.
//! Nothing in it is believed without its hash, so a damaged or missing file costs time only. Files come by a rename and
//! are never synced. What checks the repository reads past it.

use crate::{
    pack::segment_len,
    storage::{nonce, room_at},
};
use mdl_codec::{Dtype, SEGMENT_BYTES};
use mdl_objects::{Id, tensor_hasher};
use std::{
    fs::{self, File},
    io::{self, Write},
    os::unix::fs::FileExt,
    path::PathBuf,
    sync::atomic::{AtomicU64, Ordering},
    time::SystemTime,
};

/// Shorter tensors are not kept: they are decoded about as fast as a file is opened.
const SMALLEST: u64 = 16 << 10;
/// Longer tensors are read a segment at a time, and hashed in a pass of their own first.
const WHOLE: u64 = 64 << 20;
/// An eviction leaves this many hundredths of what may be held.
const LEFT: u64 = 90;
/// `held` before the directory has been looked at.
const UNKNOWN: u64 = u64::MAX;
/// File with what was held when a handle was last dropped: to look at every file takes milliseconds.
const HELD: &str = ".held";
/// One handle of so many looks at all files all the same: others add and remove, too.
const RECOUNT: u32 = 16;

/// How much may be held.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CacheSize {
    /// So many bytes; with 0 there is no cache.
    Bytes(u64),
    /// So many hundredths of what is free on the disk, the cache's own bytes counted as free.
    PercentOfFree(u8),
}

/// Decoded tensors in a directory.
#[derive(Debug)]
pub struct TensorCache {
    dir: PathBuf,
    size: CacheSize,
    /// Bytes that lie there, as far as this handle knows.
    held: AtomicU64,
}

/// A tensor of the cache, open. Not verified.
#[derive(Debug)]
pub(crate) struct CachedTensor {
    file: File,
    len: u64,
}

/// A tensor that is being written to the cache.
#[derive(Debug)]
pub(crate) struct Filling {
    file: File,
    making: PathBuf,
    path: PathBuf,
    len: u64,
    failed: bool,
}

impl TensorCache {
    /// A cache in a directory, which is made when something is kept.
    pub fn new(dir: PathBuf, size: CacheSize) -> TensorCache {
        TensorCache { dir, size, held: AtomicU64::new(UNKNOWN) }
    }

    fn path(&self, id: &Id) -> PathBuf {
        self.dir.join(id.to_hex())
    }

    /// A tensor of this length, if it is here.
    pub(crate) fn open(&self, id: &Id, len: u64) -> Option<CachedTensor> {
        if len < SMALLEST {
            return None;
        }
        let file = File::open(self.path(id)).ok()?;
        // What was used last is evicted last.
        let _ = file.set_modified(SystemTime::now());
        if file.metadata().ok()?.len() == len {
            return Some(CachedTensor { file, len });
        }
        // As a power cut leaves it. It would stand in the way of a whole one.
        self.remove(id);
        None
    }

    /// The bytes of a tensor that is not too long to be read at once, verified. A damaged one is removed.
    pub(crate) fn read(&self, id: &Id, dtype: Dtype, shape: &[u64], len: u64) -> Option<Vec<u8>> {
        let found = self.open(id, len).filter(|_| len <= WHOLE)?;
        let mut bytes = vec![0; usize::try_from(len).ok()?];
        let mut hasher = tensor_hasher(dtype, shape);
        let read = found.file.read_exact_at(&mut bytes, 0).is_ok();
        hasher.update(&bytes);
        if read && hasher.finish() == *id {
            return Some(bytes);
        }
        self.remove(id);
        None
    }

    /// A longer tensor, which has been read once and was what its id says.
    pub(crate) fn open_verified(&self, id: &Id, dtype: Dtype, shape: &[u64], len: u64) -> Option<CachedTensor> {
        let found = self.open(id, len)?;
        let mut hasher = tensor_hasher(dtype, shape);
        let mut segments = (0..len.div_ceil(SEGMENT_BYTES as u64)).map(|i| found.segment(i as usize));
        let whole = segments.all(|s| s.map(|bytes| hasher.update(&bytes)).is_some());
        if whole && hasher.finish() == *id {
            return Some(found);
        }
        self.remove(id);
        None
    }

    pub(crate) fn remove(&self, id: &Id) {
        let _ = fs::remove_file(self.path(id));
    }

    /// Keeps a tensor. That it cannot be kept is no error.
    pub(crate) fn put(&self, id: &Id, bytes: &[u8]) {
        if let Some(mut filling) = self.begin(id, bytes.len() as u64) {
            filling.append(bytes);
            filling.finish(self);
        }
    }

    /// Begins to keep a tensor of this length; none: it is here, or there is no room.
    pub(crate) fn begin(&self, id: &Id, len: u64) -> Option<Filling> {
        let path = self.path(id);
        if len < SMALLEST || self.size == CacheSize::Bytes(0) || path.exists() || !self.make_room(len) {
            return None;
        }
        let making = self.dir.join(format!(".{}-{:08x}", std::process::id(), nonce()));
        let file = File::create_new(&making).ok()?;
        Some(Filling { file, making, path, len: 0, failed: false })
    }

    /// Whether so many more bytes may be held, after an eviction where they must.
    fn make_room(&self, len: u64) -> bool {
        let mut held = self.held.load(Ordering::Relaxed);
        if held == UNKNOWN && !nonce().is_multiple_of(RECOUNT) {
            held = fs::read_to_string(self.dir.join(HELD)).ok().and_then(|h| h.parse().ok()).unwrap_or(UNKNOWN);
            self.held.store(held, Ordering::Relaxed);
        }
        if held != UNKNOWN && held.checked_add(len).is_some_and(|all| self.most(held).is_some_and(|most| all <= most)) {
            return true;
        }
        fs::create_dir_all(&self.dir).is_ok() && self.evict(len).is_ok_and(|fits| fits)
    }

    fn most(&self, held: u64) -> Option<u64> {
        match self.size {
            CacheSize::Bytes(n) => Some(n),
            CacheSize::PercentOfFree(n) => {
                let free = room_at(&self.dir).ok()?.saturating_add(held);
                Some((u128::from(free) * u128::from(n) / 100) as u64)
            }
        }
    }

    /// Removes what was used longest ago until `len` bytes more may be held; false: they are too many.
    fn evict(&self, len: u64) -> io::Result<bool> {
        let mut files = Vec::new();
        for entry in fs::read_dir(&self.dir)? {
            let entry = entry?;
            // Another process may have removed it.
            let Ok(meta) = entry.metadata() else { continue };
            files.push((meta.modified()?, meta.len(), entry.path()));
        }
        let mut held: u64 = files.iter().map(|f| f.1).sum();
        let Some(most) = self.most(held).filter(|most| len <= *most) else { return Ok(false) };
        if held.saturating_add(len) > most {
            files.sort();
            let goal = (most / 100 * LEFT).saturating_sub(len);
            for (_, size, path) in files {
                if held <= goal {
                    break;
                }
                if fs::remove_file(path).is_ok() {
                    held -= size;
                }
            }
        }
        self.held.store(held, Ordering::Relaxed);
        Ok(held.saturating_add(len) <= most)
    }

    /// Bytes that are held.
    pub fn bytes(&self) -> u64 {
        let files = fs::read_dir(&self.dir).into_iter().flatten().flatten();
        files.filter_map(|f| f.metadata().ok()).map(|m| m.len()).sum()
    }

    /// Removes what is more than may be held: all of it where nothing may.
    pub fn keep_to_size(&self) {
        if self.size != CacheSize::Bytes(0) {
            // What cannot be listed holds nothing, or is noticed when something is to be kept.
            let _ = self.evict(0);
            return;
        }
        self.retain(|_| false);
        // Another process may keep something in it meanwhile.
        let _ = fs::remove_dir(&self.dir);
    }

    /// Removes what is not wanted any more, by id, and returns its bytes. What a killed program left goes too.
    pub fn retain(&self, wanted: impl Fn(&Id) -> bool) -> u64 {
        let mut freed = 0;
        for file in fs::read_dir(&self.dir).into_iter().flatten().flatten() {
            let name = file.file_name();
            let id = name.to_str().and_then(|n| n.parse::<Id>().ok());
            if id.is_some_and(|id| wanted(&id)) {
                continue;
            }
            let len = file.metadata().map_or(0, |m| m.len());
            if fs::remove_file(file.path()).is_ok() {
                freed += len;
            }
        }
        self.held.store(UNKNOWN, Ordering::Relaxed);
        freed
    }
}

impl Drop for TensorCache {
    fn drop(&mut self) {
        let held = *self.held.get_mut();
        if held != UNKNOWN {
            let _ = fs::write(self.dir.join(HELD), held.to_string());
        }
    }
}

impl CachedTensor {
    /// Segment `index`.
    pub(crate) fn segment(&self, index: usize) -> Option<Vec<u8>> {
        let mut bytes = vec![0; segment_len(self.len, index)];
        self.file.read_exact_at(&mut bytes, (index * SEGMENT_BYTES) as u64).ok()?;
        Some(bytes)
    }
}

impl Filling {
    /// Adds the next bytes.
    pub(crate) fn append(&mut self, bytes: &[u8]) {
        self.failed = self.failed || self.file.write_all(bytes).is_err();
        self.len += bytes.len() as u64;
    }

    /// Keeps what was added.
    pub(crate) fn finish(self, cache: &TensorCache) {
        if !self.failed && fs::rename(&self.making, &self.path).is_ok() {
            let add = |held: u64| (held != UNKNOWN).then(|| held.saturating_add(self.len));
            let _ = cache.held.fetch_update(Ordering::Relaxed, Ordering::Relaxed, add);
        }
    }
}

impl Drop for Filling {
    fn drop(&mut self) {
        // After a rename there is nothing of that name.
        let _ = fs::remove_file(&self.making);
    }
}
