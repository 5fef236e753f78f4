//! Retention: what goes, what keeps it, how it comes back, and that nothing is lost whatever dies half-way.

use super::{crash::sweep, setup::*};
use mdl_objects::Id;
use mdl_repo::{
    CommitRequest, ErrorKind, Head, Level, PruneOptions, PruneReport, RefName, Repo, RepoError, Result, Retention,
    Silent, WriteTransaction,
    storage::{Key, LocalStorage, MemoryStorage, Storage},
};
use std::{sync::Arc, thread};
use tempfile::TempDir;

const DRY: PruneOptions = PruneOptions { dry_run: true, to: Level::Gone };
const DO: PruneOptions = PruneOptions { dry_run: false, to: Level::Gone };

fn latest(n: u64) -> Retention {
    Retention::LatestN { n }
}

fn ids(report: &PruneReport) -> Vec<Id> {
    report.pruned.iter().map(|p| p.commit).collect()
}

/// A run of tensors without bases: no version depends on another.
fn apart(repo: &mut Repo, branch: &str, n: usize, seed: u64) -> Vec<(Id, Version)> {
    repo.set_config("delta.max_depth", Some("0")).expect("set");
    run(n, seed, 600).into_iter().map(|v| (commit(repo, branch, &v), v)).collect()
}

fn assert_gone(repo: &Repo, id: &Id) {
    let error = checkout(repo, id).expect_err("gone");
    assert!(matches!(error, RepoError::Pruned { .. }), "{error}");
    assert_eq!(error.kind(), ErrorKind::NotFound);
    assert!(error.to_string().contains("latest"), "{error}");
    repo.odb().commit(id).expect("the commit stays");
}

/// Everything a pruning promises, over any storage.
fn lifecycle(storage: &Arc<dyn Storage>) {
    let mut repo = Repo::init_storage(storage.clone(), "main", engine()).expect("init");
    let all = apart(&mut repo, "main", 6, 1);
    let (go, stay) = all.split_at(4);
    let dry = mdl_repo::prune(&repo, None, &latest(2), &DRY).expect("dry run");
    assert!(storage.get(&Key::fixed("pruned")).expect("get").is_none() && dry.freed_bytes > 0);
    let done = mdl_repo::prune(&repo, None, &latest(2), &DO).expect("prune");
    assert_eq!(
        PruneReport { dry_run: true, levels: dry.levels.clone(), ..done.clone() },
        dry,
        "the dry run told the truth"
    );
    assert_eq!(ids(&done), go.iter().rev().map(|(id, _)| *id).collect::<Vec<_>>());
    assert!(done.kept[0].why.contains(&"tip of main".to_owned()), "{done:?}");
    // Until the grace is over everything is there, and the prune can be undone.
    assert_eq!(mdl_repo::gc(&repo, &GENTLE, &Silent).expect("gc").bytes_freed, 0);
    all.iter().for_each(|(id, v)| assert_version(&repo, id, v));
    assert_clean(&repo);
    assert_eq!(mdl_repo::undo_prune(&repo, Some(&[go[3].0])).expect("undo").len(), 1);
    assert_eq!(mdl_repo::undo_prune(&repo, None).expect("undo").len(), 3);
    assert!(storage.get(&Key::fixed("pruned")).expect("get").is_none());
    mdl_repo::gc(&repo, &NOW, &Silent).expect("gc");
    all.iter().for_each(|(id, v)| assert_version(&repo, id, v));
    // Then not.
    mdl_repo::prune(&repo, None, &latest(2), &DO).expect("prune");
    assert!(mdl_repo::prune(&repo, None, &latest(2), &DO).expect("again").pruned.is_empty());
    repo.set_config("gc.grace_hours", Some("0")).expect("set");
    let report = mdl_repo::gc(&repo, &GENTLE, &Silent).expect("gc");
    assert_eq!((report.bytes_freed, report.pruned), (dry.freed_bytes, 4), "the dry run knew the bytes");
    go.iter().for_each(|(id, _)| assert_gone(&repo, id));
    stay.iter().for_each(|(id, v)| assert_version(&repo, id, v));
    assert_clean(&repo);
    assert_eq!(mdl_repo::gc(&repo, &NOW, &Silent).expect("again").bytes_freed, 0);
    mdl_repo::compact(&repo, &Default::default(), &Silent).expect("compact");
    mdl_repo::stats(&repo, &Silent).expect("stats");
    assert_eq!(mdl_repo::gc(&repo, &NOW, &Silent).expect("again").pruned, 4);
    stay.iter().for_each(|(id, v)| assert_version(&repo, id, v));
    assert_clean(&repo);
    // History is whole, and goes on.
    let next = run(7, 1, 600).remove(6);
    let id = commit(&repo, "main", &next);
    assert_eq!(mdl_repo::history(&repo, &[id]).expect("history").count(), 7);
    assert!(matches!(mdl_repo::undo_prune(&repo, Some(&[go[0].0])), Err(RepoError::Pruned { .. })));
    assert_eq!(mdl_repo::undo_prune(&repo, None).expect_err("gone").kind(), ErrorKind::User);
    assert_eq!(mdl_repo::undo_prune(&repo, Some(&[id])).expect_err("never pruned").kind(), ErrorKind::User);
    for refused in [
        mdl_repo::create_branch(&repo, "b", &go[0].0, false).map(drop),
        mdl_repo::create_tag(&repo, "t", &go[0].0, None, false).map(drop),
        mdl_repo::reset(&repo, &go[0].0, false, &Silent).map(drop),
    ] {
        assert!(matches!(refused, Err(RepoError::Pruned { .. })), "{refused:?}");
    }
}

#[test]
fn in_memory() {
    lifecycle(&(Arc::new(MemoryStorage::new()) as Arc<dyn Storage>));
}

#[test]
fn in_a_directory() {
    let dir = TempDir::new().expect("temp dir");
    lifecycle(&(Arc::new(LocalStorage::new(dir.path())) as Arc<dyn Storage>));
}

#[test]
fn bases_of_what_stays_stay_until_a_compaction() {
    let (storage, repo) = fresh();
    let versions = run(13, 1, 3000);
    let all: Vec<Id> = versions.iter().map(|v| commit(&repo, "main", v)).collect();
    let stay = [4, 5, 9, 12];
    let rule = Retention::CustomSteps { steps: [0].into() };
    let rules = Retention::Any { rules: vec![latest(1), rule] };
    for i in stay {
        mdl_repo::create_tag(&repo, &format!("t{i}"), &all[i], None, false).expect("tag");
    }
    // No version has a step: such a rule keeps all.
    assert!(mdl_repo::prune(&repo, None, &rules, &DO).expect("prune").pruned.is_empty());
    let done = mdl_repo::prune(&repo, None, &latest(1), &DO).expect("prune");
    assert!(done.base_bytes > 0);
    let report = mdl_repo::gc(&repo, &NOW, &Silent).expect("gc");
    assert_eq!((done.pruned.len(), report.pruned), (9, 9));
    stay.iter().for_each(|&i| assert_version(&repo, &all[i], &versions[i]));
    assert_clean(&repo);
    mdl_repo::compact(&repo, &Default::default(), &Silent).expect("compact");
    let more = mdl_repo::gc(&repo, &NOW, &Silent).expect("gc");
    // Two tensors and the text of each version that stays, and the frozen tensor; no bases beside them.
    let tensors = mdl_repo::stats(&repo, &Silent).expect("stats");
    let stored: u64 = tensors.depths.iter().sum();
    assert_eq!(stored, 2 * stay.len() as u64 + 1, "{:?}, {more:?}", tensors.depths);
    stay.iter().for_each(|&i| assert_version(&repo, &all[i], &versions[i]));
    assert_clean(&repo);
    let before = packs(&storage);
    assert_eq!(mdl_repo::compact(&repo, &Default::default(), &Silent).expect("again").tensors_reencoded, 0);
    assert_eq!(packs(&storage), before);
    for id in [&all[0], &all[3], &all[11]] {
        assert_gone(&repo, id);
    }
}

#[test]
fn a_compaction_of_pruned_chains_that_dies_loses_nothing() {
    let (storage, repo) = fresh();
    let versions = run(6, 1, 300);
    let all: Vec<Id> = versions.iter().map(|v| commit(&repo, "main", v)).collect();
    mdl_repo::create_tag(&repo, "old", &all[2], None, false).expect("tag");
    mdl_repo::prune(&repo, None, &latest(1), &DO).expect("prune");
    let kept = [2, 5].map(|i| (all[i], versions[i].clone())).to_vec();
    let scene = super::crash::Scene { storage, kept };
    let both = |repo: &Repo| {
        mdl_repo::compact(repo, &Default::default(), &Silent)?;
        mdl_repo::gc(repo, &NOW, &Silent).map(drop)
    };
    sweep(&scene, &both, &|_, _| {});
}

#[test]
fn names_resumed_runs_and_other_branches_hold_on() {
    let (_storage, mut repo) = fresh();
    let all = apart(&mut repo, "main", 8, 1);
    let at = |i: usize| all[i].0;
    mdl_repo::create_tag(&repo, "light", &at(0), None, false).expect("tag");
    mdl_repo::create_tag(&repo, "heavy", &at(1), Some("with a message"), false).expect("tag");
    mdl_repo::create_branch(&repo, "side", &at(2), false).expect("branch");
    let who = repo.config().signature();
    let transaction = WriteTransaction::begin(&repo).expect("lock");
    transaction.set_head(&Head::Detached(at(3)), &who, "detach").expect("head");
    drop(transaction);
    let dir = TempDir::new().expect("temp dir");
    write(&run(9, 1, 600)[8], dir.path());
    let request = CommitRequest {
        source: Some(dir.path().to_owned()),
        message: "resumed".to_owned(),
        branch: Some("main".to_owned()),
        resumed_from: Some(at(5)),
        ..CommitRequest::default()
    };
    let tip = mdl_repo::commit(&repo, &request, &Silent).expect("commit").id;
    // Of main alone: side holds its whole history, 0 to 2.
    let done = mdl_repo::prune(&repo, Some("main"), &latest(1), &DRY).expect("dry run");
    assert_eq!(ids(&done), [at(7), at(6), at(4)]);
    // Of all branches: side lets 0 and 1 go as well, but they have tags.
    let all_of_them = mdl_repo::prune(&repo, None, &latest(1), &DRY).expect("dry run");
    assert_eq!(ids(&all_of_them), ids(&done));
    mdl_repo::delete_tag(&repo, "light").expect("delete");
    mdl_repo::delete_tag(&repo, "heavy").expect("delete");
    let done = mdl_repo::prune(&repo, None, &latest(1), &DO).expect("prune");
    assert_eq!(ids(&done), [at(7), at(6), at(4), at(1), at(0)]);
    mdl_repo::gc(&repo, &NOW, &Silent).expect("gc");
    for i in [2, 3, 5] {
        assert_version(&repo, &at(i), &all[i].1);
    }
    assert_version(&repo, &tip, &run(9, 1, 600)[8]);
    assert_clean(&repo);
    let error = mdl_repo::prune(&repo, Some("nobody"), &latest(1), &DO).expect_err("no such branch");
    assert_eq!(error.kind(), ErrorKind::NotFound);
}

#[test]
fn a_name_given_behind_a_prunings_back_holds_on() {
    // As by a race: the pruning had read the refs before the tag was made.
    let (_storage, mut repo) = fresh();
    let all = apart(&mut repo, "main", 4, 1);
    mdl_repo::prune(&repo, None, &latest(1), &DO).expect("prune");
    move_ref(&repo, "refs/tags/late", Some(all[1].0));
    assert_eq!(mdl_repo::gc(&repo, &NOW, &Silent).expect("gc").pruned, 2);
    assert_version(&repo, &all[1].0, &all[1].1);
    assert_gone(&repo, &all[0].0);
    assert_clean(&repo);
}

#[test]
fn equal_contents_are_held_by_whichever_version_stays() {
    let (_storage, mut repo) = fresh();
    let all = apart(&mut repo, "main", 2, 1);
    let again = commit(&repo, "main", &all[0].1);
    let done = mdl_repo::prune(&repo, None, &latest(1), &DO).expect("prune");
    assert_eq!(ids(&done), [all[1].0, all[0].0]);
    mdl_repo::gc(&repo, &NOW, &Silent).expect("gc");
    assert_gone(&repo, &all[1].0);
    // Its own report is gone, its files are those of the tip.
    assert_version(&repo, &all[0].0, &all[0].1);
    assert_version(&repo, &again, &all[0].1);
    assert_clean(&repo);
    // What was pruned may be committed again.
    let back = commit(&repo, "main", &all[1].1);
    assert_version(&repo, &back, &all[1].1);
    assert_clean(&repo);
}

#[test]
fn nothing_is_pruned_while_something_that_stays_is_not_whole() {
    let (storage, mut repo) = fresh();
    let all = apart(&mut repo, "main", 4, 1);
    for key in packs(&storage) {
        let sound = storage.get(&key).expect("get").expect("pack");
        let holds_kept = {
            let found = repo.odb().locate(&all[3].0).expect("locate").expect("there");
            let other = repo.odb().locate(&all[2].0).expect("locate").expect("there");
            [found.pack.id.key(), other.pack.id.key()].contains(&key)
        };
        let mut cut = sound.clone();
        cut.truncate(sound.len() - 1);
        storage.put(&key, &cut).expect("damage");
        let error = mdl_repo::prune(&open(storage.clone()), None, &latest(2), &DO).expect_err("a damaged pack");
        assert_eq!(error.kind(), ErrorKind::Corrupt, "{error}");
        storage.delete(&key).expect("lose");
        let outcome = mdl_repo::prune(&open(storage.clone()), None, &latest(2), &DRY);
        if holds_kept {
            // The tip's own commit cannot even be read; of any other the version is named.
            let error = outcome.expect_err("a missing pack");
            assert!(matches!(error.kind(), ErrorKind::Corrupt | ErrorKind::NotFound), "{error}");
        }
        storage.put(&key, &sound).expect("back");
        assert!(storage.get(&Key::fixed("pruned")).expect("get").is_none());
    }
}

#[test]
fn the_version_that_is_not_whole_is_named() {
    let (storage, repo) = fresh();
    let versions = run(4, 1, 600);
    let all: Vec<Id> = versions.iter().map(|v| commit(&repo, "main", v)).collect();
    // A check that found the third version's tree unreadable.
    let tree = repo.odb().commit(&all[2]).expect("commit").tree;
    let found = repo.odb().locate(&tree).expect("locate").expect("there");
    storage.put(&Key::fixed("unreadable"), format!("{} {tree}\n", found.pack.id).as_bytes()).expect("put");
    let repo = open(storage.clone());
    let error = mdl_repo::prune(&repo, None, &latest(2), &DO).expect_err("refused");
    assert_eq!(error.kind(), ErrorKind::Corrupt);
    assert!(error.to_string().contains(&all[2].short()), "{error}");
    assert!(error.to_string().contains("nothing was pruned"), "{error}");
    // It is no matter where the version is to go.
    assert_eq!(mdl_repo::prune(&repo, None, &latest(1), &DO).expect("prune").pruned.len(), 3);
}

#[test]
fn a_damaged_record_stops_collections_and_is_found() {
    let (storage, mut repo) = fresh();
    apart(&mut repo, "main", 3, 1);
    mdl_repo::prune(&repo, None, &latest(1), &DO).expect("prune");
    let sound = storage.get(&Key::fixed("pruned")).expect("get").expect("a record");
    let mut bad = sound.clone();
    bad[20] ^= 1;
    storage.put(&Key::fixed("pruned"), &bad).expect("damage");
    let before = packs(&storage);
    for outcome in
        [mdl_repo::gc(&repo, &NOW, &Silent).map(drop), mdl_repo::prune(&repo, None, &latest(1), &DO).map(drop)]
    {
        assert_eq!(outcome.expect_err("refused").kind(), ErrorKind::Corrupt);
    }
    assert_eq!(packs(&storage), before);
    assert!(fsck(&repo).problems.iter().any(|p| p.what.contains("pruned")));
    storage.put(&Key::fixed("pruned"), &sound).expect("back");
    assert_eq!(mdl_repo::gc(&repo, &NOW, &Silent).expect("gc").pruned, 2);
    assert_clean(&repo);
}

#[test]
fn records_of_commits_that_are_gone_go_too() {
    let (storage, mut repo) = fresh();
    apart(&mut repo, "main", 1, 1);
    apart(&mut repo, "side", 3, 2);
    mdl_repo::prune(&repo, Some("side"), &latest(1), &DO).expect("prune");
    mdl_repo::delete_branch(&repo, "side", true, &Silent).expect("delete");
    mdl_repo::gc(&repo, &NOW, &Silent).expect("gc");
    assert!(storage.get(&Key::fixed("pruned")).expect("get").is_none());
    assert_clean(&repo);
}

/// What a kept version is, and pruned ones that can be lost, in a repository with deltas and a branch.
fn scene() -> super::crash::Scene {
    let (storage, repo) = fresh();
    let main = run(4, 1, 300);
    let kept: Vec<(Id, Version)> = main.iter().map(|v| (commit(&repo, "main", v), v.clone())).collect();
    let kept = kept.into_iter().skip(3).collect();
    super::crash::Scene { storage, kept }
}

#[test]
fn a_pruning_that_dies_has_happened_or_not() {
    let scene = scene();
    let prune = |repo: &Repo| mdl_repo::prune(repo, None, &latest(1), &DO).map(drop);
    sweep(&scene, &prune, &|repo, done| {
        let n = mdl_repo::pruned(repo).expect("the record can be read").iter().count();
        assert!(n == 3 || n == 0 && !done, "{n} on record");
    });
}

#[test]
fn a_collection_of_pruned_versions_that_dies_loses_nothing_else() {
    let scene = scene();
    mdl_repo::prune(&open(scene.storage.clone()), None, &latest(1), &DO).expect("prune");
    sweep(&scene, &|repo| mdl_repo::gc(repo, &NOW, &Silent).map(drop), &|repo, _| {
        // Contents that are still there can be taken back, whatever was cut off; then they must be whole.
        if mdl_repo::undo_prune(repo, None).is_ok() {
            assert_clean(repo);
            mdl_repo::prune(repo, None, &latest(1), &DO).expect("prune again");
        }
    });
}

#[test]
fn an_undo_that_dies_has_happened_or_not() {
    let scene = scene();
    mdl_repo::prune(&open(scene.storage.clone()), None, &latest(1), &DO).expect("prune");
    let undo = |repo: &Repo| match mdl_repo::undo_prune(repo, None) {
        // The retry of one that had happened.
        Err(e) if e.kind() == ErrorKind::User => Ok(()),
        done => done.map(drop),
    };
    sweep(&scene, &undo, &|repo, done| {
        let n = mdl_repo::pruned(repo).expect("the record can be read").iter().count();
        assert!(n == 0 || n == 3 && !done, "{n} on record");
    });
}

#[test]
fn pruners_side_by_side_lose_none_of_each_others_changes() {
    let (storage, mut repo) = fresh();
    let branches: Vec<String> = (0..4).map(|b| format!("run-{b}")).collect();
    let all: Vec<_> = branches.iter().zip(0..).map(|(b, seed)| apart(&mut repo, b, 4, seed)).collect();
    thread::scope(|scope| {
        for branch in &branches {
            let storage = storage.clone();
            scope.spawn(move || mdl_repo::prune(&open(storage), Some(branch), &latest(1), &DO).expect("prune"));
        }
        let storage = storage.clone();
        scope.spawn(move || commit(&open(storage), "other", &run(1, 9, 300)[0]));
    });
    assert_eq!(mdl_repo::pruned(&repo).expect("record").iter().count(), 12);
    mdl_repo::gc(&repo, &NOW, &Silent).expect("gc");
    for versions in &all {
        assert_version(&repo, &versions[3].0, &versions[3].1);
    }
    assert_clean(&repo);
}

#[test]
fn a_run_that_prunes_after_each_commit_while_others_collect_keeps_what_it_should() {
    let dir = TempDir::new().expect("temp dir");
    drop(Repo::init(dir.path(), false, "main", engine()).expect("init"));
    let open = || Repo::open(dir.path(), engine()).expect("open");
    let versions = run(12, 1, 600);
    let ids: Vec<Id> = thread::scope(|scope| {
        let trainer = scope.spawn(|| {
            let repo = open();
            let each = versions.iter().map(|v| {
                let id = commit(&repo, "main", v);
                mdl_repo::prune(&repo, Some("main"), &latest(3), &DO).expect("prune");
                id
            });
            each.collect()
        });
        let repo = open();
        while !trainer.is_finished() {
            mdl_repo::gc(&repo, &NOW, &Silent).expect("gc");
            mdl_repo::compact(&repo, &Default::default(), &Silent).expect("compact");
        }
        trainer.join().expect("trainer")
    });
    let repo = open();
    mdl_repo::gc(&repo, &NOW, &Silent).expect("gc");
    for (id, v) in ids.iter().zip(&versions).skip(9) {
        assert_version(&repo, id, v);
    }
    ids.iter().take(9).for_each(|id| assert_gone(&repo, id));
    assert_clean(&repo);
}

#[test]
fn pruned_versions_are_no_place_to_start_from_until_they_are_taken_back() -> Result<()> {
    let (_storage, mut repo) = fresh();
    let all = apart(&mut repo, "main", 3, 1);
    mdl_repo::prune(&repo, None, &latest(1), &DO)?;
    let old = all[0].0;
    for refused in [
        mdl_repo::create_branch(&repo, "b", &old, false).map(drop),
        mdl_repo::create_tag(&repo, "t", &old, None, false).map(drop),
        mdl_repo::reset(&repo, &old, false, &Silent).map(drop),
    ] {
        let error = refused.expect_err("refused");
        assert!(error.hint().is_some_and(|h| h.contains("take back the pruning")), "{error}");
    }
    mdl_repo::undo_prune(&repo, Some(&[old]))?;
    mdl_repo::create_branch(&repo, "b", &old, false)?;
    assert_eq!(repo.refs().get(&RefName::branch("b")?)?, Some(old));
    mdl_repo::gc(&repo, &NOW, &Silent)?;
    assert_version(&repo, &old, &all[0].1);
    assert_gone(&repo, &all[1].0);
    assert_clean(&repo);
    Ok(())
}
