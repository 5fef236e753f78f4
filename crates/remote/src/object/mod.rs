//! Storage in a bucket of an object store.
//!
//! A bucket has no locks: `excludes` says so, and a collector there dooms packs first and deletes them a time of grace
//! later. A call reports only what the store has acknowledged. Parts of uploads that died are in no listing, and a
//! lifecycle rule of the bucket removes them.

mod blocks;
mod bucket;
mod failure;
mod logs;
mod read;
mod swap;
mod upload;

use crate::runtime::block_on;
use blocks::Blocks;
use bucket::Bucket;
use futures_util::{StreamExt, stream};
use mdl_codec::locks::Mutex;
use mdl_repo::{
    Missing, RepoError, Result,
    storage::{Guard, Key, MAX_VALUE, Prefix, Storage, StoredKey, Swap, Upload},
};
use object_store::{ObjectMeta, ObjectStore};
use std::{collections::HashSet, future::Future, sync::Arc};

/// Bytes of packs that are kept in memory unless told otherwise.
pub const CACHE: usize = 256 << 20;

/// Objects that are looked at together.
const AT_ONCE: usize = 16;

/// A prefix of a bucket.
#[derive(Debug)]
pub struct ObjectStorage {
    bucket: Bucket,
    blocks: Blocks,
    tombstones: Arc<Tombstones>,
}

/// Removed values that were seen, by key and ETag: a listing need not look at them again.
#[derive(Debug, Default)]
struct Tombstones(Mutex<HashSet<(String, String)>>);

/// As many as are remembered.
const REMEMBERED: usize = 4096;

impl Tombstones {
    fn knows(&self, name: &(String, String)) -> bool {
        self.0.lock().contains(name)
    }

    fn remember(&self, name: (String, String)) {
        let mut seen = self.0.lock();
        if seen.len() >= REMEMBERED {
            seen.clear();
        }
        seen.insert(name);
    }
}

/// Nothing is locked.
#[derive(Debug)]
struct Open;

impl Guard for Open {}

impl ObjectStorage {
    /// Keys below `prefix` of a bucket. `store` may ask again by itself; `once` is a client of the same bucket that
    /// never does. `shown` is the URL for messages, without credentials.
    pub fn new(store: Arc<dyn ObjectStore>, once: Arc<dyn ObjectStore>, prefix: &str, shown: &str) -> ObjectStorage {
        ObjectStorage {
            bucket: Bucket::new(store, once, prefix, shown),
            blocks: Blocks::new(CACHE),
            tombstones: Arc::default(),
        }
    }

    /// Keeps at most so many bytes of packs in memory.
    #[must_use]
    pub fn with_cache(mut self, bytes: usize) -> ObjectStorage {
        self.blocks = Blocks::new(bytes);
        self
    }

    fn run<T, F>(&self, work: impl FnOnce(Bucket) -> F) -> Result<T>
    where
        T: Send + 'static,
        F: Future<Output = Result<T>> + Send + 'static,
    {
        block_on(work(self.bucket.clone()))?
    }
}

/// Whether an object may be a value that was removed.
fn suspicious(key: &str, size: u64) -> bool {
    size == swap::TOMBSTONE.len() as u64 && !read::immutable(key) && !logs::is_log(key)
}

/// Whether an object is a value; a tombstone is none.
async fn is_value(bucket: &Bucket, tombstones: &Tombstones, key: &str, meta: &ObjectMeta) -> Result<bool> {
    if !suspicious(key, meta.size) {
        return Ok(true);
    }
    let name = (key.to_owned(), meta.e_tag.clone().unwrap_or_default());
    if tombstones.knows(&name) {
        return Ok(false);
    }
    let Some(value) = bucket.value(key).await? else {
        return Ok(false);
    };
    if value.bytes[..] != swap::TOMBSTONE[..] {
        return Ok(true);
    }
    if let Some(tag) = value.version.e_tag {
        tombstones.remember((name.0, tag));
    }
    Ok(false)
}

async fn list(bucket: &Bucket, tombstones: &Tombstones, prefix: &Prefix) -> Result<Vec<StoredKey>> {
    let objects = bucket.objects(prefix).await?.into_iter();
    let keyed = objects.filter_map(|(name, meta)| Some((Key::parse(name).ok()?, meta)));
    let looked = stream::iter(keyed).map(|(key, meta)| async move {
        let kept = is_value(bucket, tombstones, &key, &meta).await?;
        Ok(kept.then(|| StoredKey { key, size: meta.size, modified: meta.last_modified.into() }))
    });
    let found: Vec<Result<Option<StoredKey>>> = looked.buffered(AT_ONCE).collect().await;
    let values = found.into_iter().filter_map(Result::transpose).collect::<Result<_>>()?;
    Ok(logs::joined(prefix, values))
}

impl Storage for ObjectStorage {
    fn get_within(&self, key: &Key, most: u64) -> Result<Option<Vec<u8>>> {
        let key = key.clone();
        self.run(|bucket| async move {
            match logs::is_log(&key) {
                true => logs::get(&bucket, &key, most).await,
                false => Ok(swap::live_within(&bucket, &key, most).await?.map(|b| b.to_vec())),
            }
        })
    }

    fn read_at(&self, key: &Key, offset: u64, buf: &mut [u8]) -> Result<()> {
        if read::immutable(key) {
            return read::cached(&self.bucket, &self.blocks, key, offset, buf);
        }
        if logs::is_log(key) {
            let whole = self.get(key)?.ok_or_else(|| RepoError::not_found(Missing::StoredFile, key))?;
            return read::within(key, &whole, offset, buf);
        }
        // The size first: it knows a tombstone from a value.
        self.size(key)?.ok_or_else(|| RepoError::not_found(Missing::StoredFile, key))?;
        read::straight(&self.bucket, key, offset, buf)
    }

    fn size(&self, key: &Key) -> Result<Option<u64>> {
        let (key, tombstones) = (key.clone(), self.tombstones.clone());
        self.run(|bucket| async move {
            if logs::is_log(&key) {
                return Ok(logs::get(&bucket, &key, MAX_VALUE).await?.map(|b| b.len() as u64));
            }
            match bucket.meta(&key).await? {
                Some(meta) if is_value(&bucket, &tombstones, &key, &meta).await? => Ok(Some(meta.size)),
                _ => Ok(None),
            }
        })
    }

    fn list(&self, prefix: &Prefix) -> Result<Vec<StoredKey>> {
        let (prefix, tombstones) = (prefix.clone(), self.tombstones.clone());
        self.run(|bucket| async move { list(&bucket, &tombstones, &prefix).await })
    }

    fn upload(&self) -> Result<Box<dyn Upload>> {
        Ok(Box::new(upload::BufferedUpload::new(self.bucket.clone())))
    }

    fn swap(&self, key: &Key, expected: Option<&[u8]>, new: Option<&[u8]>) -> Result<Swap> {
        let owned = |value: Option<&[u8]>| value.map(bytes::Bytes::copy_from_slice);
        let (key, expected, new) = (key.clone(), owned(expected), owned(new));
        self.run(|bucket| async move {
            match logs::is_log(&key) {
                true => logs::swap(&bucket, &key, expected, new).await,
                false => swap::swap(&bucket, &key, expected, new).await,
            }
        })
    }

    fn append(&self, key: &Key, bytes: &[u8]) -> Result<()> {
        let (key, bytes) = (key.clone(), bytes::Bytes::copy_from_slice(bytes));
        self.run(|bucket| async move { logs::append(&bucket, &key, bytes).await })
    }

    fn delete(&self, key: &Key) -> Result<()> {
        self.blocks.forget(key);
        let key = key.clone();
        self.run(|bucket| async move {
            if logs::is_log(&key) { logs::delete(&bucket, &key).await } else { bucket.remove(&key).await }
        })
    }

    fn excludes(&self) -> bool {
        false
    }

    fn lock_shared(&self) -> Result<Box<dyn Guard>> {
        Ok(Box::new(Open))
    }

    fn lock_exclusive(&self) -> Result<Box<dyn Guard>> {
        Ok(Box::new(Open))
    }
}
