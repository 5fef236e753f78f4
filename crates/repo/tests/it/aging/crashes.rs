//! Kill sweeps: a commit that ages another, a collection that takes exact contents and an undoing are killed, or fail,
//! at every change that they make to storage.

use super::run::{NOW, Run, Version, fidelity, is_clean, read};
use crate::support::{duplicate, fresh, open};
use mdl_objects::Id;
use mdl_repo::{
    CommitRequest, Direction, Fidelity, LossyRequest, Repo, Result, Silent,
    storage::{Fault, FaultStorage, MemoryStorage},
};
use std::sync::Arc;

/// Three versions: the first is approximate, the second aged, the third is new. A fourth is to come.
fn scene() -> (MemoryStorage, Run) {
    let (storage, repo) = fresh();
    let mut run = Run::new("");
    run.p.repo = repo;
    run.keep("exact_latest = 1");
    run.on(2).collect();
    run.on(1);
    run.are_exact(&[1, 2]);
    (storage, run)
}

fn commit(repo: &Repo, run: &Run) -> Result<Id> {
    let policy = mdl_repo::policy(repo, "ages")?;
    let mut lossy =
        LossyRequest { policy, evaluator: None, direction: Direction::LowerIsBetter, grads: None, since: None };
    let request = run.request(CommitRequest::default());
    mdl_repo::commit_lossy(repo, &request, &mut lossy, &Silent).map(|done| done.id)
}

/// Whether a version is exact; checks that it is the approximation if not.
fn is_exact(repo: &Repo, version: &Version, what: &str) -> bool {
    let file = read(repo, &version.id).expect(what);
    let exact = file == version.exact;
    assert!(exact || file == version.near, "{what}: neither exact nor as judged");
    assert_eq!(fidelity(repo, &version.id) == Fidelity::Exact, exact, "{what}");
    exact
}

const ALL: [fn(u64) -> Fault; 5] = [Fault::Kill, Fault::Tear, Fault::Fail, Fault::LoseReply, Fault::Full];

type Operation<'a> = dyn Fn(&Repo, &Run) -> Result<()> + 'a;

/// Runs an operation on copies of the scene with each fault at every change, looks at what survived, and runs it
/// again.
fn sweep(faults: &[fn(u64) -> Fault], operation: &Operation<'_>, check: &dyn Fn(&Repo, &Run, &str)) {
    let (storage, run) = scene();
    let counted = FaultStorage::new(Arc::new(duplicate(&storage)), None);
    operation(&open(counted.clone()), &run).expect("works without a fault");
    assert!(counted.changes() > 0);
    for (fault, at) in faults.iter().flat_map(|f| (1..=counted.changes()).map(move |at| (f, at))) {
        let survivor = duplicate(&storage);
        let failing = FaultStorage::new(Arc::new(survivor.clone()), Some(fault(at)));
        let outcome = operation(&open(failing), &run);
        let what = format!("{:?} of {}: {outcome:?}", fault(at), counted.changes());
        let repo = open(survivor);
        for round in 0..2 {
            let what = format!("{what}, round {round}");
            is_clean(&repo);
            assert!(!is_exact(&repo, &run.all[0], &what), "{what}");
            is_exact(&repo, &run.all[1], &what);
            assert!(is_exact(&repo, &run.all[2], &what), "{what}");
            check(&repo, &run, &what);
            if round == 0 {
                operation(&repo, &run).expect(&what);
            }
        }
        if !matches!(fault(at), Fault::Kill(_)) {
            continue;
        }
        // The next commit and the next collection leave nothing behind.
        let newest = commit(&repo, &run).expect("commit");
        mdl_repo::gc(&repo, &NOW, &Silent).expect("gc");
        is_clean(&repo);
        assert!(read(&repo, &newest).expect("read") == run.training.bytes(), "{what}");
        for version in &run.all {
            assert!(!is_exact(&repo, version, &what), "{what}");
        }
    }
}

#[test]
fn a_commit_that_ages_its_parent_is_whole_or_not_there() {
    sweep(&[Fault::Kill, Fault::LoseReply], &|repo, run| commit(repo, run).map(drop), &|repo, run, what| {
        let tip = mdl_repo::resolve(repo, "main").expect("main");
        if tip != run.all[2].id {
            assert!(read(repo, &tip).expect("read") == run.training.bytes(), "{what}");
        }
        assert!(is_exact(repo, &run.all[1], what), "{what}");
    });
}

#[test]
fn a_collection_of_exact_contents_leaves_the_one_or_the_other() {
    sweep(&ALL, &|repo, _| mdl_repo::gc(repo, &NOW, &Silent).map(drop), &|_, _, _| {});
}

#[test]
fn an_undoing_is_done_or_not() {
    let undo = |repo: &Repo, run: &Run| {
        let aged = mdl_repo::pruned(repo)?.aged(&run.all[1].id).is_some();
        if aged { mdl_repo::undo_prune(repo, Some(&[run.all[1].id])).map(drop) } else { Ok(()) }
    };
    sweep(&ALL, &undo, &|repo, run, what| {
        assert!(is_exact(repo, &run.all[1], what), "{what}");
    });
}
