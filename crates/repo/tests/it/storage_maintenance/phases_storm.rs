//! Stress test: writers beside collectors with no lock between them, for many rounds.

use super::{setup::*, unlocked::*};
use mdl_objects::Id;
use mdl_repo::{ErrorKind, Repo, RepoError, Silent, storage::MemoryStorage};
use std::{
    sync::{
        Mutex,
        atomic::{AtomicBool, AtomicU64, Ordering},
    },
    thread,
    time::Duration,
};

const WRITERS: u64 = 4;
const ROUNDS: usize = 40;
/// Time for a commit, many times over, and short enough to be over many times.
const SHORT: Duration = Duration::from_millis(120);

/// Whether a writer was overtaken: it looks again and does the same.
fn overtaken(e: &RepoError) -> bool {
    matches!(e.kind(), ErrorKind::Conflict | ErrorKind::NotFound)
}

fn insist<T>(retries: &AtomicU64, f: impl Fn() -> mdl_repo::Result<T>) -> T {
    for _ in 0..50 {
        match f() {
            Err(e) if overtaken(&e) => retries.fetch_add(1, Ordering::SeqCst),
            done => return done.expect("a writer"),
        };
    }
    unreachable!("overtaken fifty times in a row")
}

/// Commits a run and, between, versions that are let go at once, come again, or are brought back by their ids.
fn write(repo: &Repo, w: u64, retries: &AtomicU64, done: &Mutex<Vec<(Id, Version)>>) {
    let keep = |id, v: &Version| done.lock().expect("lock").push((id, v.clone()));
    for (i, version) in run(ROUNDS, w + 1, 300).iter().enumerate() {
        let main = format!("branch-{w}");
        keep(insist(retries, || try_commit(repo, &main, version)).id, version);
        let (old, name) = (run(2, i as u64 % 3 + 50, 200).remove(i % 2), format!("gone-{w}"));
        let gone = insist(retries, || try_commit(repo, &name, &old)).id;
        drop_branch(repo, &name);
        match i % 3 {
            0 => match mdl_repo::create_branch(repo, &format!("back-{w}-{i}"), &gone, false) {
                Ok(()) => keep(gone, &old),
                Err(e) => assert!(overtaken(&e), "{e}"),
            },
            1 => keep(insist(retries, || try_commit(repo, &format!("old-{w}-{i}"), &old)).id, &old),
            _ => {}
        }
    }
}

fn storm(storage: &MemoryStorage, collectors: usize) {
    let (done, over) = (Mutex::default(), AtomicBool::new(false));
    let (retries, deleted, rounds) = (AtomicU64::new(0), AtomicU64::new(0), AtomicU64::new(0));
    thread::scope(|scope| {
        let writers: Vec<_> = (0..WRITERS)
            .map(|w| {
                let (done, retries) = (&done, &retries);
                scope.spawn(move || write(&at(storage), w, retries, done))
            })
            .collect();
        for c in 0..collectors {
            let (over, deleted, rounds) = (&over, &deleted, &rounds);
            scope.spawn(move || {
                let repo = at(storage);
                while !over.load(Ordering::SeqCst) {
                    match try_collect(&repo, SHORT) {
                        Ok(report) => deleted.fetch_add(report.packs_deleted, Ordering::SeqCst),
                        Err(e) => u64::from(!overtaken(&e)) * unreachable_error(&e),
                    };
                    rounds.fetch_add(1, Ordering::SeqCst);
                    if c == 0 {
                        let compacted = mdl_repo::compact(&repo, &Default::default(), &Silent);
                        assert!(compacted.as_ref().err().is_none_or(overtaken), "{compacted:?}");
                    }
                }
            });
        }
        let ended: Vec<_> = writers.into_iter().map(thread::ScopedJoinHandle::join).collect();
        over.store(true, Ordering::SeqCst);
        assert!(ended.iter().all(Result::is_ok));
    });
    for _ in 0..3 {
        thread::sleep(SHORT);
        collect(&at(storage), SHORT);
    }
    let (repo, all) = (at(storage), done.into_inner().expect("lock"));
    println!("{} versions, {rounds:?} collections, {deleted:?} packs deleted, {retries:?} times overtaken", all.len());
    assert!(deleted.into_inner() > 0, "nothing was collected beside the writers");
    all.iter().for_each(|(id, v)| assert_version(&repo, id, v));
    assert_clean(&repo);
}

fn unreachable_error(e: &RepoError) -> u64 {
    unreachable!("a collection failed: {e}")
}

#[test]
fn beside_one_collector() {
    storm(&unlocked().0, 1);
}

#[test]
fn beside_three_collectors() {
    storm(&unlocked().0, 3);
}
