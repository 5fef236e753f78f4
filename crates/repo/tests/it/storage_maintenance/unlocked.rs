//! A storage in memory whose locks exclude no other process, as in object stores, with its list of doomed packs
//! readable: time passes by moving what the list says into the past.

use super::setup::*;
use mdl_repo::{
    GcOptions, GcReport, Repo, Result, Silent,
    storage::{Guard, Key, MemoryStorage, Prefix, Storage, StoredKey, Swap, Upload},
};
use std::time::Duration;

/// Locks that mean nothing.
#[derive(Clone, Debug)]
pub struct Unlocked(pub MemoryStorage);

#[derive(Debug)]
struct Nothing;

impl Guard for Nothing {}

impl Storage for Unlocked {
    fn get_within(&self, key: &Key, most: u64) -> Result<Option<Vec<u8>>> {
        self.0.get_within(key, most)
    }
    fn read_at(&self, key: &Key, offset: u64, buf: &mut [u8]) -> Result<()> {
        self.0.read_at(key, offset, buf)
    }
    fn size(&self, key: &Key) -> Result<Option<u64>> {
        self.0.size(key)
    }
    fn list(&self, prefix: &Prefix) -> Result<Vec<StoredKey>> {
        self.0.list(prefix)
    }
    fn upload(&self) -> Result<Box<dyn Upload>> {
        self.0.upload()
    }
    fn swap(&self, key: &Key, expected: Option<&[u8]>, new: Option<&[u8]>) -> Result<Swap> {
        self.0.swap(key, expected, new)
    }
    fn append(&self, key: &Key, bytes: &[u8]) -> Result<()> {
        self.0.append(key, bytes)
    }
    fn delete(&self, key: &Key) -> Result<()> {
        self.0.delete(key)
    }
    fn excludes(&self) -> bool {
        false
    }
    fn lock_shared(&self) -> Result<Box<dyn Guard>> {
        Ok(Box::new(Nothing))
    }
    fn lock_exclusive(&self) -> Result<Box<dyn Guard>> {
        Ok(Box::new(Nothing))
    }
    fn sweep_uploads(&self, dry_run: bool) -> Result<u64> {
        self.0.sweep_uploads(dry_run)
    }
}

/// A grace that no test waits for: time is moved by hand.
pub const GRACE: Duration = Duration::from_secs(3600);

pub fn unlocked() -> (MemoryStorage, Repo) {
    let (storage, _) = fresh();
    (storage.clone(), open(Unlocked(storage)))
}

pub fn at(storage: &MemoryStorage) -> Repo {
    open(Unlocked(storage.clone()))
}

/// A collection that keeps nothing for its age or for the reflog.
pub fn collect(repo: &Repo, grace: Duration) -> GcReport {
    try_collect(repo, grace).expect("gc")
}

pub fn try_collect(repo: &Repo, grace: Duration) -> Result<GcReport> {
    let options = GcOptions { dry_run: false, prune_now: true, grace: Some(grace) };
    mdl_repo::gc(repo, &options, &Silent)
}

/// Lines of the list of doomed packs: name, `waits` or `goes`, change, moment, grace.
pub fn doomed(storage: &MemoryStorage) -> Vec<Vec<String>> {
    let text = storage.get(&Key::fixed("condemned")).expect("get").unwrap_or_default();
    let text = String::from_utf8(text).expect("text");
    let lines: Vec<&str> = text.lines().collect();
    let packs = lines.get(2..lines.len().saturating_sub(1)).unwrap_or_default();
    let words = |l: &&str| l.split(' ').map(str::to_owned).collect();
    packs.iter().map(words).collect()
}

/// Lets time pass for what is on the list.
pub fn pass(storage: &MemoryStorage, time: Duration) {
    let Some(text) = storage.get(&Key::fixed("condemned")).expect("get") else {
        return;
    };
    let text = String::from_utf8(text).expect("text");
    let head: String = text.lines().take(2).map(|l| format!("{l}\n")).collect();
    let older = |mut words: Vec<String>| {
        let at: i64 = words[3].parse().expect("moment");
        words[3] = (at - time.as_millis() as i64).to_string();
        words.join(" ") + "\n"
    };
    let body: String = doomed(storage).into_iter().map(older).collect();
    let body = head + &body;
    let sum = blake3::hash(body.as_bytes()).to_hex();
    storage.put(&Key::fixed("condemned"), format!("{body}{sum}\n").as_bytes()).expect("put");
}
