//! Storage in memory, for tests and throw-away repositories.

use crate::{
    Missing, RepoError, Result,
    storage::{Guard, Key, Prefix, Storage, StoredKey, Swap, Upload, too_large},
};
use mdl_codec::locks::{Condvar, Mutex};
use std::{collections::BTreeMap, ops::Bound, sync::Arc, time::SystemTime};

#[derive(Debug, Default)]
struct Shared {
    values: Mutex<BTreeMap<Key, (Vec<u8>, SystemTime)>>,
    /// Holders of the collector lock: shared ones counted up, an exclusive one as -1.
    holders: Mutex<i64>,
    released: Condvar,
}

/// A map from keys to bytes; clones share it.
#[derive(Clone, Debug, Default)]
pub struct MemoryStorage(Arc<Shared>);

impl MemoryStorage {
    /// Empty.
    pub fn new() -> MemoryStorage {
        MemoryStorage::default()
    }

    fn set(&self, key: &Key, value: Vec<u8>) {
        self.0.values.lock().insert(key.clone(), (value, SystemTime::now()));
    }

    fn acquire(&self, exclusive: bool) -> Box<dyn Guard> {
        let free = |n: i64| if exclusive { n == 0 } else { n >= 0 };
        let mut holders = self.0.holders.lock();
        while !free(*holders) {
            holders = self.0.released.wait(holders);
        }
        *holders += if exclusive { -1 } else { 1 };
        drop(holders);
        Box::new(MemoryGuard { shared: self.0.clone(), exclusive })
    }
}

#[derive(Debug)]
struct MemoryGuard {
    shared: Arc<Shared>,
    exclusive: bool,
}

impl Guard for MemoryGuard {}

impl Drop for MemoryGuard {
    fn drop(&mut self) {
        *self.shared.holders.lock() += if self.exclusive { 1 } else { -1 };
        self.shared.released.notify_all();
    }
}

struct MemoryUpload {
    storage: MemoryStorage,
    bytes: Vec<u8>,
}

impl Upload for MemoryUpload {
    fn write(&mut self, bytes: &[u8]) -> Result<()> {
        self.bytes.extend_from_slice(bytes);
        Ok(())
    }

    fn finish(self: Box<Self>, key: &Key) -> Result<()> {
        self.storage.set(key, self.bytes);
        Ok(())
    }
}

impl Storage for MemoryStorage {
    fn get_within(&self, key: &Key, most: u64) -> Result<Option<Vec<u8>>> {
        match self.0.values.lock().get(key) {
            Some((v, _)) if v.len() as u64 > most => Err(too_large(key, most)),
            found => Ok(found.map(|(v, _)| v.clone())),
        }
    }

    fn read_at(&self, key: &Key, offset: u64, buf: &mut [u8]) -> Result<()> {
        let values = self.0.values.lock();
        let (value, _) = values.get(key).ok_or_else(|| RepoError::not_found(Missing::StoredFile, key))?;
        let found = usize::try_from(offset).ok().and_then(|o| value.get(o..o.checked_add(buf.len())?));
        buf.copy_from_slice(found.ok_or_else(|| RepoError::corrupt(key, "shorter than it should be"))?);
        Ok(())
    }

    fn size(&self, key: &Key) -> Result<Option<u64>> {
        Ok(self.0.values.lock().get(key).map(|(v, _)| v.len() as u64))
    }

    fn list(&self, prefix: &Prefix) -> Result<Vec<StoredKey>> {
        let values = self.0.values.lock();
        let first = values.range::<str, _>((Bound::Included(prefix.as_str()), Bound::Unbounded));
        let below = first.take_while(|(k, _)| k.starts_with(prefix.as_str()));
        Ok(below.map(|(k, (v, t))| StoredKey { key: k.clone(), size: v.len() as u64, modified: *t }).collect())
    }

    fn upload(&self) -> Result<Box<dyn Upload>> {
        Ok(Box::new(MemoryUpload { storage: self.clone(), bytes: Vec::new() }))
    }

    fn swap(&self, key: &Key, expected: Option<&[u8]>, new: Option<&[u8]>) -> Result<Swap> {
        let mut values = self.0.values.lock();
        let found = values.get(key).map(|(v, _)| v.clone());
        if found.as_deref() != expected {
            return Ok(Swap::Lost(found));
        }
        match new {
            Some(v) => values.insert(key.clone(), (v.to_vec(), SystemTime::now())),
            None => values.remove(key),
        };
        Ok(Swap::Done)
    }

    fn append(&self, key: &Key, bytes: &[u8]) -> Result<()> {
        let mut values = self.0.values.lock();
        let (value, modified) = values.entry(key.clone()).or_insert_with(|| (Vec::new(), SystemTime::now()));
        value.extend_from_slice(bytes);
        *modified = SystemTime::now();
        Ok(())
    }

    fn delete(&self, key: &Key) -> Result<()> {
        self.0.values.lock().remove(key);
        Ok(())
    }

    fn lock_shared(&self) -> Result<Box<dyn Guard>> {
        Ok(self.acquire(false))
    }

    fn lock_exclusive(&self) -> Result<Box<dyn Guard>> {
        Ok(self.acquire(true))
    }
}
