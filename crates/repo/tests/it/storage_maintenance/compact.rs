//! Compaction: chains get short, packs few, versions stay what they were. Crashes are swept here too, with the helper
//! of `crash`.

use super::{crash, setup::*};
use mdl_objects::Id;
use mdl_repo::{
    CompactOptions, CompactReport, Repo, Silent,
    storage::{Fault, FaultStorage, MemoryStorage, Storage},
};
use mdl_store::write::chain_len;
use std::sync::Arc;

const DO: CompactOptions = CompactOptions { dry_run: false };

fn compact(repo: &Repo) -> CompactReport {
    mdl_repo::compact(repo, &DO, &Silent).expect("compact")
}

/// Deltas below tensor `a` of a version, by the chain that is followed.
fn depth(repo: &Repo, id: &Id) -> usize {
    let files = repo.odb().files(&repo.odb().commit(id).expect("commit").tree).expect("files");
    let manifest = repo.odb().manifest(&files["model.safetensors"].id).expect("manifest");
    let a = manifest.tensors.iter().find(|t| t.name == "a").expect("a");
    let base = |id: &Id| repo.odb().locate(id).expect("locate").expect("tensor").record.base;
    std::iter::successors(base(&a.id), base).count()
}

/// Versions in a chain of one difference after the other.
fn history(n: usize, len: usize) -> (MemoryStorage, Repo, Vec<(Id, Version)>) {
    let (storage, repo) = fresh();
    let versions = run(n, 1, len);
    let all = versions.into_iter().map(|v| (commit_in_line(&repo, "main", &v), v)).collect();
    (storage, repo, all)
}

#[test]
fn old_chains_are_laid_out_as_skip_deltas_are() {
    let (storage, repo, all) = history(40, 600);
    move_ref(&repo, "refs/heads/main", None);
    // By a tag, which has no tip's limit on the versions below.
    move_ref(&repo, "refs/tags/run", Some(all[39].0));
    set(&storage, "delta.max_depth", "250");
    let (ids, repo): (Vec<Id>, Repo) = (all.iter().map(|(id, _)| *id).collect(), open(storage.clone()));
    let report = compact(&repo);
    assert_eq!((report.deepest_before, report.deepest_after), (39, 7), "{report:?}");
    for (place, id) in ids.iter().enumerate().take(39) {
        assert_eq!(depth(&repo, id), usize::from(chain_len(place as u8)), "{place}");
    }
    // Two tensors at each multiple of 4, and at the tag.
    assert_eq!(report.tensors_reencoded, 2 * (9 + 1));
    all.iter().for_each(|(id, v)| assert_version(&repo, id, v));
    assert_clean(&repo);
    assert_eq!(compact(&open(storage)).tensors_reencoded, 0, "a second run has nothing to do");
}

#[test]
fn forks_of_a_history_and_prunes_in_it_leave_chains_short() {
    let (storage, repo) = fresh();
    let versions = run(40, 1, 600);
    let mut all: Vec<(Id, Version)> = versions[..10].iter().map(|v| (commit(&repo, "main", v), v.clone())).collect();
    for (branch, from, other) in [("left", 6, 3), ("right", 9, 4)] {
        move_ref(&repo, &format!("refs/heads/{branch}"), Some(all[from].0));
        for v in versions.iter().skip(other * 5).take(9) {
            all.push((commit(&repo, branch, v), v.clone()));
        }
    }
    assert!(all.iter().all(|(id, _)| depth(&repo, id) <= 9));
    // Without its branch, half of a history is garbage: what stands on it keeps its bases.
    drop_branch(&repo, "left");
    forget(&repo);
    mdl_repo::gc(&repo, &NOW, &Silent).expect("gc");
    let kept: Vec<_> = all.into_iter().filter(|(id, _)| repo.odb().contains(id).expect("look")).collect();
    assert_eq!(kept.len(), 19);
    for v in &versions[30..] {
        commit(&repo, "right", v);
    }
    kept.iter().for_each(|(id, v)| assert_version(&repo, id, v));
    assert_clean(&open(storage));
}

#[test]
fn chains_go_on_from_what_was_laid_out_anew() {
    let (storage, repo, mut all) = history(17, 600);
    compact(&repo);
    for v in run(90, 1, 600).into_iter().skip(17) {
        all.push((commit(&repo, "main", &v), v));
    }
    let deepest = all.iter().map(|(id, _)| depth(&repo, id)).max();
    assert!(deepest <= Some(16), "{deepest:?}");
    all.iter().for_each(|(id, v)| assert_version(&repo, id, v));
    compact(&repo);
    let deepest = all.iter().map(|(id, _)| depth(&repo, id)).max();
    assert!(deepest <= Some(10), "{deepest:?}");
    all.iter().for_each(|(id, v)| assert_version(&repo, id, v));
    assert_clean(&open(storage));
}

#[test]
fn the_tip_is_near_a_snapshot_and_packs_are_merged() {
    let (storage, repo, all) = history(12, 3000);
    assert_eq!(depth(&repo, &all[11].0), 11, "the test needs deltas");
    let dry = mdl_repo::compact(&repo, &CompactOptions { dry_run: true }, &Silent).expect("dry run");
    assert_eq!(packs(&storage).len(), 12);
    let report = compact(&repo);
    assert_eq!((report.packs_before, report.packs_after, packs(&storage).len()), (12, 1, 1));
    // Of two tensors the fourth and eighth version, and the tip.
    assert_eq!((report.tensors_reencoded, report.deepest_before), (6, 11));
    assert_eq!((dry.tensors_reencoded, dry.deepest_after, dry.packs_before), (6, report.deepest_after, 12));
    assert!(depth(&repo, &all[11].0) <= 1);
    assert_eq!(report.bytes_after, packed_bytes(&storage));
    all.iter().for_each(|(id, v)| assert_version(&repo, id, v));
    assert_clean(&repo);
    // A second run finds nothing to do.
    let before = packs(&storage);
    let again = compact(&open(storage.clone()));
    assert_eq!((again.tensors_reencoded, again.packs_before, again.bytes_before), (0, 1, again.bytes_after));
    assert_eq!(packs(&storage), before);
}

#[test]
fn chains_past_a_lowered_limit_are_cut() {
    let (storage, _, all) = history(12, 3000);
    for (limit, deepest) in [(4, 4), (1, 1), (0, 0)] {
        set(&storage, "delta.max_depth", &limit.to_string());
        let repo = open(storage.clone());
        let report = compact(&repo);
        assert!(report.tensors_reencoded > 0 && report.deepest_after <= deepest, "{limit}: {report:?}");
        assert!(all.iter().all(|(id, _)| depth(&repo, id) as u64 <= deepest));
        all.iter().for_each(|(id, v)| assert_version(&repo, id, v));
        assert_clean(&repo);
        assert_eq!(compact(&repo).tensors_reencoded, 0);
    }
}

#[test]
fn commits_on_top_of_compacted_chains_can_be_read() {
    // What stands on a tensor that was encoded anew states a greater depth than its chain has: a new delta must state
    // more still.
    let (storage, repo, mut all) = history(10, 3000);
    move_ref(&repo, "refs/heads/middle", Some(all[5].0));
    compact(&repo);
    let tail = run(16, 1, 3000);
    for (i, v) in tail.iter().enumerate().skip(10) {
        all.push((commit(&repo, "main", v), v.clone()));
        if i % 2 == 0 {
            compact(&repo);
        }
        assert_clean(&repo);
    }
    let mut other = tail[6].clone();
    other.insert("note.txt".to_owned(), b"another line of work".to_vec());
    for name in ["side", "side2"] {
        move_ref(&repo, &format!("refs/heads/{name}"), Some(all[8].0));
        other.insert("name".to_owned(), name.as_bytes().to_vec());
        all.push((commit(&repo, name, &other), other.clone()));
        compact(&repo);
    }
    all.iter().for_each(|(id, v)| assert_version(&repo, id, v));
    mdl_repo::gc(&repo, &NOW, &Silent).expect("gc");
    all.iter().for_each(|(id, v)| assert_version(&repo, id, v));
    assert_clean(&open(storage));
}

#[test]
fn commits_after_a_cut_off_compaction_can_be_read() {
    // Tensors were encoded anew and nothing was merged yet: what stands on them states more depth than its chain has,
    // and a delta to it must state more still.
    let (storage, repo, all) = history(8, 3000);
    move_ref(&repo, "refs/heads/middle", Some(all[3].0));
    let counted = FaultStorage::new(Arc::new(duplicate(&storage)), None);
    compact(&open(counted.clone()));
    let next = run(9, 1, 3000).remove(8);
    let mut shortened = 0;
    for at in (1..=counted.changes()).step_by(3) {
        let survivor = duplicate(&storage);
        let failing = FaultStorage::new(Arc::new(survivor.clone()), Some(Fault::Kill(at)));
        mdl_repo::compact(&open(failing), &DO, &Silent).expect_err("killed");
        let repo = open(survivor);
        move_ref(&repo, "refs/heads/late", Some(all[6].0));
        shortened += usize::from(depth(&repo, &all[6].0) < 6);
        let id = commit(&repo, "late", &next);
        assert_version(&repo, &id, &next);
        assert_clean(&repo);
    }
    assert!(shortened > 0, "the test needs a kill between encoding and merging");
}

#[test]
fn a_compaction_loses_nothing_when_killed() {
    let (storage, repo, all) = history(4, 200);
    set(&storage, "delta.max_depth", "2");
    commit_all(&repo, "side", &run(1, 9, 200));
    let scene = crash::Scene { storage, kept: all };
    let counted = FaultStorage::new(Arc::new(duplicate(&scene.storage)), None);
    assert!(compact(&open(counted)).tensors_reencoded > 0);
    crash::sweep(&scene, &|repo| mdl_repo::compact(repo, &DO, &Silent).map(drop), &|_, _| {});
}

#[test]
fn readers_beside_a_collection_and_a_compaction_do_not_notice() {
    let (storage, _, all) = history(8, 3000);
    let reader = open(storage.clone());
    // The reader has seen the packs as they were; they are replaced under it.
    all.iter().for_each(|(id, v)| assert_version(&reader, id, v));
    let tensor = {
        let files = reader.odb().files(&reader.odb().commit(&all[7].0).expect("commit").tree).expect("files");
        reader.odb().manifest(&files["model.safetensors"].id).expect("manifest").tensors[0].id
    };
    let half_read = reader.odb().tensor(&tensor).expect("tensor");
    compact(&open(storage.clone()));
    half_read.read().expect("a reader that was at it goes on");
    all.iter().for_each(|(id, v)| assert_version(&reader, id, v));
}

#[test]
fn damage_stops_a_compaction_before_anything_is_lost() {
    let (storage, _, all) = history(4, 600);
    for key in packs(&storage) {
        let sound = storage.get(&key).expect("get").expect("pack");
        for at in [40, sound.len() - 70] {
            let copy = duplicate(&storage);
            let mut damaged = sound.clone();
            damaged[at] ^= 1;
            copy.put(&key, &damaged).expect("damage");
            mdl_repo::compact(&open(copy.clone()), &DO, &Silent).expect_err("refused");
            assert!(packs(&copy).contains(&key));
            copy.put(&key, &sound).expect("repair");
            all.iter().for_each(|(id, v)| assert_version(&open(copy.clone()), id, v));
        }
    }
    let repo = open(storage);
    compact(&repo);
    all.iter().for_each(|(id, v)| assert_version(&repo, id, v));
    assert_clean(&repo);
}
