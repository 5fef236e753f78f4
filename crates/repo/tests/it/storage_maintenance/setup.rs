//! What these tests share: repositories in memory, generated checkpoints, versions compared byte for byte.

use mdl_objects::{Commit, Entry, Id, Kind};
use mdl_repo::{
    CheckoutOptions, CommitRequest, Committed, FsckReport, GcOptions, HEADS, Progress, RefName, Repo, Result, Silent,
    WriteTransaction,
    storage::{Guard, Key, MemoryStorage, Prefix, Storage, StoredKey, Swap, Upload},
};
use mdl_store::{
    object_db::Files,
    transaction::MaintenanceLock,
    write::{BaseRule, Chains, Hints, Ingest, Ingested, Policy, Report, Sink, store_trees},
};
use std::{collections::BTreeMap, path::Path, sync::Arc};
use tempfile::TempDir;

pub use crate::support::{Noise, add_object, bare_commit, duplicate, engine, fresh, memory, open, safetensors};

/// A collection that neither age nor the reflog keeps anything from, and one that they do.
pub const NOW: GcOptions = GcOptions { prune_now: true, ..GENTLE };
pub const GENTLE: GcOptions = GcOptions { dry_run: false, prune_now: false, grace: None };

/// What is asked before a key is read.
pub type BeforeRead = dyn Fn(&str) -> Result<()> + Send + Sync;

/// A storage in memory that asks before it reads a key: an answer that is an error is what the reader gets. With a
/// capacity it tells how much room is left for packs.
#[derive(Clone)]
pub struct Watched {
    pub inner: MemoryStorage,
    pub before: Arc<BeforeRead>,
    pub capacity: Option<u64>,
}

impl std::fmt::Debug for Watched {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        self.inner.fmt(f)
    }
}

impl Storage for Watched {
    fn get_within(&self, key: &Key, most: u64) -> Result<Option<Vec<u8>>> {
        (self.before)(key)?;
        self.inner.get_within(key, most)
    }
    fn read_at(&self, key: &Key, offset: u64, buf: &mut [u8]) -> Result<()> {
        (self.before)(key)?;
        self.inner.read_at(key, offset, buf)
    }
    fn room(&self) -> Result<Option<u64>> {
        Ok(self.capacity.map(|capacity| capacity.saturating_sub(packed_bytes(&self.inner))))
    }
    fn size(&self, key: &Key) -> Result<Option<u64>> {
        (self.before)(key)?;
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

/// Does something else when work ends.
pub struct AtEnd<F>(pub F);

impl<F: Fn() + Sync> Progress for AtEnd<F> {
    fn begin(&self, _what: &str, _total: u64) {}
    fn advance(&self, _n: u64) {}
    fn end(&self) {
        (self.0)();
    }
}

pub type Version = BTreeMap<String, Vec<u8>>;

/// Weights one small training step later.
pub fn step(values: &[f32], noise: &mut Noise) -> Vec<f32> {
    values.iter().map(|v| v + (noise.next() >> 40) as f32 * 1e-13).collect()
}

/// Versions of a small training run: two tensors that drift, one that is frozen, and a text file.
pub fn run(n: usize, seed: u64, len: usize) -> Vec<Version> {
    let mut noise = Noise(seed);
    let (mut a, mut b) = (noise.even(len), noise.even(len / 2));
    let frozen = noise.even(len / 4);
    (0..n)
        .map(|i| {
            let file = safetensors(&[("a", &a), ("b", &b), ("frozen", &frozen)]);
            a = step(&a, &mut noise);
            b = step(&b, &mut noise);
            Version::from([
                ("model.safetensors".to_owned(), file),
                ("sub/state.json".to_owned(), format!("{{\"seed\": {seed}, \"step\": {i}}}").into_bytes()),
            ])
        })
        .collect()
}

pub fn write(version: &Version, dir: &Path) {
    for (rel, bytes) in version {
        let path = dir.join(rel);
        std::fs::create_dir_all(path.parent().expect("parent")).expect("dirs");
        std::fs::write(path, bytes).expect("write");
    }
}

pub fn try_commit(repo: &Repo, branch: &str, version: &Version) -> Result<Committed> {
    let dir = TempDir::new().expect("temp dir");
    write(version, dir.path());
    let request = CommitRequest {
        source: Some(dir.path().to_owned()),
        message: "a version".to_owned(),
        branch: Some(branch.to_owned()),
        ..CommitRequest::default()
    };
    mdl_repo::commit(repo, &request, &Silent)
}

pub fn commit(repo: &Repo, branch: &str, version: &Version) -> Id {
    try_commit(repo, branch, version).expect("commit").id
}

pub fn commit_all(repo: &Repo, branch: &str, versions: &[Version]) {
    for version in versions {
        commit(repo, branch, version);
    }
}

/// Commits a version as programs did before there were skip deltas: every tensor as a difference to the parent's.
pub fn commit_in_line(repo: &Repo, branch: &str, version: &Version) -> Id {
    let name = RefName::parse(&format!("{HEADS}{branch}")).expect("a name");
    let transaction = WriteTransaction::begin(repo).expect("lock");
    let parent = repo.refs().get(&name).expect("ref");
    let tree = parent.map(|id| repo.odb().commit(&id).expect("parent").tree);
    let old = tree.map(|tree| repo.odb().files(&tree).expect("files")).unwrap_or_default();
    let mut pack = transaction.pack(parent).expect("pack");
    let chains = Chains { max_depth: 250, rule: BaseRule::Parent };
    let mut ingest = Ingest {
        odb: repo.odb(),
        sink: Sink::Pack(&mut pack),
        policy: Policy { chains, allow_damaged: false },
        hints: &Hints::default(),
        progress: &Silent,
        report: Report::default(),
    };
    let mut files = Files::new();
    for (rel, bytes) in version {
        let done = ingest.source(bytes, Path::new(rel), rel, old.get(rel)).expect("ingested");
        let Ingested { mode, id, size } = done;
        files.insert(rel.clone(), Entry { name: String::new(), mode, executable: false, size, id });
    }
    let tree = store_trees(&mut ingest, &files).expect("trees");
    let commit = Commit { parents: parent.into_iter().collect(), ..bare_commit(tree, 1) };
    let id = ingest.object(Kind::Commit, &commit.encode()).expect("commit");
    drop(ingest);
    transaction.publish(pack).expect("published");
    transaction.update_ref(&name, parent, Some(id), &repo.config().signature(), "committed").expect("moved");
    id
}

/// Commits two versions to main, the second with tensors of a branch that is deleted then: packs of the branch are
/// mixed.
pub fn mixed(repo: &Repo, main: &[Version], side: &[Version]) -> Vec<(Id, Version)> {
    let first = (commit(repo, "main", &main[0]), main[0].clone());
    commit_all(repo, "side", side);
    let mut both = main[1].clone();
    both.insert("other.safetensors".to_owned(), side[1]["model.safetensors"].clone());
    let second = (commit(repo, "main", &both), both);
    drop_branch(repo, "side");
    vec![first, second]
}

pub fn checkout(repo: &Repo, id: &Id) -> Result<Version> {
    let dir = TempDir::new().expect("temp dir");
    mdl_repo::checkout_to(repo, id, dir.path(), &CheckoutOptions::default(), &Silent)?;
    let files = repo.odb().files(&repo.odb().commit(id)?.tree)?;
    let read = |rel: &String| (rel.clone(), std::fs::read(dir.path().join(rel)).expect("read"));
    Ok(files.keys().map(read).collect())
}

/// Sets a setting of the repository in a storage.
pub fn set(storage: &MemoryStorage, key: &str, value: &str) {
    open(storage.clone()).set_config(key, Some(value)).expect("set");
}

pub fn packs(storage: &dyn Storage) -> Vec<Key> {
    storage.list(&Prefix::fixed("packs/")).expect("list").into_iter().map(|s| s.key).collect()
}

pub fn packed_bytes(storage: &dyn Storage) -> u64 {
    storage.list(&Prefix::fixed("packs/")).expect("list").iter().map(|s| s.size).sum()
}

/// Moves a ref from wherever it stands; none: it goes.
pub fn move_ref(repo: &Repo, name: &str, to: Option<Id>) {
    let name = &RefName::parse(name).expect("a name");
    let transaction = WriteTransaction::begin(repo).expect("lock");
    let (old, who) = (repo.refs().get(name).expect("ref"), repo.config().signature());
    transaction.update_ref(name, old, to, &who, "moved").expect("move");
}

pub fn drop_branch(repo: &Repo, name: &str) {
    move_ref(repo, &format!("{HEADS}{name}"), None);
}

/// No log remembers anything any more.
pub fn forget(repo: &Repo) {
    let lock = MaintenanceLock::beside_writers(repo).expect("lock");
    for name in repo.refs().logged().expect("logs") {
        lock.keep_log(&name, &|_| false).expect("forget");
    }
}

pub fn fsck(repo: &Repo) -> FsckReport {
    let quick = mdl_repo::fsck(repo, true, &Silent).expect("quick fsck");
    let full = mdl_repo::fsck(repo, false, &Silent).expect("fsck");
    assert!(quick.problems.len() <= full.problems.len(), "quick found more: {quick:?}");
    full
}

#[track_caller]
pub fn assert_clean(repo: &Repo) {
    let report = fsck(repo);
    assert_eq!(report.problems, [], "fsck is not clean");
}

/// Moves `main` from `tip` to a commit of the same version that has no parents.
pub fn squash(repo: &Repo, tip: Id) -> Id {
    let orphan = mdl_objects::Commit { parents: vec![], report: None, ..repo.odb().commit(&tip).expect("commit") };
    let transaction = WriteTransaction::begin(repo).expect("lock");
    let mut pack = transaction.pack([]).expect("pack");
    let id = add_object(&mut pack, mdl_objects::Kind::Commit, &orphan.encode());
    transaction.publish(pack).expect("published");
    move_ref(repo, "refs/heads/main", Some(id));
    id
}

#[track_caller]
pub fn assert_version(repo: &Repo, id: &Id, version: &Version) {
    assert!(checkout(repo, id).expect("checkout") == *version, "version {id} came back changed");
}
