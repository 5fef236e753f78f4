//! Kill sweeps of both phases: a collection, a compaction or a writer beside doomed packs is killed, or fails, at
//! every change it makes.

use super::{setup::*, unlocked::*};
use mdl_objects::Id;
use mdl_repo::{
    Repo, RepoError, Result, Silent,
    storage::{Fault, FaultStorage, MemoryStorage},
};
use std::{sync::Arc, time::Duration};

type Operation<'a> = dyn Fn(&Repo) -> Result<()> + 'a;

struct Scene {
    storage: MemoryStorage,
    kept: Vec<(Id, Version)>,
    junk: Vec<Version>,
}

/// Versions, and garbage of every kind: packs of their own, mixed ones, deltas.
fn scene() -> Scene {
    let (storage, repo) = unlocked();
    let (main, side) = (run(2, 1, 300), run(3, 2, 300));
    let mut kept = vec![(commit(&repo, "main", &main[0]), main[0].clone())];
    commit_all(&repo, "side", &side);
    let mut mixed = main[1].clone();
    mixed.insert("other.safetensors".to_owned(), side[1]["model.safetensors"].clone());
    kept.push((commit(&repo, "main", &mixed), mixed));
    drop_branch(&repo, "side");
    let junk = side.into_iter().rev().collect();
    Scene { storage, kept, junk }
}

fn check(storage: &MemoryStorage, kept: &[(Id, Version)], label: &str) {
    let repo = at(storage);
    assert_eq!(fsck(&repo).problems, [], "{label}");
    kept.iter().for_each(|(id, v)| assert!(checkout(&repo, id).expect(label) == *v, "{label}"));
}

/// Lets every fault happen at every change; afterwards everything is there, what was garbage can be committed again,
/// and both phases end.
fn sweep(scene: &Scene, operation: &Operation<'_>) {
    let counted = FaultStorage::new(Arc::new(Unlocked(duplicate(&scene.storage))), None);
    operation(&open(counted.clone())).expect("works without a fault");
    assert!(counted.changes() > 0);
    for fault in [Fault::Kill, Fault::Fail, Fault::LoseReply] {
        for n in 1..=counted.changes() {
            let survivor = duplicate(&scene.storage);
            let failing = FaultStorage::new(Arc::new(Unlocked(survivor.clone())), Some(fault(n)));
            let outcome = operation(&open(failing));
            let label = format!("{:?} of {}: {outcome:?}", fault(n), counted.changes());
            check(&survivor, &scene.kept, &label);
            let mut kept = scene.kept.clone();
            for v in &scene.junk {
                kept.push((try_commit(&at(&survivor), "again", v).expect(&label).id, v.clone()));
            }
            for _ in 0..3 {
                pass(&survivor, GRACE);
                collect(&at(&survivor), GRACE);
            }
            check(&survivor, &kept, &label);
            assert!(doomed(&survivor).iter().all(|l| l[1] == "waits"), "{label}");
        }
    }
}

#[test]
fn of_the_first_phase() {
    sweep(&scene(), &|repo| try_collect(repo, GRACE).map(drop));
}

#[test]
fn of_the_second_phase() {
    let scene = scene();
    collect(&at(&scene.storage), GRACE);
    pass(&scene.storage, GRACE);
    sweep(&scene, &|repo| try_collect(repo, GRACE).map(drop));
}

#[test]
fn of_both_at_once() {
    sweep(&scene(), &|repo| try_collect(repo, Duration::ZERO).map(drop));
}

#[test]
fn of_a_compaction() {
    let scene = scene();
    collect(&at(&scene.storage), GRACE);
    sweep(&scene, &|repo| mdl_repo::compact(repo, &Default::default(), &Silent).map(drop));
}

#[test]
fn of_a_writer_beside_condemned_packs() {
    let scene = scene();
    let old = scene.junk[0].clone();
    collect(&at(&scene.storage), GRACE);
    sweep(&scene, &|repo| match try_commit(repo, "more", &old) {
        Err(RepoError::NothingToCommit(_)) => Ok(()),
        done => done.map(drop),
    });
}
