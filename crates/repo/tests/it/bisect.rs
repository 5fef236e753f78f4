//! Bisection of a repository: its state on disk, what it checks out, metrics.

use crate::support::{Place, add_object, bare_commit, engine, fresh, place};
use mdl_objects::{Commit, Id, Kind};
use mdl_repo::{
    ErrorKind, Head, Measured, Noise, Outlook, Repo, Silent, Threshold, Verdict, WriteTransaction, bisect_mark,
    bisect_metric, bisect_next, bisect_reset, bisect_start, bisect_visit, bisect_with_noise, bisection, metric_of,
};
use std::collections::BTreeMap;

/// Commits with these parents (places before their own) and losses.
fn history(repo: &Repo, nodes: &[(Vec<usize>, Option<f64>)]) -> Vec<Id> {
    let transaction = WriteTransaction::begin(repo).expect("lock");
    let mut pack = transaction.pack([]).expect("pack");
    let mut ids: Vec<Id> = Vec::new();
    for (n, (parents, loss)) in nodes.iter().enumerate() {
        let parents = parents.iter().map(|p| ids[*p]).collect();
        let metrics: BTreeMap<String, f64> = loss.iter().map(|v| ("loss".to_owned(), *v)).collect();
        let tree = Id::from_content(Kind::Tree, b"none");
        let commit = Commit { parents, metrics, message: format!("number {n}"), ..bare_commit(tree, n as i64) };
        ids.push(add_object(&mut pack, Kind::Commit, &commit.encode()));
    }
    transaction.publish(pack).expect("published");
    ids
}

fn line(n: usize, loss: impl Fn(usize) -> Option<f64>) -> Vec<(Vec<usize>, Option<f64>)> {
    (0..n).map(|i| (i.checked_sub(1).into_iter().collect(), loss(i))).collect()
}

fn above(limit: f64) -> Threshold {
    Threshold { metric: "loss".to_owned(), above: Some(limit), below: None }
}

fn measured(repo: &Repo, bad: Id, good: &[Id], threshold: &Threshold, noisy: bool) -> Measured {
    bisect_metric(repo, bad, good, threshold, noisy, &|_, c| metric_of(c, "loss")).expect("bisected")
}

#[test]
fn metrics_of_a_thousand_versions_take_ten_looks() {
    let (_, repo) = fresh();
    let ids = history(&repo, &line(1000, |i| Some(if i >= 617 { 2.5 } else { 2.0 })));
    let found = measured(&repo, ids[999], &[ids[0]], &above(2.3), false);
    assert_eq!((found.first_bad, found.candidates), (vec![ids[617]], 999));
    assert!(found.looked_at.len() <= 10, "{}", found.looked_at.len());
    assert_eq!(measured(&repo, ids[999], &[], &above(1.0), false).first_bad, [ids[0]]);
}

#[test]
fn noisy_metrics_are_all_looked_at_and_the_fewest_are_wrong() {
    let (_, repo) = fresh();
    // Every ninth value is on the wrong side.
    let wrong = |i: usize| i.is_multiple_of(9);
    let ids =
        history(&repo, &line(300, |i| Some(if (i >= 140) ^ wrong(i) { 3.0 } else { f64::from(i as u32) / 300.0 })));
    let found = measured(&repo, ids[299], &[], &above(2.3), true);
    assert_eq!(found.first_bad, [ids[140]]);
    assert_eq!((found.looked_at.len(), found.wrong), (300, Some((0..300).filter(|i| wrong(*i)).count())));
}

#[test]
fn versions_without_the_metric_and_values_that_are_no_numbers() {
    let (_, repo) = fresh();
    let loss = |i| match i {
        4..=6 => None,
        7 => Some(f64::NAN),
        i => Some(if i > 7 { 9.0 } else { 1.0 }),
    };
    let ids = history(&repo, &line(12, loss));
    let found = measured(&repo, ids[11], &[], &above(2.0), false);
    // The bad one first, then those that nothing is known of.
    assert_eq!(found.first_bad, [ids[7], ids[6], ids[5], ids[4]]);
    let error = |bad: Id, good: &[Id]| {
        let value = |_: &Id, c: &Commit| metric_of(c, "loss");
        bisect_metric(&repo, bad, good, &above(2.0), false, &value).expect_err("refused").to_string()
    };
    assert!(error(ids[2], &[]).contains("is 1, which is not bad"));
    assert!(error(ids[5], &[]).contains("was not recorded"));
    assert!(error(ids[11], &[ids[8]]).contains("named as good"));
    assert!(error(ids[3], &[ids[3]]).contains("not bad") || error(ids[3], &[ids[3]]).contains("good"));
}

fn versions(place: &Place, n: usize) -> Vec<Id> {
    (0..n)
        .map(|i| {
            place.write("model.bin", format!("version {i}").as_bytes());
            place.commit(&format!("number {i}")).id
        })
        .collect()
}

#[test]
fn versions_are_checked_out_and_the_branch_comes_back() {
    let mut place = place();
    let ids = versions(&place, 9);
    let mut outlook = bisect_start(&place.repo, Some(ids[8]), &[ids[0]], true).expect("started");
    let mut steps = 0;
    while let Outlook::Test { commits, .. } = &outlook {
        let next = commits[0];
        bisect_visit(&place.repo, &outlook, &Silent).expect("checked out");
        assert_eq!(place.repo.refs().head().expect("HEAD"), Head::Detached(next));
        let number: usize = String::from_utf8(place.read("model.bin")).expect("text")[8..].parse().expect("number");
        assert_eq!(ids[number], next);
        // Another process goes on with it.
        place.reopen();
        let verdict = if number >= 5 { Verdict::Bad } else { Verdict::Good };
        bisect_mark(&place.repo, &[next], verdict, false).expect("marked");
        outlook = bisect_next(&place.repo, 1).expect("next");
        steps += 1;
    }
    assert_eq!((outlook, steps), (Outlook::Found { commit: ids[5], probability: None }, 3));
    assert_eq!(bisection(&place.repo).expect("state").expect("one").marks.len(), 5);
    let error = bisect_start(&place.repo, None, &[], true).expect_err("under way");
    assert_eq!(error.kind(), ErrorKind::User);
    assert_eq!(bisect_reset(&place.repo, None, &Silent).expect("reset"), Some(Head::Branch("main".to_owned())));
    assert_eq!(place.read("model.bin"), b"version 8");
    assert!(bisection(&place.repo).expect("state").is_none());
    bisect_reset(&place.repo, None, &Silent).expect_err("none is under way");
}

#[test]
fn contradictions_are_refused_and_nothing_is_noted() {
    let place = place();
    let ids = versions(&place, 6);
    bisect_start(&place.repo, Some(ids[0]), &[ids[5]], false).expect_err("the wrong way round");
    assert!(bisection(&place.repo).expect("state").is_none());
    assert_eq!(
        bisect_start(&place.repo, None, &[ids[0]], false).expect("started"),
        Outlook::Waiting { bad: false, good: true }
    );
    bisect_mark(&place.repo, &[ids[4]], Verdict::Bad, false).expect("marked");
    bisect_mark(&place.repo, &[ids[5]], Verdict::Good, false).expect_err("a descendant of a bad one");
    assert_eq!(bisection(&place.repo).expect("state").expect("one").marks.len(), 2);
    // A verdict that was wrong is said again.
    bisect_mark(&place.repo, &[ids[2]], Verdict::Good, false).expect("marked");
    bisect_mark(&place.repo, &[ids[2]], Verdict::Bad, false).expect("corrected");
    bisect_mark(&place.repo, &[ids[1]], Verdict::Skip, false).expect("marked");
    let Outlook::Undecided { commits } = bisect_next(&place.repo, 1).expect("next") else { panic!("all are skipped") };
    assert_eq!(commits, [ids[1], ids[2]]);
    for (repeat, rate) in [(0, 0.1), (3, 0.5), (3, 0.0), (3, f64::NAN)] {
        bisect_with_noise(&place.repo, Noise { repeat, rate }).expect_err("no such noise");
    }
}

#[test]
fn a_state_that_is_damaged_anywhere_is_said_so_and_can_be_ended() {
    let place = place();
    let ids = versions(&place, 4);
    bisect_start(&place.repo, Some(ids[3]), &[ids[0]], false).expect("started");
    let file = place.path().join(".mdl/bisect");
    let whole = std::fs::read(&file).expect("state");
    let before = bisection(&place.repo).expect("state");
    let damaged = (0..whole.len()).map(|n| whole[..n].to_vec()).chain((0..whole.len() * 8).map(|i| {
        let mut bad = whole.clone();
        bad[i / 8] ^= 1 << (i % 8);
        bad
    }));
    for bytes in damaged {
        std::fs::write(&file, &bytes).expect("write");
        match bisection(&place.repo) {
            Ok(found) => assert_eq!(found, before, "the last line feed says nothing"),
            Err(e) => assert!(matches!(e.kind(), ErrorKind::Corrupt | ErrorKind::User), "{e}"),
        }
    }
    std::fs::write(&file, b"nonsense").expect("write");
    assert_eq!(bisect_next(&place.repo, 1).expect_err("damaged").kind(), ErrorKind::Corrupt);
    assert_eq!(bisect_reset(&place.repo, None, &Silent).expect("ended"), None);
    assert!(bisection(&Repo::open(place.path(), engine()).expect("open")).expect("state").is_none());
}
