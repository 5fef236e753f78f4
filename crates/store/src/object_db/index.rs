//! The disposable index: which pack holds an object, small commits, the stat cache of the work tree, digests of files
//! by which others know them. Only this file uses `sled`.

use crate::pack::{Pack, PackId};
use mdl_objects::Id;
use std::{
    collections::BTreeSet,
    panic::{AssertUnwindSafe, catch_unwind},
    path::{Path, PathBuf},
    thread::sleep,
    time::Duration,
};

/// Waits of 2 ms for another process to let go, before doing without.
const TRIES: u32 = 5;
const SCHEMA: &[u8] = b"1";

/// Digests of a file's bytes that other tools go by.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Digests {
    /// SHA-256.
    pub sha256: [u8; 32],
    /// The id that git gives it as a blob: SHA-1.
    pub git: [u8; 20],
    /// Its length.
    pub len: u64,
}

/// Where an object is said to be.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Hint {
    /// The pack.
    pub pack: PackId,
    /// The depth of the copy there.
    pub depth: u8,
}

/// A set of packs, told from any other: how many there are, and the sum of their names bit by bit, which are hashes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct PackSet {
    count: u64,
    sum: [u8; 32],
}

impl PackSet {
    /// The set of these packs, each of them named once.
    pub fn from_packs<'a>(packs: impl Iterator<Item = &'a PackId>) -> PackSet {
        packs.fold(PackSet::default(), PackSet::with)
    }

    fn with(mut self, pack: &PackId) -> PackSet {
        self.count += 1;
        self.sum.iter_mut().zip(pack.as_bytes()).for_each(|(sum, b)| *sum ^= b);
        self
    }

    fn to_bytes(self) -> Vec<u8> {
        [&self.count.to_le_bytes()[..], &self.sum].concat()
    }

    fn from_bytes(bytes: &[u8]) -> Option<PackSet> {
        let (count, sum) = bytes.split_first_chunk::<8>()?;
        Some(PackSet { count: u64::from_le_bytes(*count), sum: sum.try_into().ok()? })
    }
}

/// Under which the set of indexed packs is noted: reading all their names takes longer than all the rest of opening.
const PACK_SET: &str = "packs";

/// An open index. Dropping it lets other processes in.
#[derive(Debug)]
pub struct Index {
    /// Taken only when the index is dropped.
    parts: Option<Parts>,
}

#[derive(Debug)]
struct Parts {
    db: sled::Db,
    objects: sled::Tree,
    packs: sled::Tree,
    commits: sled::Tree,
    stats: sled::Tree,
}

impl Index {
    /// Opens the index in `dir`, making it anew if it is damaged. `None`: another process holds it, or it cannot be
    /// had.
    pub fn open(dir: &Path) -> Option<Index> {
        match try_open(dir) {
            Err(Unopened::Damaged) => {
                set_aside(dir)?;
                try_open(dir).ok()
            }
            opened => opened.ok(),
        }
    }

    fn with<T>(&self, f: impl FnOnce(&Parts) -> sled::Result<T>) -> Option<T> {
        self.parts.as_ref().and_then(|parts| guarded(|| f(parts)))
    }

    /// Packs that are indexed.
    pub fn packs(&self) -> Option<BTreeSet<PackId>> {
        let keys = self.with(|parts| parts.packs.iter().keys().collect::<sled::Result<Vec<_>>>())?;
        keys.iter().map(|k| k.as_ref().try_into().ok().map(PackId::from_bytes)).collect()
    }

    /// Whether exactly these packs are indexed, as far as that was noted.
    pub fn has_just(&self, packs: &PackSet) -> bool {
        self.pack_set().is_some_and(|noted| noted == *packs)
    }

    fn pack_set(&self) -> Option<PackSet> {
        let noted = self.with(|parts| parts.db.get(PACK_SET))??;
        PackSet::from_bytes(&noted)
    }

    /// Notes which packs are indexed.
    pub fn note_packs(&self) -> Option<()> {
        let set = PackSet::from_packs(self.packs()?.iter());
        self.with(|parts| parts.db.insert(PACK_SET, set.to_bytes())).map(drop)
    }

    /// Adds a pack's objects; of several copies the one with the least depth is kept.
    pub fn add_pack(&self, pack: &Pack) -> Option<()> {
        self.with(|parts| {
            let mut batch = sled::Batch::default();
            for r in pack.records() {
                let known = parts.objects.get(r.id.as_bytes())?.and_then(|v| parse_hint(&v));
                if known.is_none_or(|k| r.depth < k.depth) {
                    let mut value = [0; 33];
                    value[..32].copy_from_slice(pack.id.as_bytes());
                    value[32] = r.depth;
                    batch.insert(r.id.as_bytes(), &value[..]);
                }
            }
            parts.objects.apply_batch(batch)?;
            let is_new = parts.packs.insert(pack.id.as_bytes(), &[])?.is_none();
            // Last, so that what is noted is there.
            if let Some(set) = self.pack_set().filter(|_| is_new) {
                parts.db.insert(PACK_SET, set.with(&pack.id).to_bytes())?;
            }
            Ok(())
        })
    }

    /// Forgets everything about objects and packs (after packs were deleted).
    pub fn clear_packs(&self) -> Option<()> {
        self.with(|parts| {
            parts.db.remove(PACK_SET)?;
            parts.objects.clear()?;
            parts.commits.clear()?;
            parts.packs.clear()
        })
    }

    /// Where an object is said to be. Outer `None`: the index failed; inner `None`: it knows of no such object.
    pub fn find(&self, id: &Id) -> Option<Option<Hint>> {
        let value = self.with(|parts| parts.objects.get(id.as_bytes()))?;
        value.map_or(Some(None), |v| parse_hint(&v).map(Some))
    }

    /// Object ids from `low` to `high`, both included, at most `limit`.
    pub fn ids_from(&self, low: &[u8; 32], high: &[u8; 32], limit: usize) -> Option<Vec<Id>> {
        let range = low.as_slice()..=high.as_slice();
        let keys = self.with(|p| p.objects.range(range).keys().take(limit).collect::<sled::Result<Vec<_>>>())?;
        keys.iter().map(|k| k.as_ref().try_into().ok().map(Id::from_bytes)).collect()
    }

    /// Canonical bytes of a commit seen before (the reader verifies them by their id).
    pub fn commit(&self, id: &Id) -> Option<Vec<u8>> {
        self.with(|parts| parts.commits.get(id.as_bytes()))?.map(|v| v.to_vec())
    }

    /// Remembers a commit's canonical bytes.
    pub fn put_commit(&self, id: &Id, bytes: &[u8]) -> Option<()> {
        self.with(|parts| parts.commits.insert(id.as_bytes(), bytes)).map(drop)
    }

    /// Digests of the content with this id.
    pub fn digests(&self, id: &Id) -> Option<Digests> {
        let key = digests_key(BY_ID, id.as_bytes());
        let value = self.with(|parts| parts.digests()?.get(key))??;
        // Hence the checksum: no reader hashes gigabytes again to see whether they are right.
        let (body, sum) = value.split_last_chunk::<8>()?;
        let (sha256, rest) = body.split_first_chunk::<32>()?;
        let (git, rest) = rest.split_first_chunk::<20>()?;
        let digests = Digests { sha256: *sha256, git: *git, len: u64::from_le_bytes(rest.try_into().ok()?) };
        (digests_sum(&key, body) == *sum).then_some(digests)
    }

    /// Remembers digests of the content with this id.
    pub fn put_digests(&self, id: &Id, digests: &Digests) -> Option<()> {
        let key = digests_key(BY_ID, id.as_bytes());
        let mut value = [&digests.sha256[..], &digests.git, &digests.len.to_le_bytes()].concat();
        value.extend(digests_sum(&key, &value));
        self.with(|parts| {
            let tree = parts.digests()?;
            tree.insert(key, value)?;
            tree.insert(digests_key(BY_SHA256, &digests.sha256), id.as_bytes()).map(drop)
        })
    }

    /// A content that is said to have this SHA-256.
    pub fn by_sha256(&self, sha256: &[u8; 32]) -> Option<Id> {
        let key = digests_key(BY_SHA256, sha256);
        let value = self.with(|parts| parts.digests()?.get(key))??;
        value.as_ref().try_into().ok().map(Id::from_bytes)
    }

    /// What is remembered of a file's state.
    pub fn stat(&self, path: &[u8]) -> Option<Vec<u8>> {
        self.with(|parts| parts.stats.get(path))?.map(|v| v.to_vec())
    }

    /// Remembers a file's state.
    pub fn put_stat(&self, path: &[u8], value: &[u8]) -> Option<()> {
        self.with(|parts| parts.stats.insert(path, value)).map(drop)
    }
}

/// sled asserts on some kinds of damage; an index may not take a command down with it.
fn guarded<T>(f: impl FnOnce() -> sled::Result<T>) -> Option<T> {
    catch_unwind(AssertUnwindSafe(f)).ok()?.ok()
}

impl Parts {
    /// Opened when it is needed, since few operations need it.
    fn digests(&self) -> sled::Result<sled::Tree> {
        self.db.open_tree("digests")
    }
}

const BY_ID: u8 = b'i';
const BY_SHA256: u8 = b's';

fn digests_key(by: u8, what: &[u8; 32]) -> [u8; 33] {
    let mut key = [by; 33];
    key[1..].copy_from_slice(what);
    key
}

fn digests_sum(key: &[u8; 33], value: &[u8]) -> [u8; 8] {
    let mut hasher = blake3::Hasher::new();
    hasher.update(key).update(value);
    let mut sum = [0; 8];
    hasher.finalize_xof().fill(&mut sum);
    sum
}

fn parse_hint(value: &[u8]) -> Option<Hint> {
    let (pack, depth) = value.split_at_checked(32)?;
    let [depth] = depth else { return None };
    Some(Hint { pack: PackId::from_bytes(pack.try_into().ok()?), depth: *depth })
}

/// Why an index was not opened.
enum Unopened {
    Busy,
    Damaged,
}

fn try_open(dir: &Path) -> Result<Index, Unopened> {
    for _ in 0..TRIES {
        let attempt = catch_unwind(AssertUnwindSafe(|| -> sled::Result<Index> {
            let db = sled::Config::new()
                .path(dir)
                .cache_capacity(16 << 20)
                .flush_every_ms(None)
                .mode(sled::Mode::LowSpace)
                .open()?;
            if db.get("schema")?.is_some_and(|v| v != SCHEMA) {
                return Err(sled::Error::Unsupported("another schema".into()));
            }
            db.insert("schema", SCHEMA)?;
            let (objects, packs) = (db.open_tree("objects")?, db.open_tree("packs")?);
            let (commits, stats) = (db.open_tree("commits")?, db.open_tree("stats")?);
            let parts = Some(Parts { db, objects, packs, commits, stats });
            Ok(Index { parts })
        }));
        match attempt {
            Ok(Ok(index)) => return Ok(index),
            Ok(Err(sled::Error::Io(e))) if is_lock(&e) => sleep(Duration::from_millis(2)),
            // A disk that fails (full, read-only) is no reason to throw the index away.
            Ok(Err(sled::Error::Io(_))) => return Err(Unopened::Busy),
            Ok(Err(_)) | Err(_) => return Err(Unopened::Damaged),
        }
    }
    Err(Unopened::Busy)
}

fn is_lock(e: &std::io::Error) -> bool {
    // sled wraps the lock's WouldBlock in an error of kind Other.
    e.kind() == std::io::ErrorKind::WouldBlock || e.to_string().contains("could not acquire lock")
}

/// Moves a damaged index out of the way and removes it.
fn set_aside(dir: &Path) -> Option<()> {
    let aside: PathBuf = dir.with_extension(format!("damaged-{}", std::process::id()));
    std::fs::rename(dir, &aside).ok()?;
    let _ = std::fs::remove_dir_all(&aside);
    Some(())
}

impl Drop for Index {
    fn drop(&mut self) {
        // Unflushed entries are only work to do again, but a clean close makes the next opening quick. sled syncs its
        // file once more when the last handle goes, and panics if that fails: it must go in here.
        let parts = self.parts.take();
        let _ = guarded(move || parts.map_or(Ok(0), |p| p.db.flush()));
    }
}
