//! Collections on a disk without room for all packs that they write: what stays, and how much work it is.

use super::setup::*;
use mdl_repo::{
    Repo, Result, Silent,
    storage::{Guard, Key, MemoryStorage, Prefix, Storage, StoredKey, Swap, Upload},
};
use std::sync::{
    Arc,
    atomic::{AtomicU64, Ordering},
};

/// A storage in memory of so many bytes, which counts what is read.
#[derive(Clone, Debug)]
struct Cramped {
    inner: MemoryStorage,
    capacity: u64,
    reads: Arc<AtomicU64>,
}

impl Cramped {
    fn read(&self) {
        self.reads.fetch_add(1, Ordering::Relaxed);
    }
}

impl Storage for Cramped {
    fn get_within(&self, key: &Key, most: u64) -> Result<Option<Vec<u8>>> {
        self.read();
        self.inner.get_within(key, most)
    }
    fn read_at(&self, key: &Key, offset: u64, buf: &mut [u8]) -> Result<()> {
        self.read();
        self.inner.read_at(key, offset, buf)
    }
    fn room(&self) -> Result<Option<u64>> {
        Ok(Some(self.capacity.saturating_sub(packed_bytes(&self.inner))))
    }
    fn size(&self, key: &Key) -> Result<Option<u64>> {
        self.inner.size(key)
    }
    fn list(&self, prefix: &Prefix) -> Result<Vec<StoredKey>> {
        self.inner.list(prefix)
    }
    fn upload(&self) -> Result<Box<dyn Upload>> {
        self.inner.upload()
    }
    fn swap(&self, key: &Key, expected: Option<&[u8]>, new: Option<&[u8]>) -> Result<Swap> {
        self.inner.swap(key, expected, new)
    }
    fn append(&self, key: &Key, bytes: &[u8]) -> Result<()> {
        self.inner.append(key, bytes)
    }
    fn delete(&self, key: &Key) -> Result<()> {
        self.inner.delete(key)
    }
    fn lock_shared(&self) -> Result<Box<dyn Guard>> {
        self.inner.lock_shared()
    }
    fn lock_exclusive(&self) -> Result<Box<dyn Guard>> {
        self.inner.lock_exclusive()
    }
    fn sweep_uploads(&self, dry_run: bool) -> Result<u64> {
        self.inner.sweep_uploads(dry_run)
    }
}

/// Reads of a collection of so many packs, each half garbage, with room for a few of them at a time.
fn reads(packs: usize) -> u64 {
    let (storage, repo) = fresh();
    let tensors: Vec<Vec<f32>> = (0..packs).map(|i| Noise(i as u64 + 1).even(600)).collect();
    let names: Vec<String> = (0..packs).map(|i| format!("t{i}")).collect();
    for (i, tensor) in tensors.iter().enumerate() {
        let garbage = Noise(i as u64 + 1000).even(600);
        let file = safetensors(&[("t", tensor), ("garbage", &garbage)]);
        commit(&repo, &format!("side{i}"), &Version::from([("model.safetensors".to_owned(), file)]));
    }
    let all: Vec<(&str, &[f32])> = names.iter().map(String::as_str).zip(tensors.iter().map(Vec::as_slice)).collect();
    let version = Version::from([("model.safetensors".to_owned(), safetensors(&all))]);
    let id = commit(&repo, "main", &version);
    (0..packs).for_each(|i| drop_branch(&repo, &format!("side{i}")));
    forget(&repo);
    let before = packed_bytes(&storage);
    let room = (256 << 10) + 4 * ((4 << 10) + 2600);
    let cramped = Cramped { inner: storage.clone(), capacity: before + room, reads: Arc::default() };
    let repo: Repo = open(cramped.clone());
    cramped.reads.store(0, Ordering::Relaxed);
    mdl_repo::gc(&repo, &NOW, &Silent).expect("gc");
    let reads = cramped.reads.load(Ordering::Relaxed);
    assert!(packed_bytes(&storage) < before * 2 / 3, "{before} {}", packed_bytes(&storage));
    let repo = open(storage);
    assert_version(&repo, &id, &version);
    assert_clean(&repo);
    reads
}

#[test]
fn work_grows_no_faster_than_packs_times_steps() {
    let (few, many) = (reads(15), reads(45));
    // Three times as many packs in three times as many steps at most.
    assert!(many < few * 12, "{few} {many}");
}
