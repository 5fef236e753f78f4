//! Ranks and finishers that die or fail at every change they make, and records that are damaged.

use super::{NOW, assert_holds, assert_sound, commit, join, put, put_all, sessions, tip};
use crate::support::{duplicate, fresh, open};
use mdl_repo::{
    ErrorKind, Repo, Result, Silent,
    storage::{Fault, FaultStorage, Key, MemoryStorage, Prefix, Storage},
};
use std::sync::Arc;

type Operation<'a> = dyn Fn(&Repo) -> Result<()> + 'a;

/// Lets an operation die, or fail, at every change it makes; `check` is told what is left and how it ended, then the
/// operation is done again, and at last what it left is collected.
fn sweep(scene: &MemoryStorage, operation: &Operation<'_>, check: &dyn Fn(&Repo, bool), end: &dyn Fn(&Repo, &str)) {
    let counted = FaultStorage::new(Arc::new(duplicate(scene)), None);
    operation(&open(counted.clone())).expect("works without a fault");
    let kinds: [fn(u64) -> Fault; 5] = [Fault::Kill, Fault::Tear, Fault::Fail, Fault::LoseReply, Fault::Full];
    for (fault, at) in kinds.iter().flat_map(|f| (1..=counted.changes()).map(move |at| (f(at), at))) {
        let survivor = duplicate(scene);
        let outcome = operation(&open(FaultStorage::new(Arc::new(survivor.clone()), Some(fault))));
        let label = format!("{fault:?} ({at} of {}): {outcome:?}", counted.changes());
        let repo = open(survivor.clone());
        assert_sound(&repo, &label);
        check(&repo, outcome.is_ok());
        // What the dead left goes, and nothing else.
        let collected = open(duplicate(&survivor));
        let before = tip(&collected);
        mdl_repo::gc(&collected, &NOW, &Silent).expect(&label);
        assert_sound(&collected, &label);
        assert_eq!((tip(&collected), sessions(&collected)), (before, 0), "{label}");
        operation(&repo).expect(&label);
        end(&repo, &label);
        assert_sound(&repo, &label);
        let (kept, bytes) = (tip(&repo), |repo: &Repo| -> u64 {
            let packs = repo.storage().list(&Prefix::fixed("packs/")).expect("packs");
            packs.iter().map(|p| p.size).sum()
        });
        mdl_repo::gc(&repo, &NOW, &Silent).expect(&label);
        assert_eq!((tip(&repo), sessions(&repo)), (kept, 0), "{label}");
        let held = bytes(&repo);
        mdl_repo::gc(&repo, &NOW, &Silent).expect(&label);
        assert_eq!(bytes(&repo), held, "nothing is left to be freed: {label}");
        assert_sound(&repo, &label);
    }
}

#[test]
fn a_rank_that_dies_anywhere_has_put_or_has_not() {
    let (storage, repo) = fresh();
    let before = commit(&repo, "before");
    put(&repo, "s", 0, 0).expect("put");
    // A finisher has looked: the rank has to make it look again.
    join(&repo, "s", 2).expect_err("rank 1 is missing");
    sweep(
        &storage,
        &|repo| put(repo, "s", 1, 0).map(drop),
        &|repo, done| {
            assert_eq!(tip(repo), Some(before));
            let ranks = mdl_repo::sessions(repo).expect("sessions").remove(0).ranks;
            assert!(ranks == [0, 1] || !done && ranks == [0], "{ranks:?}");
        },
        &|repo, label| {
            let done = join(repo, "s", 2).expect(label);
            assert_holds(repo, &done.id, 2, 0);
        },
    );
}

#[test]
fn a_finisher_that_dies_anywhere_has_committed_all_or_nothing() {
    for first in [true, false] {
        let (storage, repo) = fresh();
        let before = first.then(|| commit(&repo, "before"));
        put_all(&repo, 3, 0);
        sweep(
            &storage,
            &|repo| join(repo, "s", 3).map(drop),
            &|repo, done| match tip(repo) {
                Some(id) if Some(id) != before => assert_holds(repo, &id, 3, 0),
                at => assert!(at == before && !done),
            },
            &|repo, label| {
                let id = tip(repo).expect("a tip");
                assert_holds(repo, &id, 3, 0);
                assert_eq!(repo.odb().commit(&id).expect("commit").parents, Vec::from_iter(before), "{label}");
                assert_eq!(join(repo, "s", 3).expect("again").id, id, "{label}");
                assert_eq!(tip(repo), Some(id), "{label}");
            },
        );
    }
}

#[test]
fn what_a_dead_finisher_decided_is_finished_or_given_up() {
    let (storage, repo) = fresh();
    commit(&repo, "before");
    put_all(&repo, 2, 0);
    let counted = FaultStorage::new(Arc::new(duplicate(&storage)), None);
    join(&open(counted.clone()), "s", 2).expect("join");
    let mut seen = Vec::new();
    for at in 1..=counted.changes() {
        let survivor = duplicate(&storage);
        let died = join(&open(FaultStorage::new(Arc::new(survivor.clone()), Some(Fault::Kill(at)))), "s", 2);
        let repo = open(survivor);
        let decided = mdl_repo::sessions(&repo).expect("sessions")[0].commit;
        let moved = decided.is_some() && tip(&repo) == decided;
        // Another writer's version comes before the next finisher.
        let other = commit(&repo, "other");
        let done = join(&repo, "s", 2).expect("finished");
        if moved {
            assert_eq!((Some(done.id), tip(&repo)), (decided, Some(other)), "{at}: {died:?}");
        } else {
            assert_eq!((done.parent, tip(&repo)), (Some(other), Some(done.id)), "{at}: {died:?}");
            assert_ne!(Some(done.id), decided);
        }
        assert_eq!(join(&repo, "s", 2).expect("again").id, done.id);
        assert_sound(&repo, "given up");
        seen.push((decided.is_some(), moved));
    }
    for all in [(false, false), (true, false), (true, true)] {
        assert!(seen.contains(&all), "{seen:?}");
    }
}

#[test]
fn records_that_are_damaged_are_told_from_none() {
    let (storage, repo) = fresh();
    put_all(&repo, 2, 0);
    let mut bytes = storage.get(&Key::fixed("shards/s/1")).expect("get").expect("record");
    let middle = bytes.len() / 2;
    bytes[middle] ^= 1;
    storage.put(&Key::fixed("shards/s/1"), &bytes).expect("put");
    assert_eq!(join(&repo, "s", 2).expect_err("damaged").kind(), ErrorKind::Corrupt);
    storage.put(&Key::fixed("shards/s/1"), b"mdl shard 2\n{}\nx\n").expect("put");
    assert_eq!(join(&repo, "s", 2).expect_err("newer").kind(), ErrorKind::User);
    put(&repo, "s", 1, 0).expect("put again");
    join(&repo, "s", 2).expect("join");
}
