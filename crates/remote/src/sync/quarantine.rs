//! Quarantine: a storage overlay with received packs in it, so that objects are read and checked before they are
//! stored.

use crate::partial_pack::failed;
use mdl_store::{
    RepoError, Result,
    pack::PackId,
    storage::{Guard, Key, Prefix, Storage, StoredKey, Swap, Upload},
};
use std::{
    collections::BTreeMap,
    fs::File,
    os::unix::fs::FileExt,
    path::{Path, PathBuf},
    sync::Arc,
    time::SystemTime,
};

/// A pack in quarantine: its payloads are in a file, its footer and trailer in memory.
#[derive(Debug)]
pub(super) struct PendingPack {
    pub path: PathBuf,
    pub payload_end: u64,
    pub tail: Vec<u8>,
    file: File,
}

impl PendingPack {
    pub fn new(path: &Path, payload_end: u64, tail: Vec<u8>) -> Result<PendingPack> {
        let file = File::open(path).map_err(failed("read", path))?;
        Ok(PendingPack { path: path.to_owned(), payload_end, tail, file })
    }

    fn len(&self) -> u64 {
        self.payload_end + self.tail.len() as u64
    }

    fn read(&self, offset: u64, buf: &mut [u8]) -> Result<()> {
        let end = offset.saturating_add(buf.len() as u64);
        let short = || RepoError::corrupt(self.path.display(), "shorter than it should be");
        if end > self.len() {
            return Err(short());
        }
        let split = usize::try_from(self.payload_end.saturating_sub(offset)).map_or(buf.len(), |n| n.min(buf.len()));
        let (stored, added) = buf.split_at_mut(split);
        self.file.read_exact_at(stored, offset).map_err(failed("read", &self.path))?;
        let from = offset.saturating_sub(self.payload_end) as usize;
        let tail = self.tail.get(from..from + added.len());
        added.copy_from_slice(tail.filter(|_| !added.is_empty()).unwrap_or_default());
        Ok(())
    }
}

/// The storage below, and the pending packs.
#[derive(Debug)]
pub(super) struct Overlay {
    pub under: Arc<dyn Storage>,
    pub pending: BTreeMap<Key, PendingPack>,
}

impl Overlay {
    pub fn new(under: Arc<dyn Storage>, pending: impl IntoIterator<Item = (PackId, PendingPack)>) -> Overlay {
        Overlay { under, pending: pending.into_iter().map(|(id, pack)| (id.key(), pack)).collect() }
    }
}

fn refused<T>() -> Result<T> {
    Err(RepoError::user("what has arrived is only looked at", ""))
}

impl Storage for Overlay {
    fn get_within(&self, key: &Key, most: u64) -> Result<Option<Vec<u8>>> {
        self.under.get_within(key, most)
    }

    fn read_at(&self, key: &Key, offset: u64, buf: &mut [u8]) -> Result<()> {
        match self.pending.get(key) {
            Some(pack) => pack.read(offset, buf),
            None => self.under.read_at(key, offset, buf),
        }
    }

    fn size(&self, key: &Key) -> Result<Option<u64>> {
        match self.pending.get(key) {
            Some(pack) => Ok(Some(pack.len())),
            None => self.under.size(key),
        }
    }

    fn list(&self, prefix: &Prefix) -> Result<Vec<StoredKey>> {
        let mut out = self.under.list(prefix)?;
        let here = self.pending.iter().filter(|(key, _)| key.starts_with(prefix.as_str()));
        out.retain(|s| !self.pending.contains_key(&s.key));
        out.extend(here.map(|(key, pack)| StoredKey {
            key: key.clone(),
            size: pack.len(),
            modified: SystemTime::now(),
        }));
        out.sort_by(|a, b| a.key.cmp(&b.key));
        Ok(out)
    }

    fn upload(&self) -> Result<Box<dyn Upload>> {
        refused()
    }

    fn swap(&self, _key: &Key, _expected: Option<&[u8]>, _new: Option<&[u8]>) -> Result<Swap> {
        refused()
    }

    fn append(&self, _key: &Key, _bytes: &[u8]) -> Result<()> {
        refused()
    }

    fn delete(&self, _key: &Key) -> Result<()> {
        refused()
    }

    fn excludes(&self) -> bool {
        self.under.excludes()
    }

    fn lock_shared(&self) -> Result<Box<dyn Guard>> {
        self.under.lock_shared()
    }

    fn lock_exclusive(&self) -> Result<Box<dyn Guard>> {
        refused()
    }
}
