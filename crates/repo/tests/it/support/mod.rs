//! What the tests of this crate share: throw-away repositories and generated checkpoint files.
#![allow(dead_code, reason = "each test binary uses its part")]

use mdl_codec::{CpuEngine, Engine};
use mdl_objects::{Commit, Id, Kind, Signature};
use mdl_repo::{
    CheckoutOptions, CommitRequest, Committed, Content, NewFile, Repo, Result, Silent,
    pack::{NewObject, PackWriter},
    storage::{MemoryStorage, Prefix, Storage},
};
use std::{path::Path, sync::Arc};
use tempfile::TempDir;

pub fn engine() -> Arc<dyn Engine> {
    Arc::new(CpuEngine::new())
}

/// A repository in a directory of its own.
pub struct Place {
    pub dir: TempDir,
    pub repo: Repo,
}

pub fn place() -> Place {
    let dir = TempDir::new().expect("temp dir");
    let (repo, fresh) = Repo::init(dir.path(), false, "main", engine()).expect("init");
    assert!(fresh);
    Place { dir, repo }
}

impl Place {
    pub fn path(&self) -> &Path {
        self.dir.path()
    }

    pub fn write(&self, rel: &str, bytes: &[u8]) {
        let path = self.path().join(rel);
        std::fs::create_dir_all(path.parent().expect("parent")).expect("dirs");
        std::fs::write(path, bytes).expect("write");
    }

    pub fn read(&self, rel: &str) -> Vec<u8> {
        std::fs::read(self.path().join(rel)).expect("read")
    }

    pub fn try_commit(&self, message: &str) -> Result<Committed> {
        let request = CommitRequest { message: message.to_owned(), ..CommitRequest::default() };
        mdl_repo::commit(&self.repo, &request, &Silent)
    }

    pub fn commit(&self, message: &str) -> Committed {
        self.try_commit(message).expect("commit")
    }

    /// Leaves only what the packs have.
    pub fn drop_cache(&self) {
        self.repo.odb().cache().map(|cache| cache.retain(|_| false));
    }

    /// The same repository as another process would open it.
    pub fn reopen(&mut self) {
        self.repo.odb().release_index();
        self.repo = Repo::open(self.dir.path(), engine()).expect("reopen");
    }

    /// A file of a revision, by way of a checkout elsewhere.
    pub fn file_at(&self, rev: &str, rel: &str) -> Vec<u8> {
        let out = TempDir::new().expect("temp dir");
        let id = mdl_repo::resolve(&self.repo, rev).expect("revision");
        mdl_repo::checkout_to(&self.repo, &id, out.path(), &CheckoutOptions::default(), &Silent).expect("checkout");
        std::fs::read(out.path().join(rel)).expect("file")
    }

    /// A file as it was judged at a revision: of the approximation, where exact contents lie beside it.
    pub fn judged_at(&self, rev: &str, rel: &str) -> Vec<u8> {
        let (odb, id) = (self.repo.odb(), mdl_repo::resolve(&self.repo, rev).expect("revision"));
        let commit = odb.commit(&id).expect("commit");
        let files = odb.files(&commit.approximation.unwrap_or(commit.tree)).expect("files");
        let entry = &files[rel];
        odb.read_range(entry, 0, entry.size).expect("file")
    }
}

/// A repository in memory, and its storage.
pub fn fresh() -> (MemoryStorage, Repo) {
    let storage = MemoryStorage::new();
    let repo = Repo::init_storage(Arc::new(storage.clone()), "main", engine()).expect("init");
    (storage, repo)
}

pub fn open(storage: impl Storage + 'static) -> Repo {
    Repo::with_storage(Arc::new(storage), engine(), None, None, None).expect("open")
}

/// A copy that shares nothing.
pub fn duplicate(storage: &dyn Storage) -> MemoryStorage {
    let copy = MemoryStorage::new();
    for s in storage.list(&Prefix::ALL).expect("list") {
        let value = storage.get(&s.key).expect("get").expect("listed");
        copy.put(&s.key, &value).expect("put");
    }
    copy
}

/// A file that is not on disk.
pub fn memory(rel: &str, bytes: impl AsRef<[u8]>) -> NewFile {
    let content = Content::Memory(Arc::new(bytes.as_ref().to_vec()));
    NewFile { rel: rel.to_owned(), executable: false, content }
}

/// Puts an object of these canonical bytes into a pack.
pub fn add_object(pack: &mut PackWriter, kind: Kind, bytes: &[u8]) -> Id {
    let id = Id::from_content(kind, bytes);
    let object = NewObject { id, kind, depth: 0, base: None, grandparent: None, logical: bytes.len() as u64 };
    pack.add(object, &[&[0], bytes].concat()).expect("add");
    id
}

/// A commit without parents that says nothing.
pub fn bare_commit(tree: Id, time_ms: i64) -> Commit {
    Commit {
        tree,
        parents: Vec::new(),
        author: Signature { name: "A".to_owned(), email: String::new(), time_ms, utc_offset_min: 0 },
        message: String::new(),
        step: None,
        epoch: None,
        metrics: Default::default(),
        meta: Default::default(),
        summary: Default::default(),
        report: None,
        resumed_from: None,
        quality: None,
        side: Vec::new(),
        resume: None,
        approximation: None,
        provenance: None,
        signature: None,
        unknown: Vec::new(),
    }
}

/// Deterministic noise.
pub struct Noise(pub u64);

impl Noise {
    pub fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        let x = self.0 ^ (self.0 >> 29);
        x.wrapping_mul(0xbf58_476d_1ce4_e5b9) ^ (x >> 32)
    }

    /// Roughly normal, standard deviation about 0.05, like weights.
    pub fn weight(&mut self) -> f32 {
        let sum: f64 = (0..6).map(|_| (self.next() >> 40) as f64 / (1u64 << 24) as f64 - 0.5).sum();
        (sum * 0.07) as f32
    }

    pub fn weights(&mut self, n: usize) -> Vec<f32> {
        (0..n).map(|_| self.weight()).collect()
    }

    /// Even in plus or minus 0.05: cheap where many are wanted.
    pub fn even(&mut self, n: usize) -> Vec<f32> {
        (0..n).map(|_| ((self.next() >> 40) as f32 / 16_777_216.0 - 0.5) * 0.1).collect()
    }

    pub fn bytes(&mut self, n: usize) -> Vec<u8> {
        (0..n).map(|_| self.next() as u8).collect()
    }
}

pub fn le(values: &[f32]) -> Vec<u8> {
    values.iter().flat_map(|v| v.to_le_bytes()).collect()
}

/// A safetensors file of f32 vectors.
pub fn safetensors(tensors: &[(&str, &[f32])]) -> Vec<u8> {
    let shapes: Vec<[u64; 1]> = tensors.iter().map(|(_, v)| [v.len() as u64]).collect();
    let shaped_: Vec<_> = tensors.iter().zip(&shapes).map(|((n, v), s)| (*n, s.as_slice(), *v)).collect();
    shaped(&shaped_)
}

/// A directory with all that is in it.
pub fn copy_dir(from: &Path, to: &Path) {
    std::fs::remove_dir_all(to).ok();
    std::fs::create_dir_all(to).expect("dirs");
    for entry in std::fs::read_dir(from).expect("list") {
        let entry = entry.expect("entry");
        let (from, to) = (entry.path(), to.join(entry.file_name()));
        if from.is_dir() {
            copy_dir(&from, &to);
        } else {
            std::fs::copy(&from, &to).expect("copy");
        }
    }
}

/// A safetensors file of f32 tensors: name, shape, elements.
pub fn shaped(tensors: &[(&str, &[u64], &[f32])]) -> Vec<u8> {
    let (mut header, mut data) = (serde_json::Map::new(), Vec::new());
    for (name, shape, values) in tensors {
        let start = data.len();
        data.extend(le(values));
        let entry = serde_json::json!({"dtype": "F32", "shape": shape, "data_offsets": [start, data.len()]});
        header.insert((*name).to_owned(), entry);
    }
    let header = serde_json::to_vec(&header).expect("json");
    let mut out = (header.len() as u64).to_le_bytes().to_vec();
    out.extend(header);
    out.extend(data);
    out
}
