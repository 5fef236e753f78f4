//! Aging in a storage whose locks exclude nobody, as in object stores: exact contents are doomed before they go.

use super::run::{NOW, Run, Training};
use mdl_repo::{
    GcOptions, Repo, Result, Silent,
    storage::{Guard, Key, MemoryStorage, Prefix, Storage, StoredKey, Swap, Upload},
};
use std::time::Duration;

/// Locks that mean nothing.
#[derive(Clone, Debug)]
struct Unlocked(MemoryStorage);

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

fn run() -> Run {
    let mut run = Run::new("");
    let (storage, _) = crate::support::fresh();
    run.p.repo = crate::support::open(Unlocked(storage));
    run.keep("exact_latest = 1");
    run
}

fn collect(repo: &Repo, grace: Duration) -> u64 {
    mdl_repo::gc(repo, &GcOptions { grace: Some(grace), ..NOW }, &Silent).expect("gc").packs_waiting
}

#[test]
fn exact_contents_go_in_two_phases() {
    let mut run = run();
    run.on(3);
    assert_eq!(run.aged(), [0, 1]);
    run.are_exact(&[0, 1, 2]);
    // Doomed, and still there for those who read them.
    assert!(collect(&run.p.repo, Duration::from_secs(3600)) > 0);
    run.are_exact(&[0, 1, 2]);
    assert_eq!(collect(&run.p.repo, Duration::ZERO), 0);
    run.are_exact(&[2]);
    run.on(2);
    collect(&run.p.repo, Duration::ZERO);
    run.are_exact(&[4]);
}

#[test]
fn what_is_doomed_comes_back_by_an_undoing_a_name_or_a_commit() {
    let mut run = run();
    run.on(4);
    assert!(collect(&run.p.repo, Duration::from_secs(3600)) > 0);
    mdl_repo::undo_prune(&run.p.repo, Some(&[run.all[0].id])).expect("still there");
    mdl_repo::create_tag(&run.p.repo, "t", &run.all[1].id, None, false).expect("tag");
    collect(&run.p.repo, Duration::ZERO);
    run.are_exact(&[0, 1, 3]);
    run.on(1);
    collect(&run.p.repo, Duration::ZERO);
    run.are_exact(&[1, 4]);
}

#[test]
fn another_writer_at_the_same_time_loses_no_mark() {
    let (storage, _) = crate::support::fresh();
    let mut run = Run::new("");
    run.p.repo = crate::support::open(Unlocked(storage.clone()));
    run.keep("exact_latest = 1");
    run.on(1);
    let tip = run.all[0].id;
    let fork = |name: &str, seed: u64| {
        let mut other = Run { training: Training::new(seed), ..Run::new("") };
        other.p.repo = crate::support::open(Unlocked(storage.clone()));
        mdl_repo::create_branch(&other.p.repo, name, &tip, false).expect("branch");
        (other, name.to_owned())
    };
    let writers = [fork("a", 1), fork("b", 2), fork("c", 3)];
    let done: Vec<Run> = std::thread::scope(|s| {
        let started: Vec<_> = writers
            .map(|(mut run, name)| {
                s.spawn(move || {
                    for _ in 0..4 {
                        run.commit(mdl_repo::CommitRequest { branch: Some(name.clone()), ..Default::default() });
                    }
                    run
                })
            })
            .into_iter()
            .collect();
        started.into_iter().map(|t| t.join().expect("a writer")).collect()
    });
    let repo = crate::support::open(Unlocked(storage.clone()));
    let record = mdl_repo::pruned(&repo).expect("the record");
    for run in &done {
        assert!(run.all[..3].iter().all(|v| record.aged(&v.id).is_some()));
        assert!(record.aged(&run.all[3].id).is_none());
    }
    collect(&repo, Duration::ZERO);
    for run in &done {
        for (n, version) in run.all.iter().enumerate() {
            version.gives(&repo, n == 3, &format!("version {n}"));
        }
    }
    super::run::is_clean(&repo);
}
