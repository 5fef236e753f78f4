//! Transfers of histories some of whose versions were pruned: the marks travel, and never cost a receiver what it has.

use crate::support::{Place, files, near, place};
use mdl_objects::Id;
use mdl_remote::{
    Peer,
    fetch::receive,
    push::{Push, Pushed, push},
    sync::{RefMove, Want},
};
use mdl_repo::{CompactOptions, ErrorKind, GcOptions, PruneOptions, PrunedMark, Repo, Result, Retention, Silent};

const MAIN: &str = "refs/heads/main";
const NOW: GcOptions = GcOptions { dry_run: false, prune_now: true, grace: None };

fn send(from: &Place, to: &Place, name: &str, new: Option<Id>) -> Result<Pushed> {
    let wish = Push { name: name.to_owned(), new, force: false, lease: None };
    let done = push(&from.repo, &near(to), &[wish], "push", &Silent)?;
    assert!(done.refs.iter().all(|(_, r)| r.is_ok()), "{:?}", done.refs);
    Ok(done)
}

/// Lets go of all versions but the newest ones, for good.
fn thin(place: &Place, keep: u64) {
    let rules = Retention::LatestN { n: keep };
    mdl_repo::prune(&place.repo, None, &rules, &PruneOptions::default()).expect("prune");
    mdl_repo::compact(&place.repo, &CompactOptions::default(), &Silent).expect("compact");
    mdl_repo::gc(&place.repo, &NOW, &Silent).expect("gc");
}

fn mark(time_ms: i64) -> PrunedMark {
    PrunedMark { time_ms, rules: "latest 2".to_owned(), ..PrunedMark::default() }
}

fn is_clean(repo: &Repo) {
    assert_eq!(mdl_repo::fsck(repo, false, &Silent).expect("fsck").problems, []);
}

/// Another handle: what this one has seen before a collection says nothing.
fn again(place: &Place) -> Repo {
    Repo::open(place.dir.path(), crate::support::engine()).expect("open")
}

/// A version and its files.
type Held = (Id, Vec<(String, Vec<u8>)>);

fn is_whole(place: &Place, like: &[Held]) {
    mdl_repo::gc(&place.repo, &NOW, &Silent).expect("gc");
    let repo = again(place);
    like.iter().for_each(|(id, all)| assert_eq!(&files(&repo, id), all, "{id}"));
    is_clean(&repo);
}

#[test]
fn a_pruned_history_is_pushed_with_its_marks() {
    let (here, there) = (place(), place());
    let ids = here.train(6);
    thin(&here, 2);
    send(&here, &there, MAIN, Some(ids[5])).expect("push");
    let known: Vec<Id> = mdl_repo::pruned(&there.repo).expect("record").iter().map(|(id, _)| *id).collect();
    assert!(known.len() == 4 && ids[..4].iter().all(|id| known.contains(id)));
    for id in &ids[4..] {
        assert_eq!(files(&here.repo, id), files(&there.repo, id));
    }
    let gone = mdl_repo::files(&again(&there), &ids[0]).expect_err("pruned");
    assert!(gone.to_string().contains("latest 2"), "{gone}");
    is_clean(&there.repo);
    mdl_repo::gc(&there.repo, &NOW, &Silent).expect("gc");
    // The next one is a push as any other.
    let ids = here.train(7);
    send(&here, &there, MAIN, Some(ids[6])).expect("push");
    assert_eq!(files(&here.repo, &ids[6]), files(&again(&there), &ids[6]));
    is_clean(&again(&there));
}

#[test]
fn what_another_has_pruned_and_we_hold_stays_ours() {
    let (ours, theirs) = (place(), place());
    let ids = ours.train(10);
    send(&ours, &theirs, MAIN, Some(ids[9])).expect("push");
    thin(&theirs, 1);
    // Of our history they are told commits at growing distances: what lies before their tip they take for unknown to
    // us.
    let ids: Vec<Id> = ids.into_iter().chain(ours.train(5)).collect();
    let held: Vec<_> = ids.iter().map(|id| (*id, files(&ours.repo, id))).collect();
    let want =
        Want { tips: vec![ids[9]], haves: mdl_remote::sync::haves(&ours.repo, 512).expect("haves"), ..Want::default() };
    let plan = near(&theirs).plan(&want, &Silent).expect("plan");
    assert!(!plan.pruned.is_empty(), "the test is about marks");
    receive(&ours.repo, &near(&theirs), want, &Silent).expect("received");
    is_whole(&ours, &held);
    assert_eq!(mdl_repo::pruned(&ours.repo).expect("record").iter().count(), 0);
}

#[test]
fn a_mark_counts_only_for_what_is_not_here_and_nothing_holds() {
    let here = place();
    let ids = here.train(3);
    let held: Vec<_> = ids.iter().map(|id| (*id, files(&here.repo, id))).collect();
    let nobody = Id::from_bytes([7; 32]);
    let marks: Vec<_> = ids.iter().chain([&nobody]).map(|id| (*id, mark(1))).collect();
    near(&here).note_pruned(&marks).expect("noted");
    assert_eq!(mdl_repo::pruned(&here.repo).expect("record").iter().count(), 0);
    is_whole(&here, &held);
}

#[test]
fn what_comes_whole_later_is_no_longer_marked() {
    let (whole, thinned, there) = (place(), place(), place());
    let ids = whole.train(5);
    send(&whole, &thinned, MAIN, Some(ids[4])).expect("push");
    thin(&thinned, 1);
    send(&thinned, &there, "refs/heads/a", Some(ids[4])).expect("push");
    assert_eq!(mdl_repo::pruned(&there.repo).expect("record").iter().count(), 4);
    send(&thinned, &there, "refs/heads/a", None).expect("deleted");
    send(&whole, &there, MAIN, Some(ids[4])).expect("push");
    assert_eq!(mdl_repo::pruned(&again(&there)).expect("record").iter().count(), 0);
    let held: Vec<_> = ids.iter().map(|id| (*id, files(&whole.repo, id))).collect();
    is_whole(&there, &held);
}

#[test]
fn what_was_pruned_here_stays_pruned_when_others_push_it() {
    let (here, there) = (place(), place());
    let ids = here.train(4);
    send(&here, &there, MAIN, Some(ids[3])).expect("push");
    let rules = Retention::LatestN { n: 1 };
    mdl_repo::prune(&there.repo, None, &rules, &PruneOptions::default()).expect("prune");
    send(&here, &there, "refs/heads/b", Some(ids[3])).expect("push");
    assert_eq!(mdl_repo::pruned(&there.repo).expect("record").iter().count(), 3);
}

#[test]
fn a_mark_is_neither_of_tomorrow_nor_endless() {
    let mark = PrunedMark { time_ms: i64::MAX, rules: "\u{1b}[2Jrules ".repeat(1000), ..PrunedMark::default() };
    let short = mark.short();
    assert!(short.time_ms < i64::MAX && short.rules.len() == 1000 && !short.rules.contains('\u{1b}'));
}

#[test]
fn no_name_is_given_to_what_was_pruned() {
    let (here, other) = (place(), place());
    let ids = here.train(3);
    thin(&here, 1);
    send(&here, &other, MAIN, Some(ids[2])).expect("push");
    let m = RefMove { name: "refs/heads/old".to_owned(), expected: None, new: Some(ids[0]), force: false };
    let refused = near(&other).move_refs(&[m], "push").expect("asked").remove(0);
    assert_eq!(refused.expect_err("pruned").kind(), ErrorKind::NotFound);
}
