//! Aging is undone until a collection has run, and goes together with pruning.

use super::run::{Run, fidelity, is_clean, read};
use mdl_objects::Id;
use mdl_repo::{
    ErrorKind, Fidelity, GcOptions, PruneOptions, PruneReport, PrunedVersion, RepoError, Retention, Silent,
};
use std::time::Duration;

fn undo(run: &Run, versions: &[usize]) -> mdl_repo::Result<Vec<PrunedVersion>> {
    let ids: Vec<Id> = versions.iter().map(|n| run.all[*n].id).collect();
    mdl_repo::undo_prune(&run.p.repo, Some(&ids))
}

/// Prunes all but the newest versions.
fn prune(run: &Run, keep: u64) -> PruneReport {
    let rules = Retention::LatestN { n: keep };
    mdl_repo::prune(&run.p.repo, None, &rules, &PruneOptions::default()).expect("prune")
}

fn pruned(run: &Run) -> Vec<usize> {
    let record = mdl_repo::pruned(&run.p.repo).expect("the record");
    (0..run.all.len()).filter(|n| record.get(&run.all[*n].id).is_some()).collect()
}

#[test]
fn aging_is_undone_until_a_collection_has_run() {
    let mut run = Run::new("exact_latest = 1");
    run.on(4);
    let back = undo(&run, &[0, 2]).expect("undone");
    assert_eq!(back.iter().map(|v| v.step).collect::<Vec<_>>(), [Some(0), Some(2)]);
    assert_eq!(run.aged(), [1]);
    run.collect();
    run.are_exact(&[0, 2, 3]);
    // With a tag it lasts.
    mdl_repo::create_tag(&run.p.repo, "kept", &run.all[2].id, None, false).expect("tag");
    run.on(2).collect();
    run.are_exact(&[2, 5]);
}

#[test]
fn what_was_undone_ages_again_with_the_next_commit() {
    let mut run = Run::new("exact_latest = 1");
    run.on(5);
    undo(&run, &[1]).expect("undone");
    assert_eq!(run.aged(), [0, 2, 3]);
    run.on(1);
    assert_eq!(run.aged(), [0, 1, 2, 3, 4]);
    run.collect();
    run.are_exact(&[5]);
}

#[test]
fn after_a_collection_nothing_is_undone_and_nothing_is_lost() {
    let mut run = Run::new("exact_latest = 1");
    run.on(2).collect();
    run.on(1);
    let record = mdl_repo::pruned(&run.p.repo).expect("the record");
    // All or none: one of the two is still there.
    for versions in [vec![0], vec![1, 0]] {
        let error = undo(&run, &versions).expect_err("gone");
        assert_eq!(error.kind(), ErrorKind::User);
        let text = format!("{error} {}", error.hint().unwrap_or_default());
        assert!(text.contains(&run.all[0].id.short()) && text.contains("approximation"), "{text}");
        assert_eq!(mdl_repo::pruned(&run.p.repo).expect("the record"), record);
    }
    assert_eq!(undo(&run, &[2]).expect_err("the newest never aged").kind(), ErrorKind::User);
    assert_eq!(mdl_repo::undo_prune(&run.p.repo, None).expect_err("nothing was pruned").kind(), ErrorKind::User);
    run.are_exact(&[1, 2]);
    undo(&run, &[1]).expect("still there");
    run.collect();
    run.are_exact(&[1, 2]);
}

#[test]
fn an_aged_version_is_pruned_before_its_exact_contents_are_collected() {
    let mut run = Run::new("exact_latest = 1");
    run.on(4);
    assert_eq!(prune(&run, 2).pruned.len(), 2);
    assert_eq!((pruned(&run), run.aged()), (vec![0, 1], vec![0, 1, 2]));
    run.are_exact(&[0, 1, 2, 3]);
    // Undone, it is a version like those beside it.
    assert_eq!(mdl_repo::undo_prune(&run.p.repo, None).expect("undone").len(), 2);
    assert_eq!((pruned(&run), run.aged()), (vec![], vec![0, 1, 2]));
    run.on(1);
    assert_eq!(run.aged(), [0, 1, 2, 3]);
    assert_eq!(prune(&run, 3).pruned.len(), 2);
    let report = run.collect();
    assert_eq!((report.pruned, report.aged), (2, 2));
    for n in 0..2 {
        assert!(matches!(read(&run.p.repo, &run.all[n].id), Err(RepoError::Pruned { .. })));
        assert_eq!(fidelity(&run.p.repo, &run.all[n].id), Fidelity::Gone);
        assert!(matches!(undo(&run, &[n]), Err(RepoError::Pruned { .. })));
    }
    for n in 2..5 {
        run.all[n].gives(&run.p.repo, n == 4, &format!("version {n}"));
    }
    is_clean(&run.p.repo);
    run.on(2).collect();
    run.all[6].gives(&run.p.repo, true, "the newest");
    is_clean(&run.p.repo);
}

#[test]
fn an_aged_version_is_pruned_after_its_exact_contents_went() {
    let mut run = Run::new("exact_latest = 1");
    run.on(4).collect();
    let mut done = prune(&run, 2);
    assert!(done.pruned.len() == 2 && done.freed_bytes > 0);
    // Its approximation is there until the next collection, and comes back.
    run.are_exact(&[3]);
    for versions in [None, Some(vec![run.all[0].id, run.all[1].id])] {
        assert_eq!(mdl_repo::undo_prune(&run.p.repo, versions.as_deref()).expect("undone").len(), 2);
        run.collect();
        run.are_exact(&[3]);
        assert_eq!(run.aged(), [0, 1, 2]);
        done = prune(&run, 2);
    }
    // The pruning tells what an ordinary collection frees.
    let ordinary = GcOptions { prune_now: false, grace: Some(Duration::ZERO), ..super::run::NOW };
    let report = mdl_repo::gc(&run.p.repo, &ordinary, &Silent).expect("gc");
    assert_eq!((report.bytes_freed, report.pruned, report.aged), (done.freed_bytes, 2, 1));
    is_clean(&run.p.repo);
    run.collect();
    for n in 0..2 {
        assert!(matches!(read(&run.p.repo, &run.all[n].id), Err(RepoError::Pruned { .. })));
    }
    for n in 2..4 {
        run.all[n].gives(&run.p.repo, n == 3, &format!("version {n}"));
    }
    is_clean(&run.p.repo);
}

#[test]
fn a_tagged_version_that_aged_is_not_pruned() {
    let mut run = Run::new("exact_latest = 1");
    run.on(4);
    mdl_repo::create_tag(&run.p.repo, "t", &run.all[1].id, None, false).expect("tag");
    assert_eq!(prune(&run, 1).pruned.len(), 2);
    run.collect();
    run.all[1].gives(&run.p.repo, true, "tagged");
    run.all[3].gives(&run.p.repo, true, "the newest");
    is_clean(&run.p.repo);
    let error = mdl_repo::create_tag(&run.p.repo, "late", &run.all[0].id, None, false).expect_err("pruned");
    assert_eq!(error.kind(), ErrorKind::NotFound);
}
