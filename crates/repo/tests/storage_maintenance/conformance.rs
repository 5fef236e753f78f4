//! Each storage of this crate keeps the promises of `support/conformance.rs`; and what a directory promises besides. Neighbours: the
//! `Storage` trait. It must not know repositories.

#[path = "../support/conformance.rs"]
mod promises;

use mdl_repo::storage::Key;
use mdl_repo::storage::Prefix;
use mdl_repo::storage::{FaultStorage, LocalStorage, MemoryStorage, Storage};
use promises::{conforms, get};
use std::{sync::Arc, thread};
use tempfile::TempDir;

#[test]
fn a_directory_conforms() {
    let dir = TempDir::new().expect("temp dir");
    conforms(&LocalStorage::new(dir.path()));
}

#[test]
fn memory_conforms() {
    conforms(&MemoryStorage::new());
}

#[test]
fn the_fault_wrapper_without_a_fault_passes_everything_through() {
    conforms(&FaultStorage::new(Arc::new(MemoryStorage::new()), None));
    let dir = TempDir::new().expect("temp dir");
    conforms(&FaultStorage::new(Arc::new(LocalStorage::new(dir.path())), None));
}

#[test]
fn a_dead_upload_is_swept_and_a_live_one_is_not() {
    let dir = TempDir::new().expect("temp dir");
    let storage = LocalStorage::new(dir.path());
    let mut live = storage.upload().expect("upload");
    live.write(b"still being written").expect("write");
    std::fs::write(dir.path().join("tmp/dead"), b"12345").expect("write");
    assert_eq!(storage.sweep_uploads(true).expect("dry"), 5);
    assert_eq!(storage.sweep_uploads(false).expect("sweep"), 5);
    assert_eq!(storage.sweep_uploads(false).expect("sweep"), 0);
    live.finish(&Key::fixed("kept")).expect("finish");
    assert!(get(&storage, "kept").is_some());
}

#[test]
fn uploads_begin_and_end_while_dead_ones_are_swept() {
    let dir = TempDir::new().expect("temp dir");
    let storage = LocalStorage::new(dir.path());
    thread::scope(|scope| {
        let writers: Vec<_> = (0..2)
            .map(|w| {
                let storage = &storage;
                scope.spawn(move || {
                    (0..150).for_each(|_| {
                        storage
                            .put(&Prefix::ALL.key(&format!("k{w}")).expect("a key"), b"value")
                            .expect("put")
                    })
                })
            })
            .collect();
        while !writers.iter().all(thread::ScopedJoinHandle::is_finished) {
            storage.sweep_uploads(false).expect("sweep");
        }
    });
    assert!(get(&storage, "k0").is_some() && get(&storage, "k1").is_some());
}
