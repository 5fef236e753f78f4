//! Kill sweeps: an operation is killed, or fails, at every change it makes to storage; nothing that was there is lost.

use super::setup::*;
use mdl_objects::Id;
use mdl_repo::{
    RefName, Repo, RepoError, Result, Silent,
    storage::{Fault, FaultStorage, Key, MemoryStorage, Prefix, Storage},
};
use std::sync::Arc;

/// A repository, the versions that must survive anything, and where the branch may stand afterwards.
pub struct Scene {
    pub storage: MemoryStorage,
    pub kept: Vec<(Id, Version)>,
}

type Operation<'a> = dyn Fn(&Repo) -> Result<()> + 'a;

/// Runs `operation` on copies of the scene with every fault at every change, then looks at what survived and tries
/// again.
pub fn sweep(scene: &Scene, operation: &Operation<'_>, check: &dyn Fn(&Repo, bool)) {
    let faults: [fn(u64) -> Fault; 5] = [Fault::Kill, Fault::Tear, Fault::Fail, Fault::LoseReply, Fault::Full];
    let counted = FaultStorage::new(Arc::new(duplicate(&scene.storage)), None);
    operation(&open(counted.clone())).expect("works without a fault");
    assert!(counted.changes() > 0);
    for fault in faults {
        for at in 1..=counted.changes() {
            let survivor = duplicate(&scene.storage);
            let failing = FaultStorage::new(Arc::new(survivor.clone()), Some(fault(at)));
            let outcome = operation(&open(failing));
            let label = format!("{:?} of {}: {outcome:?}", fault(at), counted.changes());
            let repo = open(survivor);
            assert_eq!(fsck(&repo).problems, [], "{label}");
            scene.kept.iter().for_each(|(id, v)| assert!(checkout(&repo, id).expect(&label) == *v, "{label}"));
            check(&repo, outcome.is_ok());
            operation(&repo).expect(&label);
            assert_eq!(fsck(&repo).problems, [], "after the retry: {label}");
            scene.kept.iter().for_each(|(id, v)| assert!(checkout(&repo, id).expect(&label) == *v, "{label}"));
        }
    }
}

/// Two versions on main, and a branch that shares tensors with it, deleted: garbage of every kind.
pub fn scene() -> Scene {
    let (storage, repo) = fresh();
    let kept = mixed(&repo, &run(2, 1, 300), &run(3, 2, 300));
    Scene { storage, kept }
}

#[test]
fn a_commit_is_whole_or_not_there() {
    let scene = scene();
    let next = run(3, 1, 300).remove(2);
    let old = scene.kept[1].0;
    let operation = |repo: &Repo| match try_commit(repo, "main", &next) {
        Ok(_) => Ok(()),
        // The retry of a commit that had landed.
        Err(RepoError::NothingToCommit(_)) => Ok(()),
        Err(e) => Err(e),
    };
    sweep(&scene, &operation, &|repo, done| {
        let tip = repo.refs().get(&RefName::branch("main").expect("a name")).expect("ref").expect("a tip");
        assert!(tip != old || !done, "reported as done and not there");
        if tip != old {
            assert_version(repo, &tip, &next);
            assert_eq!(repo.odb().commit(&tip).expect("commit").parents, [old]);
        }
    });
}

#[test]
fn a_collection_loses_nothing() {
    let scene = scene();
    sweep(&scene, &|repo| mdl_repo::gc(repo, &NOW, &Silent).map(drop), &|_, _| {});
}

#[test]
fn after_a_cut_off_collection_what_was_deleted_can_be_committed_again() {
    // Deduplication must not build on objects that a half-done deletion left without what they refer to.
    let scene = scene();
    // A run of deltas that is garbage as a whole. It comes back newest first: bases would otherwise be restored before
    // what stands on them.
    let junk = run(3, 3, 3000);
    {
        let repo = open(scene.storage.clone());
        commit_all(&repo, "junk", &junk);
        drop_branch(&repo, "junk");
    }
    let again = run(3, 2, 300).into_iter().chain(junk).rev();
    let side: Vec<Version> = again.collect();
    let counted = FaultStorage::new(Arc::new(duplicate(&scene.storage)), None);
    mdl_repo::gc(&open(counted.clone()), &NOW, &Silent).expect("gc");
    for at in 1..=counted.changes() {
        let survivor = duplicate(&scene.storage);
        let failing = FaultStorage::new(Arc::new(survivor.clone()), Some(Fault::Kill(at)));
        mdl_repo::gc(&open(failing), &NOW, &Silent).expect_err("killed");
        let repo = open(survivor.clone());
        let again: Vec<_> = side.iter().map(|v| (commit(&repo, "again", v), v)).collect();
        again.iter().for_each(|(id, v)| assert_version(&repo, id, v));
        assert_clean(&repo);
        mdl_repo::gc(&repo, &NOW, &Silent).expect("gc");
        again.iter().for_each(|(id, v)| assert_version(&repo, id, v));
        assert!(survivor.get(&Key::fixed("condemned")).expect("get").is_none());
    }
}

#[test]
fn a_collection_makes_room_on_a_full_disk() {
    let scene = scene();
    let survivor = duplicate(&scene.storage);
    // What a killed commit leaves: a pack that nothing needs.
    let before = {
        let repo = open(survivor.clone());
        commit(&repo, "gone", &run(1, 5, 300)[0]);
        drop_branch(&repo, "gone");
        forget(&repo);
        survivor.list(&Prefix::fixed("packs/")).expect("list").len()
    };
    let full = FaultStorage::new(Arc::new(survivor.clone()), Some(Fault::Full(1)));
    mdl_repo::gc(&open(full), &NOW, &Silent).expect_err("this disk stays full");
    assert!(survivor.list(&Prefix::fixed("packs/")).expect("list").len() < before);
    let repo = open(survivor);
    assert_clean(&repo);
    scene.kept.iter().for_each(|(id, v)| assert_version(&repo, id, v));
    mdl_repo::gc(&repo, &NOW, &Silent).expect("gc");
    assert_clean(&repo);
}

#[test]
fn a_commit_whose_move_of_head_cannot_be_logged_has_happened() {
    let scene = scene();
    let next = run(3, 1, 300).remove(2);
    let counted = FaultStorage::new(Arc::new(duplicate(&scene.storage)), None);
    commit(&open(counted.clone()), "main", &next);
    let survivor = duplicate(&scene.storage);
    let last = Fault::Fail(counted.changes());
    let failing = FaultStorage::new(Arc::new(survivor.clone()), Some(last));
    let id = commit(&open(failing), "main", &next);
    let repo = open(survivor);
    assert_eq!(repo.refs().get(&RefName::branch("main").expect("a name")).expect("ref"), Some(id));
    assert_eq!(repo.refs().reflog(&RefName::branch("main").expect("a name")).expect("log")[0].new, Some(id));
    assert_ne!(
        repo.refs().reflog(&RefName::parse("HEAD").expect("a name")).expect("log")[0].new,
        Some(id),
        "the fault was there"
    );
}
