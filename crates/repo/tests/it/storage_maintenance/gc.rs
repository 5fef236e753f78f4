//! Garbage collection: what goes, what stays, what is refused.

use super::setup::*;
use mdl_repo::{
    ErrorKind, GcOptions, RefName, Silent,
    storage::{Key, Storage},
};

#[test]
fn a_repository_without_garbage_is_left_alone() {
    let (storage, repo) = fresh();
    let versions = run(4, 1, 600);
    let ids: Vec<_> = versions.iter().map(|v| commit(&repo, "main", v)).collect();
    let before = packs(&storage);
    let report = mdl_repo::gc(&repo, &NOW, &Silent).expect("gc");
    assert_eq!(packs(&storage), before);
    assert_eq!((report.packs_deleted, report.packs_rewritten, report.bytes_freed), (0, 0, 0));
    assert_eq!(report.objects_before, report.objects_after);
    ids.iter().zip(&versions).for_each(|(id, v)| assert_version(&repo, id, v));
    assert_clean(&repo);
}

#[test]
fn a_deleted_branch_goes_once_nothing_remembers_it() {
    let (storage, repo) = fresh();
    let (kept, lost) = (run(3, 1, 600), run(3, 2, 600));
    let ids: Vec<_> = kept.iter().map(|v| commit(&repo, "main", v)).collect();
    let gone: Vec<_> = lost.iter().map(|v| commit(&repo, "side", v)).collect();
    drop_branch(&repo, "side");
    // The reflog remembers it, then the grace period protects it.
    let report = mdl_repo::gc(&repo, &GENTLE, &Silent).expect("gc");
    assert_eq!(report.bytes_freed, 0);
    gone.iter().zip(&lost).for_each(|(id, v)| assert_version(&repo, id, v));
    set(&storage, "gc.grace_hours", "0");
    let repo = open(storage.clone());
    assert_eq!(mdl_repo::gc(&repo, &GENTLE, &Silent).expect("gc").bytes_freed, 0, "the reflog holds on");
    let dry = mdl_repo::gc(&repo, &GcOptions { dry_run: true, ..NOW }, &Silent).expect("dry run");
    assert_eq!(packs(&storage).len(), 6);
    let report = mdl_repo::gc(&repo, &NOW, &Silent).expect("gc");
    assert_eq!(mdl_repo::GcReport { dry_run: false, ..dry }, report, "the dry run told the truth");
    assert_eq!((report.packs_deleted, report.packs_after), (3, 3));
    assert_eq!(report.bytes_after, packed_bytes(&storage));
    assert!(gone.iter().all(|id| !repo.odb().has(id).expect("has")));
    ids.iter().zip(&kept).for_each(|(id, v)| assert_version(&repo, id, v));
    assert_clean(&repo);
}

#[test]
fn young_garbage_stays_whole() {
    let (storage, repo) = fresh();
    let versions = run(3, 1, 600);
    let ids: Vec<_> = versions.iter().map(|v| commit(&repo, "main", v)).collect();
    drop_branch(&repo, "main");
    forget(&repo);
    assert_eq!(mdl_repo::gc(&repo, &GENTLE, &Silent).expect("gc").packs_after, 3);
    ids.iter().zip(&versions).for_each(|(id, v)| assert_version(&repo, id, v));
    assert_eq!(mdl_repo::gc(&repo, &NOW, &Silent).expect("gc").packs_after, 0);
    assert!(packs(&storage).is_empty());
}

#[test]
fn bases_that_no_version_names_stay() {
    let (_storage, repo) = fresh();
    let versions = run(6, 1, 3000);
    let ids: Vec<_> = versions.iter().map(|v| commit(&repo, "main", v)).collect();
    // Only the last version is wanted, as a root of its own; its tensors are deltas down to the first.
    let id = squash(&repo, ids[5]);
    let report = mdl_repo::gc(&repo, &NOW, &Silent).expect("gc");
    assert!(report.bytes_freed > 0 && report.packs_rewritten > 0, "{report:?}");
    assert!(ids.iter().all(|id| !repo.odb().has(id).expect("has")));
    assert_version(&repo, &id, &versions[5]);
    assert_clean(&repo);
    assert_eq!(mdl_repo::gc(&repo, &NOW, &Silent).expect("again").bytes_freed, 0);
}

#[test]
fn a_pack_that_is_mostly_alive_is_not_rewritten_and_stays_whole() {
    let (storage, repo) = fresh();
    set(&storage, "gc.grace_hours", "0");
    let mut version = run(1, 1, 4000).remove(0);
    let first = commit(&repo, "main", &version);
    // A second commit in the same pack cannot be had, so one file is orphaned: the next version lacks it.
    version.insert("extra.txt".to_owned(), b"a little".to_vec());
    commit(&repo, "main", &version);
    move_ref(&repo, "refs/heads/main", Some(first));
    forget(&repo);
    let repo = open(storage.clone());
    let report = mdl_repo::gc(&repo, &GENTLE, &Silent).expect("gc");
    assert_eq!((report.packs_deleted, report.packs_rewritten), (1, 0));
    assert_clean(&repo);
}

#[test]
fn nothing_is_deleted_over_damage() {
    let (storage, repo) = fresh();
    let versions = run(3, 1, 600);
    commit_all(&repo, "main", &versions);
    commit_all(&repo, "side", &run(2, 2, 600));
    drop_branch(&repo, "side");
    let all = packs(&storage);
    // Every pack in turn: footer damaged, then gone.
    for key in &all {
        let sound = storage.get(key).expect("get").expect("pack");
        let mut damaged = sound.clone();
        let at = damaged.len() - 70;
        damaged[at] ^= 1;
        storage.put(key, &damaged).expect("damage");
        let error = mdl_repo::gc(&open(storage.clone()), &NOW, &Silent).expect_err("refused");
        assert_eq!(error.kind(), ErrorKind::Corrupt);
        assert!(error.to_string().contains("nothing was deleted"), "{error}");
        assert_eq!(packs(&storage), all);
        storage.put(key, &sound).expect("repair");
    }
    // A ref that makes no sense holds on to who knows what.
    storage.put(&Key::fixed("refs/heads/odd"), b"not an id").expect("put");
    assert_eq!(mdl_repo::gc(&open(storage.clone()), &NOW, &Silent).expect_err("refused").kind(), ErrorKind::Corrupt);
    assert_eq!(packs(&storage), all);
    storage.delete(&Key::fixed("refs/heads/odd")).expect("delete");
    assert_eq!(mdl_repo::gc(&open(storage.clone()), &NOW, &Silent).expect("gc").packs_deleted, 2);
}

#[test]
fn a_missing_pack_stops_the_collection() {
    let (storage, repo) = fresh();
    commit_all(&repo, "main", &run(3, 1, 600));
    for key in packs(&storage) {
        let sound = storage.get(&key).expect("get").expect("pack");
        storage.delete(&key).expect("lose");
        let before = packs(&storage);
        mdl_repo::gc(&open(storage.clone()), &NOW, &Silent).expect_err("refused");
        assert_eq!(packs(&storage), before);
        storage.put(&key, &sound).expect("back");
    }
}

#[test]
fn writers_finish_a_deletion_that_was_cut_off() {
    let (storage, repo) = fresh();
    let versions = run(2, 1, 600);
    let id = commit(&repo, "main", &versions[0]);
    let lost = commit(&repo, "side", &run(1, 2, 600)[0]);
    let side: Vec<Key> = packs(&storage);
    drop_branch(&repo, "side");
    let sound = duplicate(&storage);
    mdl_repo::gc(&repo, &NOW, &Silent).expect("gc");
    let dead: Vec<_> = side.into_iter().filter(|k| !packs(&storage).contains(k)).collect();
    // As a kill leaves it after the list was written.
    let name = dead[0].trim_start_matches("packs/").trim_end_matches(".pack");
    let body = format!("{name}\n");
    let list = format!("{body}{}\n", blake3::hash(body.as_bytes()).to_hex());
    sound.put(&Key::fixed("condemned"), list.as_bytes()).expect("put");
    for log in ["logs/refs%2Fheads%2Fside", "logs/HEAD"] {
        sound.delete(&Key::fixed(log)).expect("forget");
    }
    let repo = open(sound.clone());
    assert_clean(&repo);
    commit(&repo, "main", &versions[1]);
    assert!(sound.get(&Key::fixed("condemned")).expect("get").is_none());
    assert!(!packs(&sound).contains(&dead[0]) && !repo.odb().has(&lost).expect("has"));
    assert_version(&repo, &id, &versions[0]);
    assert_clean(&repo);
}

#[test]
fn a_reflog_that_is_kept_for_ever_is_kept() {
    let (storage, repo) = fresh();
    commit_all(&repo, "main", &run(2, 1, 200));
    for days in [i64::MAX as u64, 200_000_000_000, 1 << 40] {
        set(&storage, "gc.reflog_days", &days.to_string());
        mdl_repo::gc(&open(storage.clone()), &GENTLE, &Silent).expect("gc");
        assert_eq!(repo.refs().reflog(&RefName::branch("main").expect("a name")).expect("log").len(), 2, "{days}");
    }
}

#[test]
fn a_log_of_nothing_does_not_stop_a_collection() {
    let (storage, repo) = fresh();
    set(&storage, "user.name", "somebody");
    let name = "a-long-name".repeat(18);
    let versions = run(2, 1, 200);
    commit_all(&repo, &name, &versions);
    for stray in ["logs/config", "logs/format", "logs/a..b"] {
        storage.put(&Key::fixed(stray), b"\n{}").expect("put");
    }
    mdl_repo::gc(&open(storage.clone()), &GENTLE, &Silent).expect("gc");
    mdl_repo::gc(&open(storage), &NOW, &Silent).expect("gc");
    let logged = repo.refs().logged().expect("logs");
    assert_eq!(logged, [RefName::branch(&name).expect("a name")]);
}
