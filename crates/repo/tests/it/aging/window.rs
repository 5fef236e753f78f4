//! Windows: how many of the newest versions are exact, and the best by a metric.

use super::run::{Run, fidelity, read};
use mdl_repo::{CommitRequest, Fidelity, GcOptions, Silent, Standing};
use std::collections::BTreeMap;

#[test]
fn the_newest_version_is_exact_and_the_one_before_until_it_is_collected() {
    let mut run = Run::new("exact_latest = 1");
    run.on(1);
    assert!(run.aged().is_empty());
    run.on(3);
    assert_eq!(run.aged(), [0, 1, 2]);
    run.are_exact(&[0, 1, 2, 3]);
    // Until the time of grace is over nothing goes.
    let gentle = GcOptions { prune_now: false, ..super::run::NOW };
    let report = mdl_repo::gc(&run.p.repo, &gentle, &Silent).expect("gc");
    assert_eq!((report.aged, report.bytes_freed), (0, 0));
    run.are_exact(&[0, 1, 2, 3]);
    let before: Vec<_> = run.all.iter().map(|v| run.p.repo.odb().commit(&v.id).expect("commit")).collect();

    let report = run.collect();
    assert!(report.aged == 3 && report.pruned == 0 && report.bytes_freed > 0, "{report:?}");
    run.are_exact(&[3]);
    for (version, was) in run.all.iter().zip(&before) {
        let commit = run.p.repo.odb().commit(&version.id).expect("commit");
        assert_eq!(commit, *was, "the commit is as it was");
        let standing = mdl_repo::standing(&run.p.repo, &version.id, &commit).expect("standing");
        match standing {
            Standing::StandIn(tree, mark) => {
                assert_eq!(Some(tree), commit.approximation);
                assert!(mark.rules == "exact: latest 1" && !run.p.repo.odb().has(&commit.tree).expect("has"));
            }
            other => assert_eq!((other, version.id), (Standing::Committed, run.all[3].id)),
        }
    }
    let again = run.collect();
    assert_eq!((again.aged, again.bytes_freed), (3, 0));
    run.on(1).collect();
    run.are_exact(&[4]);
}

#[test]
fn a_window_of_none_stores_no_exact_copy() {
    let mut run = Run::new("exact_latest = 0");
    run.on(3);
    assert!(run.aged().is_empty());
    for version in &run.all {
        let commit = run.p.repo.odb().commit(&version.id).expect("commit");
        assert!(commit.approximation.is_none() && version.near != version.exact);
        assert_eq!(read(&run.p.repo, &version.id).expect("read"), version.near);
        assert_eq!(fidelity(&run.p.repo, &version.id), Fidelity::Approximate);
    }
    assert_eq!(run.collect().aged, 0);
    run.are_exact(&[]);
    // Later versions may be kept exact all the same.
    run.keep("exact_latest = 1");
    run.on(2).collect();
    run.are_exact(&[4]);
}

#[test]
fn a_window_of_three_moves_on_and_shrinks() {
    let mut run = Run::new("exact_latest = 3");
    for n in 0..6usize {
        run.on(1).collect();
        run.are_exact(&(n.saturating_sub(2)..=n).collect::<Vec<_>>());
    }
    run.keep("exact_latest = 1");
    run.on(1).collect();
    run.are_exact(&[6]);
    // What is gone does not come back.
    run.keep("exact_latest = 3");
    run.on(1).collect();
    run.are_exact(&[6, 7]);
}

#[test]
fn a_branch_that_moves_back_keeps_what_is_in_its_window_again() {
    let mut run = Run::new("exact_latest = 2");
    let on = |branch: &str| CommitRequest { branch: Some(branch.to_owned()), ..CommitRequest::default() };
    run.on(1);
    for _ in 0..3 {
        run.commit(on("tune"));
    }
    assert_eq!(run.aged(), [1]);
    let to = |run: &Run, name: &str, n: usize| mdl_repo::create_branch(&run.p.repo, name, &run.all[n].id, true);
    to(&run, "other", 3).expect("a name for the newest");
    to(&run, "tune", 2).expect("moved back");
    run.collect();
    run.are_exact(&[0, 1, 2, 3]);
    run.commit(on("tune"));
    run.collect();
    run.are_exact(&[0, 2, 3, 4]);
}

fn with_loss(loss: f64) -> CommitRequest {
    CommitRequest { metrics: BTreeMap::from([("loss".to_owned(), loss)]), ..CommitRequest::default() }
}

#[test]
fn the_best_versions_stay_exact_for_as_long_as_they_are_the_best() {
    let mut run = Run::new("exact_latest = 1\nexact_best = { metric = \"loss\", n = 2 }");
    for loss in [5.0, 1.0, 3.0, f64::NAN, 2.0, 4.0] {
        run.commit(with_loss(loss));
        run.collect();
    }
    // Of the first three the middle one and the last are best, until 2.0 comes.
    run.are_exact(&[1, 4, 5]);
    assert!(run.aged().iter().all(|n| [0, 2, 3].contains(n)), "{:?}", run.aged());
    run.commit(with_loss(0.5));
    run.commit(with_loss(6.0));
    run.collect();
    run.are_exact(&[1, 6, 7]);
}

#[test]
fn what_was_the_best_goes_once_a_better_one_comes() {
    let mut run = Run::new("exact_latest = 1\nexact_best = { metric = \"loss\" }");
    for loss in [1.0, 3.0, 2.0, 0.5, 4.0] {
        run.commit(with_loss(loss));
    }
    run.collect();
    run.are_exact(&[3, 4]);
}

#[test]
fn the_best_alone_can_be_kept() {
    let mut run = Run::new("exact_latest = 0\nexact_best = { metric = \"score\", lower_is_better = false }");
    for score in [1.0, 3.0, 2.0] {
        let metrics = BTreeMap::from([("score".to_owned(), score)]);
        run.commit(CommitRequest { metrics, ..CommitRequest::default() });
        run.collect();
    }
    // The newest has a name: that of its branch.
    run.are_exact(&[1, 2]);
    assert_eq!(run.aged(), [0]);
}

#[test]
fn a_metric_that_tells_no_direction_is_refused_before_anything_is_stored() {
    let run = Run::new("exact_latest = 1");
    // One in a file is checked when it is named; a stored one may be of an older release.
    let text = "try = [\"lattice\"]\n[keep]\nexact_best = { metric = \"quality\" }\n";
    let mut lossy = mdl_repo::LossyRequest {
        policy: mdl_repo::Policy::parse("ages", text).expect("a policy"),
        evaluator: None,
        direction: mdl_repo::Direction::LowerIsBetter,
        grads: None,
        since: None,
    };
    let request = run.request(CommitRequest::default());
    mdl_repo::commit_lossy(&run.p.repo, &request, &mut lossy, &Silent).expect_err("which way is better?");
    assert!(run.p.repo.refs().head_commit().expect("head").is_none());
    for rule in [
        "exact_best = { metric = \"quality\" }",
        "exact_best = { metric = \"\" }",
        "exact_best = { metric = \"loss\", n = 0 }",
        "exact_worst = 1",
    ] {
        let text = format!("try = [\"lattice\"]\n[keep]\n{rule}\n");
        mdl_repo::set_policy(&run.p.repo, "odd", &text).expect_err("makes no sense");
    }
}
