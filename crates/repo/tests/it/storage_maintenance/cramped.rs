//! Collections on a disk without room for all packs that they write: what stays, and how much work it is.

use super::setup::*;
use mdl_repo::{Repo, Silent};
use std::sync::{
    Arc,
    atomic::{AtomicU64, Ordering},
};

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
    let reads = Arc::new(AtomicU64::new(0));
    let counted = reads.clone();
    let count = Arc::new(move |_: &str| {
        counted.fetch_add(1, Ordering::Relaxed);
        Ok(())
    });
    let repo: Repo = open(Watched { inner: storage.clone(), before: count, capacity: Some(before + room) });
    reads.store(0, Ordering::Relaxed);
    mdl_repo::gc(&repo, &NOW, &Silent).expect("gc");
    let reads = reads.load(Ordering::Relaxed);
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
