//! Streamed files: `stream_files` gives the bytes that `restore` writes, for files of every make, and never ends well
//! on wrong bytes.

use crate::support::{Noise, fresh, memory, open, safetensors};
use mdl_objects::{Entry, Id};
use mdl_repo::{
    CommitRequest, Progress, Repo, RepoError, Result, Silent, WriteAt,
    storage::{Key, Prefix, Storage},
};
use proptest::{collection::vec, prelude::*};
use std::{
    collections::BTreeMap,
    sync::{
        Mutex,
        atomic::{AtomicU64, Ordering},
    },
};

fn commit(repo: &Repo, files: &BTreeMap<String, Vec<u8>>) -> Id {
    let request = CommitRequest {
        files: Some(files.iter().map(|(rel, bytes)| memory(rel, bytes)).collect()),
        message: "files".to_owned(),
        allow_damaged: true,
        allow_empty: true,
        ..CommitRequest::default()
    };
    mdl_repo::commit(repo, &request, &Silent).expect("commit").id
}

fn streamed(repo: &Repo, entry: &Entry, progress: &dyn Progress) -> Result<Vec<u8>> {
    let mut out = Vec::new();
    repo.odb().stream_files(entry, progress, &mut |bytes| {
        out.extend_from_slice(bytes);
        Ok(())
    })?;
    Ok(out)
}

struct Restored(Mutex<Vec<u8>>);

impl WriteAt for Restored {
    fn write_at(&self, offset: u64, bytes: &[u8]) -> Result<()> {
        let mut out = self.0.lock().expect("lock");
        let end = offset as usize + bytes.len();
        if out.len() < end {
            out.resize(end, 0);
        }
        out[offset as usize..end].copy_from_slice(bytes);
        Ok(())
    }
}

fn restored(repo: &Repo, entry: &Entry) -> Vec<u8> {
    let out = Restored(Mutex::default());
    repo.odb().restore(entry, &out, &Silent).expect("restore");
    out.0.into_inner().expect("lock")
}

/// A GGUF file of f32 vectors: between most of them there are bytes of no tensor.
fn gguf(tensors: &[Vec<f32>], tail: &[u8]) -> Vec<u8> {
    let mut out = b"GGUF\x03\0\0\0".to_vec();
    out.extend((tensors.len() as u64).to_le_bytes());
    out.extend(0u64.to_le_bytes());
    let mut data = Vec::new();
    for (i, t) in tensors.iter().enumerate() {
        let name = format!("t{i}");
        out.extend((name.len() as u64).to_le_bytes());
        out.extend(name.bytes());
        out.extend(1u32.to_le_bytes());
        out.extend((t.len() as u64).to_le_bytes());
        out.extend(0u32.to_le_bytes());
        out.extend((data.len() as u64).to_le_bytes());
        data.extend(crate::support::le(t));
        data.resize(data.len().next_multiple_of(32), 7);
    }
    out.resize(out.len().next_multiple_of(32), 0);
    out.extend(data);
    out.extend(tail);
    out
}

fn file() -> impl Strategy<Value = Vec<u8>> {
    let lengths = prop_oneof![vec(0..70usize, 0..12), vec(1..40_000usize, 0..4)];
    (0..3u8, any::<u64>(), lengths, vec(any::<u8>(), 0..40)).prop_map(|(make, seed, lengths, tail)| {
        let mut noise = Noise(seed);
        let tensors: Vec<Vec<f32>> = lengths.iter().map(|&n| noise.weights(n)).collect();
        match make {
            0 => noise.bytes(lengths.iter().sum::<usize>() * 40),
            1 => gguf(&tensors, &tail),
            _ => {
                let names: Vec<String> = (0..tensors.len()).map(|i| format!("layer.{i}")).collect();
                let named: Vec<_> = names.iter().zip(&tensors).map(|(n, t)| (n.as_str(), t.as_slice())).collect();
                safetensors(&named)
            }
        }
    })
}

/// The file a step later: the same make, most bytes nearly the same.
fn later(file: &[u8]) -> Vec<u8> {
    let mut out = file.to_vec();
    let from = out.len() / 2;
    out[from..].iter_mut().step_by(4).for_each(|b| *b = b.wrapping_add(1));
    out
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(48))]
    #[test]
    fn files_come_in_order_and_whole(files in vec(file(), 1..3)) {
        let (_, repo) = fresh();
        let named = |f: &dyn Fn(&[u8]) -> Vec<u8>| -> BTreeMap<String, Vec<u8>> {
            files.iter().enumerate().map(|(i, bytes)| (format!("dir/{i}"), f(bytes))).collect()
        };
        let versions = [named(&|b| b.to_vec()), named(&later)];
        for version in &versions {
            let id = commit(&repo, version);
            for (path, entry) in mdl_repo::files(&repo, &id).expect("files") {
                let bytes = streamed(&repo, &entry, &Silent).expect("pour");
                prop_assert!(bytes == restored(&repo, &entry), "not as restored");
                prop_assert!(bytes == version[&path], "not as committed");
            }
        }
    }
}

/// A small tensor, one of several segments, an empty one, small ones again.
fn long() -> Vec<u8> {
    let mut noise = Noise(5);
    let big = noise.weights(5 << 20);
    let small = noise.weights(1000);
    safetensors(&[("a", &small), ("big", &big), ("none", &[]), ("y", &small[1..]), ("z", &small[2..])])
}

#[test]
fn a_large_tensor_is_streamed_between_small_ones() {
    let (_, repo) = fresh();
    let bytes = long();
    let id = commit(&repo, &[("m.safetensors".to_owned(), bytes.clone())].into());
    let entry = &mdl_repo::files(&repo, &id).expect("files")["m.safetensors"];
    let mut largest = 0;
    let mut out = Vec::new();
    repo.odb()
        .stream_files(entry, &Silent, &mut |part| {
            largest = largest.max(part.len());
            out.extend_from_slice(part);
            Ok(())
        })
        .expect("pour");
    assert!(out == bytes);
    assert!(largest <= 8 << 20, "a piece of {largest} bytes");
}

#[test]
fn whoever_listens_may_end_it() {
    let (_, repo) = fresh();
    let id = commit(&repo, &[("m.safetensors".to_owned(), long())].into());
    let entry = &mdl_repo::files(&repo, &id).expect("files")["m.safetensors"];
    let full = repo.odb().stream_files(entry, &Silent, &mut |_| Err(RepoError::user("full", "")));
    assert_eq!(full.expect_err("the sink's error").to_string(), "full");
    struct After(AtomicU64);
    impl Progress for After {
        fn begin(&self, _what: &str, _total: u64) {}
        fn advance(&self, n: u64) {
            self.0.fetch_add(n, Ordering::Relaxed);
        }
        fn end(&self) {}
        fn stopped(&self) -> bool {
            self.0.load(Ordering::Relaxed) > 4 << 20
        }
    }
    let stopped = streamed(&repo, entry, &After(AtomicU64::new(0)));
    assert!(matches!(stopped, Err(RepoError::Stopped { .. })));
}

#[test]
fn damage_is_an_error_and_never_other_bytes() {
    let (storage, repo) = fresh();
    let mut noise = Noise(9);
    let tensors: Vec<Vec<f32>> = [30, 7, 64].iter().map(|&n| noise.weights(n)).collect();
    let file = gguf(&tensors, b"and a tail");
    let blob = noise.bytes(200);
    for version in [[&file, &blob], [&later(&file), &later(&blob)]] {
        let [a, b] = version.map(Clone::clone);
        commit(&repo, &[("a.gguf".to_owned(), a), ("b".to_owned(), b)].into());
    }
    let right = [later(&file), later(&blob)];
    let tip = mdl_repo::resolve(&repo, "main").expect("main");
    let entries: Vec<Entry> = mdl_repo::files(&repo, &tip).expect("files").into_values().collect();
    let packs: Vec<Key> = storage.list(&Prefix::fixed("packs/")).expect("list").into_iter().map(|s| s.key).collect();
    let (mut errors, mut good) = (0, 0);
    for key in packs {
        let whole = storage.get(&key).expect("get").expect("pack");
        for at in 0..whole.len() {
            let mut bytes = whole.clone();
            bytes[at] ^= 1 << (at % 8);
            storage.put(&key, &bytes).expect("put");
            let repo = open(storage.clone());
            for (entry, right) in entries.iter().zip(&right) {
                match streamed(&repo, entry, &Silent) {
                    Ok(out) => {
                        assert!(out == *right, "wrong bytes after a flip at {at}");
                        good += 1;
                    }
                    Err(_) => errors += 1,
                }
            }
        }
        storage.put(&key, &whole).expect("put");
    }
    assert!(errors > 100 && good > 100, "{errors} errors, {good} sound");
}
