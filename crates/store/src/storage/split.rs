//! A work tree's view of a shared storage: each work tree has a HEAD of its own.

use crate::{
    Result,
    storage::{Guard, Key, LocalStorage, Prefix, Storage, StoredKey, Swap, Upload},
};
use std::{path::Path, sync::Arc};

/// Keys that are the work tree's own: where it stands, how it came there, and what it is looking for.
const OWN: [Key; 3] = [Key::fixed("HEAD"), Key::fixed("bisect"), Key::fixed("logs/HEAD")];

/// A storage of which a few keys are elsewhere.
#[derive(Debug)]
pub struct Split {
    shared: Arc<dyn Storage>,
    own: LocalStorage,
}

impl Split {
    /// `shared`, but for where HEAD is: that is in `dir`.
    pub fn new(shared: Arc<dyn Storage>, dir: &Path) -> Split {
        Split { shared, own: LocalStorage::new(dir) }
    }

    fn storage_for(&self, key: &Key) -> &dyn Storage {
        if OWN.contains(key) { &self.own } else { &*self.shared }
    }
}

impl Storage for Split {
    fn get_within(&self, key: &Key, most: u64) -> Result<Option<Vec<u8>>> {
        self.storage_for(key).get_within(key, most)
    }

    fn read_at(&self, key: &Key, offset: u64, buf: &mut [u8]) -> Result<()> {
        self.storage_for(key).read_at(key, offset, buf)
    }

    fn room(&self) -> Result<Option<u64>> {
        self.shared.room()
    }

    fn size(&self, key: &Key) -> Result<Option<u64>> {
        self.storage_for(key).size(key)
    }

    fn list(&self, prefix: &Prefix) -> Result<Vec<StoredKey>> {
        let mut out = self.shared.list(prefix)?;
        out.retain(|s| !OWN.contains(&s.key));
        for key in OWN.iter().filter(|k| k.starts_with(prefix.as_str())) {
            let listed = self.own.list(prefix)?;
            out.extend(listed.into_iter().filter(|s| s.key == *key));
        }
        out.sort_by(|a, b| a.key.cmp(&b.key));
        Ok(out)
    }

    fn keys(&self, prefix: &Prefix) -> Result<Vec<Key>> {
        match OWN.iter().any(|k| k.starts_with(prefix.as_str())) {
            true => Ok(self.list(prefix)?.into_iter().map(|s| s.key).collect()),
            false => self.shared.keys(prefix),
        }
    }

    /// A pack or another large thing: never a key of the work tree's own.
    fn upload(&self) -> Result<Box<dyn Upload>> {
        self.shared.upload()
    }

    fn put(&self, key: &Key, value: &[u8]) -> Result<()> {
        self.storage_for(key).put(key, value)
    }

    fn adopt(&self, file: &Path, len: u64, tail: &[u8], key: &Key) -> Result<()> {
        self.storage_for(key).adopt(file, len, tail, key)
    }

    fn swap(&self, key: &Key, expected: Option<&[u8]>, new: Option<&[u8]>) -> Result<Swap> {
        self.storage_for(key).swap(key, expected, new)
    }

    fn append(&self, key: &Key, bytes: &[u8]) -> Result<()> {
        self.storage_for(key).append(key, bytes)
    }

    fn delete(&self, key: &Key) -> Result<()> {
        self.storage_for(key).delete(key)
    }

    fn excludes(&self) -> bool {
        self.shared.excludes()
    }

    fn lock_shared(&self) -> Result<Box<dyn Guard>> {
        self.shared.lock_shared()
    }

    fn lock_exclusive(&self) -> Result<Box<dyn Guard>> {
        self.shared.lock_exclusive()
    }

    fn sweep_uploads(&self, dry_run: bool) -> Result<u64> {
        self.shared.sweep_uploads(dry_run)
    }
}
