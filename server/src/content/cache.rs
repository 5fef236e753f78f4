//! Decoded files on disk, and how far those that are being decoded have come. Neighbours: `fill` decodes into it, `body` reads from
//! it. It must not know repositories: a file is known by the id of its content.
//!
//! A file is decoded once, whoever asks meanwhile reads what is there already. What was not used for longest goes first.

use crate::problem::{Problem, Result, storage_failed};
use mdl_objects::{Entry, Mode};
use std::{
    collections::HashMap,
    fs::{self, File},
    path::{Path, PathBuf},
    sync::{Arc, Mutex, MutexGuard, PoisonError, Weak},
    time::SystemTime,
};
use tokio::sync::watch;

/// Content of a file: the id of its blob or manifest tells which, and the length.
pub type Key = String;

/// The key of a file's content.
pub fn key(entry: &Entry) -> Key {
    let kind = if entry.mode == Mode::Blob { 'b' } else { 'm' };
    format!("{}{kind}", entry.id.to_hex())
}

/// How far a file has come.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum State {
    /// So many bytes are there.
    Partly(u64),
    /// All are.
    Done,
    /// It cannot be had, and why.
    Failed(String),
}

/// A file that is decoded, or being decoded. As long as somebody holds it, its bytes stay.
#[derive(Debug)]
pub struct Decoded {
    /// The open file: also after its name is gone.
    pub file: File,
    /// Length when all is there.
    pub len: u64,
    state: watch::Sender<State>,
}

impl Decoded {
    /// What has come.
    pub fn state(&self) -> State {
        self.state.borrow().clone()
    }

    /// Says what has come.
    pub fn report(&self, state: State) {
        self.state.send_replace(state);
    }

    /// Waits until the byte before `end` is there.
    ///
    /// # Errors
    /// It will never be.
    pub async fn reached(&self, end: u64) -> Result<()> {
        let mut seen = self.state.subscribe();
        let enough = |s: &State| match s {
            State::Partly(n) => *n >= end,
            State::Done | State::Failed(_) => true,
        };
        let state = seen.wait_for(enough).await.map(|s| s.clone());
        match state {
            Ok(State::Failed(why)) => Err(Problem::internal(why)),
            Ok(_) => Ok(()),
            Err(_) => Err(Problem::internal("a decoder ended")),
        }
    }

    /// Waits until all is there.
    ///
    /// # Errors
    /// It will never be.
    pub async fn whole(&self) -> Result<()> {
        let mut seen = self.state.subscribe();
        match seen
            .wait_for(|s| !matches!(s, State::Partly(_)))
            .await
            .map(|s| s.clone())
        {
            Ok(State::Done) => Ok(()),
            Ok(State::Failed(why)) => Err(Problem::internal(why)),
            _ => Err(Problem::internal("a decoder ended")),
        }
    }
}

#[derive(Debug)]
struct Kept {
    len: u64,
    used: SystemTime,
    open: Weak<Decoded>,
}

#[derive(Debug, Default)]
struct Known {
    kept: HashMap<Key, Kept>,
    filling: HashMap<Key, Arc<Decoded>>,
    bytes: u64,
}

/// What somebody who wants a file gets.
#[derive(Debug)]
pub enum Found {
    /// It is there, or somebody is at it.
    There(Arc<Decoded>),
    /// The caller is the one to decode it: into this file, which [`Cache::finish`] takes.
    Yours(Arc<Decoded>, PathBuf),
    /// It would take more room than there is.
    TooLarge,
}

/// Decoded files.
#[derive(Debug)]
pub struct Cache {
    dir: PathBuf,
    limit: u64,
    known: Mutex<Known>,
}

impl Cache {
    /// A cache of at most `limit` bytes. What an earlier run finished is taken over.
    ///
    /// # Errors
    /// The directory cannot be had.
    pub fn new(dir: PathBuf, limit: u64) -> Result<Cache> {
        crate::state::make(&dir)?;
        let mut known = Known::default();
        for entry in fs::read_dir(&dir).map_err(storage_failed)?.flatten() {
            let name = entry.file_name().into_string().unwrap_or_default();
            match entry.metadata() {
                Ok(meta) if is_key(&name) && meta.is_file() => {
                    let used = meta.modified().unwrap_or(SystemTime::UNIX_EPOCH);
                    let (len, open) = (meta.len(), Weak::new());
                    known.bytes += len;
                    known.kept.insert(name, Kept { len, used, open });
                }
                _ => drop(fs::remove_file(entry.path())),
            }
        }
        let cache = Cache {
            dir,
            limit,
            known: Mutex::new(known),
        };
        cache.evict(&mut cache.lock(), 0);
        Ok(cache)
    }

    fn lock(&self) -> MutexGuard<'_, Known> {
        self.known.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Bytes on disk.
    pub fn bytes(&self) -> u64 {
        self.lock().bytes
    }

    /// A file that is there or on its way; none: nobody is at it.
    pub fn get(&self, entry: &Entry) -> Option<Arc<Decoded>> {
        let key = key(entry);
        let mut known = self.lock();
        if let Some(filling) = known.filling.get(&key) {
            return Some(filling.clone());
        }
        let kept = known.kept.get_mut(&key)?;
        kept.used = SystemTime::now();
        if let Some(open) = kept.open.upgrade() {
            return Some(open);
        }
        let found = File::open(self.dir.join(&key))
            .ok()
            .filter(|f| f.metadata().is_ok_and(|m| m.len() == entry.size));
        let Some(file) = found else {
            let len = kept.len;
            known.kept.remove(&key);
            known.bytes = known.bytes.saturating_sub(len);
            return None;
        };
        let decoded = Arc::new(Decoded {
            file,
            len: entry.size,
            state: watch::Sender::new(State::Done),
        });
        kept.open = Arc::downgrade(&decoded);
        Some(decoded)
    }

    /// A file that is there or on its way, or else the place to decode it to.
    ///
    /// # Errors
    /// The medium failed.
    pub fn claim(&self, entry: &Entry) -> Result<Found> {
        if let Some(found) = self.get(entry) {
            return Ok(Found::There(found));
        }
        if entry.size > self.limit {
            return Ok(Found::TooLarge);
        }
        let key = key(entry);
        let mut known = self.lock();
        if let Some(filling) = known.filling.get(&key) {
            return Ok(Found::There(filling.clone()));
        }
        self.evict(&mut known, entry.size);
        if known.bytes.saturating_add(entry.size) > self.limit {
            return Ok(Found::TooLarge);
        }
        let path = self.dir.join(format!("{key}.part"));
        let _ = fs::remove_file(&path);
        let file = File::options()
            .read(true)
            .write(true)
            .create_new(true)
            .open(&path)
            .map_err(storage_failed)?;
        let decoded = Arc::new(Decoded {
            file,
            len: entry.size,
            state: watch::Sender::new(State::Partly(0)),
        });
        known.filling.insert(key, decoded.clone());
        known.bytes += entry.size;
        Ok(Found::Yours(decoded, path))
    }

    /// The file was decoded, or could not be: tells those who wait, and keeps it if it is whole.
    pub fn finish(&self, entry: &Entry, decoded: &Arc<Decoded>, path: &Path, outcome: std::result::Result<(), String>) {
        let key = key(entry);
        let sound = outcome.is_ok();
        decoded.report(match outcome {
            Ok(()) => State::Done,
            Err(why) => State::Failed(why),
        });
        // Durable before it has the name that a later run trusts. Nobody waits for that: the open file has it all.
        let kept = sound && decoded.file.sync_all().is_ok() && fs::rename(path, self.dir.join(&key)).is_ok();
        let mut known = self.lock();
        known.filling.remove(&key);
        if kept {
            let (len, used, open) = (entry.size, SystemTime::now(), Arc::downgrade(decoded));
            known.kept.insert(key, Kept { len, used, open });
        } else {
            let _ = fs::remove_file(path);
            known.bytes = known.bytes.saturating_sub(entry.size);
        }
    }

    /// Makes room for `more` bytes. Those who read a file that goes keep its bytes until they have done.
    fn evict(&self, known: &mut Known, more: u64) {
        if known.bytes.saturating_add(more) <= self.limit {
            return;
        }
        let mut by_use: Vec<(SystemTime, Key)> = known.kept.iter().map(|(k, v)| (v.used, k.clone())).collect();
        by_use.sort();
        for (_, key) in by_use {
            if known.bytes.saturating_add(more) <= self.limit {
                break;
            }
            if let Some(kept) = known.kept.remove(&key) {
                let _ = fs::remove_file(self.dir.join(&key));
                known.bytes = known.bytes.saturating_sub(kept.len);
            }
        }
    }
}

fn is_key(name: &str) -> bool {
    name.len() == 65 && name.bytes().all(|b| b.is_ascii_hexdigit() || b == b'm')
}
