//! Test fixtures: a root with repositories, checkpoints, and an app over it.

#![allow(dead_code, reason = "each test takes what it needs")]

pub mod http;
pub mod live;
#[path = "../../../../crates/codec/tests/it/xorshift.rs"]
mod xorshift;

use mdl_codec::CpuEngine;
use mdl_objects::{Entry, Id};
use mdl_repo::{CommitRequest, Content, NewFile, Repo, Silent};
use mdl_server::{Options, app::App, registry::RepoName};
use sha2::{Digest, Sha256};
use std::{collections::BTreeMap, path::Path, sync::Arc};
use xorshift::Xorshift;

/// A served directory that goes when it is dropped.
pub struct Root {
    pub dir: tempfile::TempDir,
}

/// Noise that is the same everywhere.
pub fn noise(seed: u64, len: usize) -> Vec<u8> {
    let mut noise = Xorshift::seeded(seed);
    (0..len).map(|_| (noise.next() >> 32) as u8).collect()
}

pub fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|b| format!("{b:02x}")).collect()
}

pub fn sha256(bytes: &[u8]) -> String {
    hex(&Sha256::digest(bytes))
}

/// Floats near zero as little-endian bytes, which differ a little from version to version.
pub fn weights(seed: u64, count: usize, version: u64) -> Vec<u8> {
    let base = noise(seed, count * 2);
    let drift = noise(seed ^ (version << 32), count);
    let value = |i: usize| {
        let raw = i16::from_le_bytes([base[2 * i], base[2 * i + 1]]);
        let moved = if version > 0 && drift[i] < 40 { f32::from(drift[i]) * 1e-6 } else { 0.0 };
        f32::from(raw) * 1e-6 + moved
    };
    (0..count).flat_map(|i| value(i).to_le_bytes()).collect()
}

/// A safetensors file of f32 matrices: name, rows, columns.
pub fn safetensors(tensors: &[(&str, usize, usize)], version: u64) -> Vec<u8> {
    let (mut header, mut data) = (serde_json::Map::new(), Vec::new());
    for (n, (name, rows, columns)) in tensors.iter().enumerate() {
        let bytes = weights(n as u64 + 1, rows * columns, version);
        let offsets = [data.len(), data.len() + bytes.len()];
        let about = serde_json::json!({"dtype": "F32", "shape": [rows, columns], "data_offsets": offsets});
        header.insert((*name).to_owned(), about);
        data.extend(bytes);
    }
    let mut text = serde_json::to_vec(&header).expect("JSON");
    text.resize(text.len().next_multiple_of(8), b' ');
    [(text.len() as u64).to_le_bytes().to_vec(), text, data].concat()
}

impl Root {
    pub fn new() -> Root {
        Root { dir: tempfile::tempdir().expect("a directory") }
    }

    pub fn path(&self) -> &Path {
        self.dir.path()
    }

    /// Makes a bare repository.
    pub fn repo(&self, name: &str) -> Repo {
        let engine = Arc::new(CpuEngine::new());
        Repo::init(&self.path().join(name), true, "main", engine).expect("a repository").0
    }

    pub fn options(&self) -> Options {
        Options::new(self.path())
    }

    pub fn app(&self, options: Options) -> App {
        App::new(options, Arc::new(CpuEngine::new())).expect("an app")
    }
}

/// A file that is not on disk.
pub fn memory(rel: &str, bytes: Vec<u8>) -> NewFile {
    NewFile { rel: rel.to_owned(), executable: false, content: Content::Memory(Arc::new(bytes)) }
}

/// Commits these files as the whole version.
pub fn commit(repo: &Repo, files: &[(&str, Vec<u8>)], message: &str, step: u64) -> Id {
    let request = CommitRequest {
        files: Some(files.iter().map(|(rel, bytes)| memory(rel, bytes.clone())).collect()),
        message: message.to_owned(),
        step: Some(step),
        metrics: BTreeMap::from([("loss".to_owned(), 1.0 / (step as f64 + 1.0))]),
        ..CommitRequest::default()
    };
    mdl_repo::commit(repo, &request, &Silent).expect("a commit").id
}

/// A file of a version.
pub fn entry(repo: &Repo, commit: &Id, path: &str) -> Entry {
    mdl_repo::files(repo, commit).expect("files").get(path).expect("the file").clone()
}

pub fn name(text: &str) -> RepoName {
    text.parse().expect("a name")
}
