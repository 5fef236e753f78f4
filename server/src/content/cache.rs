//! Disk cache of decoded files, with the progress of those that are still being decoded.
//!
//! A file is decoded once; concurrent requests read what is there already. The least recently used goes first. Where
//! the disk takes nothing, files are not cached for a while: requests are answered without.

use crate::problem::{Problem, Result, storage_failed};
use mdl_objects::{Entry, Mode};
use parking_lot::Mutex;
use std::{
    collections::HashMap,
    fs::{self, File},
    path::PathBuf,
    sync::{Arc, Weak},
    time::{Duration, Instant, SystemTime},
};
use tokio::sync::watch;

/// How long nothing is cached after a write failed.
const PAUSE: Duration = Duration::from_secs(10);

/// Cache key: the id of the file's blob or manifest, and its length.
pub type Key = String;

/// The key of a file's content.
pub fn key(entry: &Entry) -> Key {
    let kind = if entry.mode == Mode::Blob { 'b' } else { 'm' };
    format!("{}{kind}", entry.id.to_hex())
}

/// Progress of decoding a file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum State {
    /// It is not being decoded yet: there is no memory for it.
    Waiting,
    /// This many bytes are decoded.
    Partly(u64),
    Done,
    Failed(Failure),
}

/// Why a file is not in the cache.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Failure {
    /// Writing or reading the cache failed: each request can still decode it by itself.
    Disk,
    Content(String),
}

impl From<Failure> for Problem {
    fn from(failure: Failure) -> Problem {
        match failure {
            Failure::Disk => Problem::internal("the disk of decoded files failed"),
            Failure::Content(why) => Problem::internal(why),
        }
    }
}

/// A file that is decoded, or being decoded. As long as a reader holds it, its bytes stay.
#[derive(Debug)]
pub struct Decoded {
    /// The open file, readable also after it was unlinked.
    pub file: File,
    /// Length when all is there.
    pub len: u64,
    state: watch::Sender<State>,
}

impl Decoded {
    pub fn state(&self) -> State {
        self.state.borrow().clone()
    }

    /// Reports progress to waiting readers.
    pub fn report(&self, state: State) {
        self.state.send_replace(state);
    }

    pub fn is_waiting(&self) -> bool {
        *self.state.borrow() == State::Waiting
    }

    /// Claims the decoding; false: another request did.
    pub fn begin(&self) -> bool {
        self.state.send_if_modified(|state| {
            let waiting = *state == State::Waiting;
            if waiting {
                *state = State::Partly(0);
            }
            waiting
        })
    }

    /// Waits until decoding has begun.
    pub async fn begun(&self) {
        // The sender lives in `self`.
        let _ = self.state.subscribe().wait_for(|s| *s != State::Waiting).await;
    }

    /// Waits until the byte before `end` is there.
    pub async fn reached(&self, end: u64) -> std::result::Result<(), Failure> {
        let enough = |s: &State| match s {
            State::Waiting => false,
            State::Partly(n) => *n >= end,
            State::Done | State::Failed(_) => true,
        };
        match self.state.subscribe().wait_for(enough).await.as_deref() {
            Ok(State::Failed(why)) => Err(why.clone()),
            _ => Ok(()),
        }
    }

    /// Waits until all is there, and was verified.
    pub async fn whole(&self) -> std::result::Result<(), Failure> {
        self.reached(u64::MAX).await
    }
}

#[derive(Debug)]
struct CachedFile {
    len: u64,
    used: SystemTime,
    open: Weak<Decoded>,
}

#[derive(Debug, Default)]
struct CacheIndex {
    kept: HashMap<Key, CachedFile>,
    filling: HashMap<Key, Filling>,
    bytes: u64,
    /// Time of the last failed write.
    refused: Option<Instant>,
}

/// A file that is being decoded, or is to be.
#[derive(Debug)]
struct Filling {
    decoded: Arc<Decoded>,
    path: PathBuf,
}

/// Outcome of [`Cache::claim`].
#[derive(Debug)]
pub enum Claim {
    There(Arc<Decoded>),
    /// Not decoded: the first request that gets memory calls [`Decoded::begin`], and [`Cache::finish`] at the end.
    New(Arc<Decoded>),
    NoRoom,
}

#[derive(Debug)]
pub struct Cache {
    dir: PathBuf,
    limit: u64,
    index: Mutex<CacheIndex>,
}

impl Cache {
    /// A cache of at most `limit` bytes. Files that an earlier run finished are reused.
    pub fn new(dir: PathBuf, limit: u64) -> Result<Cache> {
        crate::process::state::make(&dir)?;
        let mut index = CacheIndex::default();
        for entry in fs::read_dir(&dir).map_err(storage_failed)?.flatten() {
            let name = entry.file_name().into_string().unwrap_or_default();
            match entry.metadata() {
                Ok(meta) if is_key(&name) && meta.is_file() => {
                    let used = meta.modified().unwrap_or(SystemTime::UNIX_EPOCH);
                    let (len, open) = (meta.len(), Weak::new());
                    index.bytes += len;
                    index.kept.insert(name, CachedFile { len, used, open });
                }
                _ => drop(fs::remove_file(entry.path())),
            }
        }
        let cache = Cache { dir, limit, index: Mutex::new(index) };
        cache.evict(&mut cache.index.lock(), 0);
        Ok(cache)
    }

    pub fn bytes(&self) -> u64 {
        self.index.lock().bytes
    }

    /// Returns a file that is decoded or being decoded; `None`: neither.
    pub fn get(&self, entry: &Entry) -> Option<Arc<Decoded>> {
        self.look_up(&mut self.index.lock(), entry)
    }

    fn look_up(&self, index: &mut CacheIndex, entry: &Entry) -> Option<Arc<Decoded>> {
        let key = key(entry);
        if let Some(filling) = index.filling.get(&key) {
            return Some(filling.decoded.clone());
        }
        let kept = index.kept.get_mut(&key)?;
        kept.used = SystemTime::now();
        if let Some(open) = kept.open.upgrade() {
            return Some(open);
        }
        let found = File::open(self.dir.join(&key)).ok().filter(|f| f.metadata().is_ok_and(|m| m.len() == entry.size));
        let Some(file) = found else {
            let len = kept.len;
            index.kept.remove(&key);
            index.bytes = index.bytes.saturating_sub(len);
            return None;
        };
        let decoded = Arc::new(Decoded { file, len: entry.size, state: watch::Sender::new(State::Done) });
        kept.open = Arc::downgrade(&decoded);
        Some(decoded)
    }

    /// Returns a file that is decoded or being decoded, or reserves space to decode it.
    pub fn claim(&self, entry: &Entry) -> Claim {
        let mut index = self.index.lock();
        if let Some(found) = self.look_up(&mut index, entry) {
            return Claim::There(found);
        }
        if entry.size > self.limit || index.refused.is_some_and(|at| at.elapsed() < PAUSE) {
            return Claim::NoRoom;
        }
        index.drop_unwanted();
        self.evict(&mut index, entry.size);
        if index.bytes.saturating_add(entry.size) > self.limit {
            return Claim::NoRoom;
        }
        let key = key(entry);
        let path = self.dir.join(format!("{key}.part"));
        let _ = fs::remove_file(&path);
        let file = match File::options().read(true).write(true).create_new(true).open(&path) {
            Ok(file) => file,
            Err(error) => {
                tracing::warn!(%error, "decoded files cannot be kept");
                index.refused = Some(Instant::now());
                return Claim::NoRoom;
            }
        };
        let decoded = Arc::new(Decoded { file, len: entry.size, state: watch::Sender::new(State::Waiting) });
        index.filling.insert(key, Filling { decoded: decoded.clone(), path });
        index.bytes += entry.size;
        Claim::New(decoded)
    }

    /// Ends the decoding of a file: wakes waiting readers, and keeps the file if it is complete.
    pub fn finish(&self, entry: &Entry, decoded: &Arc<Decoded>, outcome: std::result::Result<(), Failure>) {
        let key = key(entry);
        let (is_whole, disk_failed) = (outcome.is_ok(), outcome == Err(Failure::Disk));
        decoded.report(match outcome {
            Ok(()) => State::Done,
            Err(why) => State::Failed(why),
        });
        let path = self.index.lock().filling.get(&key).map(|f| f.path.clone());
        let Some(path) = path else { return };
        // Durable before it has the name that a later run trusts. No request waits for that: the open file has it all.
        let kept = is_whole && decoded.file.sync_all().is_ok() && fs::rename(&path, self.dir.join(&key)).is_ok();
        let mut index = self.index.lock();
        if disk_failed {
            index.refused = Some(Instant::now());
        }
        index.filling.remove(&key);
        if kept {
            let (len, used, open) = (entry.size, SystemTime::now(), Arc::downgrade(decoded));
            index.kept.insert(key, CachedFile { len, used, open });
        } else {
            let _ = fs::remove_file(path);
            index.bytes = index.bytes.saturating_sub(entry.size);
        }
    }

    /// Makes room for `more` bytes. Readers of an evicted file keep its bytes until they are done.
    fn evict(&self, index: &mut CacheIndex, more: u64) {
        if index.bytes.saturating_add(more) <= self.limit {
            return;
        }
        let mut by_use: Vec<(SystemTime, Key)> = index.kept.iter().map(|(k, v)| (v.used, k.clone())).collect();
        by_use.sort();
        for (_, key) in by_use {
            if index.bytes.saturating_add(more) <= self.limit {
                break;
            }
            if let Some(kept) = index.kept.remove(&key) {
                let _ = fs::remove_file(self.dir.join(&key));
                index.bytes = index.bytes.saturating_sub(kept.len);
            }
        }
    }
}

impl CacheIndex {
    /// Drops files that wait to be decoded and have no waiting request any more.
    fn drop_unwanted(&mut self) {
        let mut freed = 0;
        self.filling.retain(|_, f| {
            // Other requests reach it through this map only, which is locked.
            let wanted = Arc::strong_count(&f.decoded) > 1 || !f.decoded.is_waiting();
            if !wanted {
                let _ = fs::remove_file(&f.path);
                freed += f.decoded.len;
            }
            wanted
        });
        self.bytes = self.bytes.saturating_sub(freed);
    }
}

fn is_key(name: &str) -> bool {
    name.len() == 65 && name.bytes().all(|b| b.is_ascii_hexdigit() || b == b'm')
}
