//! Stress test: writers, readers, collections and compactions beside each other.

use super::setup::*;
use mdl_objects::Id;
use mdl_repo::{
    Repo, Silent,
    storage::{LocalStorage, Storage},
};
use std::{
    sync::{
        Arc, Mutex,
        atomic::{AtomicBool, Ordering},
    },
    thread,
};
use tempfile::TempDir;

const WRITERS: u64 = 4;
const COMMITS: usize = 6;

fn storm(open: &(dyn Fn() -> Repo + Sync)) {
    let done: Mutex<Vec<(Id, Version)>> = Mutex::default();
    let over = AtomicBool::new(false);
    thread::scope(|scope| {
        let writers: Vec<_> = (0..WRITERS)
            .map(|w| {
                let done = &done;
                scope.spawn(move || {
                    let repo = open();
                    for version in run(COMMITS, w + 1, 400) {
                        let id = commit(&repo, &format!("branch-{w}"), &version);
                        // A version that is let go at once, and comes again: work for the collector.
                        let gone = format!("gone-{w}");
                        commit(&repo, &gone, &run(1, w % 2 + 50, 200)[0]);
                        drop_branch(&repo, &gone);
                        done.lock().expect("lock").push((id, version));
                    }
                })
            })
            .collect();
        scope.spawn(|| {
            let repo = open();
            while !over.load(Ordering::SeqCst) {
                mdl_repo::gc(&repo, &NOW, &Silent).expect("gc");
                mdl_repo::compact(&repo, &Default::default(), &Silent).expect("compact");
            }
        });
        scope.spawn(|| {
            let (repo, mut noise) = (open(), Noise(3));
            while !over.load(Ordering::SeqCst) {
                let pick = {
                    let all = done.lock().expect("lock");
                    let at = noise.next() as usize % all.len().max(1);
                    all.get(at).cloned()
                };
                if let Some((id, version)) = pick {
                    assert_version(&repo, &id, &version);
                }
            }
        });
        let ended: Vec<_> = writers.into_iter().map(thread::ScopedJoinHandle::join).collect();
        over.store(true, Ordering::SeqCst);
        assert!(ended.iter().all(Result::is_ok));
    });
    let repo = open();
    let all = done.into_inner().expect("lock");
    assert_eq!(all.len(), WRITERS as usize * COMMITS);
    all.iter().for_each(|(id, v)| assert_version(&repo, id, v));
    assert_clean(&repo);
}

#[test]
fn in_memory() {
    let (storage, _) = fresh();
    storm(&|| open(storage.clone()));
}

#[test]
fn in_a_directory() {
    let dir = TempDir::new().expect("temp dir");
    drop(Repo::init(dir.path(), false, "main", engine()).expect("init"));
    storm(&|| Repo::open(dir.path(), engine()).expect("open"));
}

#[test]
fn in_one_process_over_one_handle() {
    let dir = TempDir::new().expect("temp dir");
    let storage: Arc<dyn Storage> = Arc::new(LocalStorage::new(dir.path()));
    drop(Repo::init_storage(storage.clone(), "main", engine()).expect("init"));
    storm(&|| Repo::with_storage(storage.clone(), engine(), None, None, None).expect("open"));
}
