//! Long work that is cancelled: it ends at every step it asks at, and what it leaves is sound.

use crate::support::{Noise, duplicate, fresh, memory, open, safetensors};
use mdl_objects::Id;
use mdl_repo::{
    CompactOptions, ErrorKind, GcOptions, Progress, Repo, RepoError, Result, Silent,
    storage::{MemoryStorage, Prefix},
};
use std::{
    collections::BTreeMap,
    sync::atomic::{AtomicU64, Ordering},
};

/// Wants no more after this many questions.
struct After {
    asked: AtomicU64,
    most: u64,
}

fn after(most: u64) -> After {
    let asked = AtomicU64::new(0);
    After { asked, most }
}

impl Progress for After {
    fn begin(&self, _what: &str, _total: u64) {}
    fn advance(&self, _n: u64) {}
    fn end(&self) {}
    fn stopped(&self) -> bool {
        self.asked.fetch_add(1, Ordering::Relaxed) >= self.most
    }
}

fn request(seed: u64, branch: &str) -> mdl_repo::CommitRequest {
    let mut noise = Noise(77);
    let mut drift = Noise(seed);
    let step = |v: Vec<f32>, drift: &mut Noise| v.into_iter().map(|x| x + drift.weight() * 1e-4).collect::<Vec<_>>();
    let (a, b) = (step(noise.weights(900), &mut drift), step(noise.weights(300), &mut drift));
    mdl_repo::CommitRequest {
        files: Some(vec![
            memory("m.safetensors", safetensors(&[("a", &a), ("b", &b)])),
            memory("state", format!("{seed} {branch}")),
        ]),
        message: "a version".to_owned(),
        branch: Some(branch.to_owned()),
        ..Default::default()
    }
}

/// Two branches of versions with long chains, of which one branch is deleted again: garbage in many packs.
fn given() -> MemoryStorage {
    let (storage, repo) = fresh();
    for seed in 0..6 {
        mdl_repo::commit(&repo, &request(seed, "main"), &Silent).expect("commit");
        mdl_repo::commit(&repo, &request(seed + 100, "gone"), &Silent).expect("commit");
    }
    mdl_repo::delete_branch(&repo, "gone", true, &Silent).expect("deleted");
    storage
}

type Versions = BTreeMap<Id, Vec<Vec<u8>>>;

fn versions(repo: &Repo) -> Versions {
    let tip = mdl_repo::resolve(repo, "main").expect("main");
    let of = |id: Id| {
        let read = |e: mdl_objects::Entry| {
            let mut out = Vec::new();
            let mut sink = |bytes: &[u8]| {
                out.extend_from_slice(bytes);
                Ok(())
            };
            repo.odb().stream_files(&e, &Silent, &mut sink).expect("pour");
            out
        };
        (id, mdl_repo::files(repo, &id).expect("files").into_values().map(read).collect())
    };
    mdl_repo::history(repo, &[tip]).expect("history").map(|s| of(s.expect("step").id)).collect()
}

/// Stops the work at every step it asks at; each time all is there, the check finds nothing, and the work can be done
/// anew. Returns how often it was stopped.
fn stopped_everywhere(work: impl Fn(&Repo, &dyn Progress) -> Result<()>, look: impl Fn(&Repo)) -> u64 {
    let given = given();
    let right = versions(&open(given.clone()));
    for most in 0.. {
        let storage = duplicate(&given);
        let repo = open(storage.clone());
        let done = work(&repo, &after(most));
        for repo in [&repo, &open(storage.clone())] {
            assert!(versions(repo) == right, "a version changed, stopped after {most}");
            let report = mdl_repo::fsck(repo, false, &Silent).expect("fsck");
            assert_eq!(report.problems, [], "stopped after {most}");
            assert_eq!(repo.storage().sweep_uploads(true).expect("uploads"), 0);
        }
        match done {
            Ok(()) => return most,
            Err(e) => assert!(matches!(e, RepoError::Stopped { .. }), "{e}"),
        }
        if most % 3 == 0 {
            work(&repo, &Silent).expect("once more, to its end");
            assert!(versions(&repo) == right, "a version changed after {most}");
            look(&repo);
        }
    }
    0
}

#[test]
fn a_collection() {
    let options = GcOptions { dry_run: false, prune_now: true, grace: None };
    let steps = stopped_everywhere(
        |repo, progress| mdl_repo::gc(repo, &options, progress).map(drop),
        |repo| assert_eq!(mdl_repo::gc(repo, &options, &Silent).expect("gc").bytes_freed, 0),
    );
    assert!(steps > 8, "{steps} steps");
}

#[test]
fn a_compaction() {
    let options = CompactOptions::default();
    let steps = stopped_everywhere(
        |repo, progress| mdl_repo::compact(repo, &options, progress).map(drop),
        |repo| {
            let again = mdl_repo::compact(repo, &options, &Silent).expect("compact");
            assert_eq!((again.tensors_reencoded, again.packs_before), (0, again.packs_after));
        },
    );
    assert!(steps > 20, "{steps} steps");
}

#[test]
fn a_check_says_nothing_it_does_not_know() {
    let steps = stopped_everywhere(
        |repo, progress| mdl_repo::fsck(repo, false, progress).map(|report| assert_eq!(report.problems, [])),
        |_| (),
    );
    assert!(steps > 20, "{steps} steps");
}

#[test]
fn a_commit() {
    let steps = stopped_everywhere(
        |repo, progress| {
            let tip = mdl_repo::resolve(repo, "main").expect("main");
            let packs = repo.storage().list(&Prefix::fixed("packs/")).expect("list").len();
            match mdl_repo::commit(repo, &request(50, "other"), progress) {
                Ok(done) => {
                    assert_eq!(mdl_repo::resolve(repo, "other").expect("made"), done.id);
                    mdl_repo::delete_branch(repo, "other", true, &Silent).map(drop)
                }
                Err(e) => {
                    assert_eq!(e.kind(), ErrorKind::User);
                    assert_eq!(mdl_repo::resolve(repo, "main").expect("main"), tip);
                    mdl_repo::resolve(repo, "other").expect_err("no such branch");
                    assert_eq!(repo.storage().list(&Prefix::fixed("packs/")).expect("list").len(), packs);
                    Err(e)
                }
            }
        },
        |_| (),
    );
    assert!(steps > 4, "{steps} steps");
}

#[test]
fn a_comparison() {
    let steps = stopped_everywhere(
        |repo, progress| {
            let tip = mdl_repo::resolve(repo, "main").expect("main");
            let before = mdl_repo::resolve(repo, "main~2").expect("main~2");
            mdl_repo::diff(repo, &before, &tip, progress).map(|files| assert_eq!(files.len(), 2))
        },
        |_| (),
    );
    assert!(steps > 2, "{steps} steps");
}
