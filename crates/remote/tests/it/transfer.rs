//! Direct transfers between two repositories: what is carried, what is refused, what a cut or a false peer does.

use crate::support::{Flaky, Place, files, near, place};
use mdl_objects::Id;
use mdl_remote::{
    Peer,
    fetch::{note_refs, receive},
    push::{Push, Pushed, push},
    sync::{RefMove, Want},
};
use mdl_repo::{CompactOptions, ErrorKind, Repo, Silent, storage::Prefix};

const MAIN: &str = "refs/heads/main";
const ORIGIN: &str = "refs/remotes/origin/main";

fn want(tip: Id) -> Want {
    Want { tips: vec![tip], ..Want::default() }
}

/// Deltas between the deepest tensor that a version names and one stored whole.
fn depth_of(repo: &Repo, tip: Id) -> u8 {
    let plan = mdl_remote::sync::plan_transfer(repo, &want(tip), &Silent).expect("plan");
    plan.offers.iter().flat_map(|o| &o.named).map(|r| r.depth).max().unwrap_or(0)
}

fn pack_bytes(repo: &Repo) -> u64 {
    let listed = repo.storage().list(&Prefix::fixed("packs/")).expect("list");
    listed.iter().map(|s| s.size).sum()
}

fn is_clean(repo: &Repo) {
    let report = mdl_repo::fsck(repo, false, &Silent).expect("fsck");
    assert_eq!(report.problems, []);
}

fn note(repo: &Repo, name: &str, old: Option<Id>, new: Id) {
    let m = RefMove { name: name.to_owned(), expected: old, new: Some(new), force: true };
    let done = note_refs(repo, vec![m], false, "fetch", &Silent).expect("noted");
    done.into_iter().for_each(|(_, r)| r.expect("moved"));
}

/// Why the only ref that was to be pushed was not.
fn refused(done: mdl_repo::Result<Pushed>) -> ErrorKind {
    let (_, outcome) = done.expect("push").refs.remove(0);
    outcome.expect_err("refused").kind()
}

fn same(a: &Place, b: &Place, ids: &[Id]) {
    for id in ids {
        assert_eq!(files(&a.repo, id), files(&b.repo, id));
    }
}

#[test]
fn a_history_comes_over_whole_and_the_next_commit_is_its_delta() {
    let (from, to) = (place(), place());
    let ids = from.train(12);
    let peer = Flaky::new(near(&from));
    let got = receive(&to.repo, &peer, want(ids[11]), &Silent).expect("received");
    note(&to.repo, ORIGIN, None, ids[11]);
    let packs = pack_bytes(&from.repo);
    let on_the_wire = got.carried + peer.plans.lock().expect("lock").iter().sum::<u64>();
    assert!(on_the_wire as f64 <= 1.25 * packs as f64, "{on_the_wire} for {packs}");
    same(&from, &to, &ids);
    is_clean(&to.repo);
    // One more.
    let next = from.train(13).pop().expect("commit");
    let before = packs;
    let delta = pack_bytes(&from.repo) - before;
    let got = receive(&to.repo, &peer, want(next), &Silent).expect("received");
    assert!(got.carried < delta + 4096, "{} for a commit of {delta}", got.carried);
    note(&to.repo, ORIGIN, Some(ids[11]), next);
    same(&from, &to, &[next]);
    is_clean(&to.repo);
    // And nothing.
    let got = receive(&to.repo, &peer, want(next), &Silent).expect("received");
    assert_eq!((got.carried, got.objects), (0, 0));
}

#[test]
fn what_was_pushed_is_there_and_moves_are_forward_or_forced() {
    let (here, there) = (place(), place());
    let ids = here.train(6);
    let peer = near(&there);
    let wish = |new, force, lease| Push { name: MAIN.to_owned(), new: Some(new), force, lease };
    let done = push(&here.repo, &peer, &[wish(ids[3], false, None)], "push", &Silent).expect("push");
    assert!(done.refs.iter().all(|(_, r)| r.is_ok()) && done.sent > 0);
    let done = push(&here.repo, &peer, &[wish(ids[5], false, None)], "push", &Silent).expect("push");
    assert!(done.sent < pack_bytes(&here.repo) / 2, "{}", done.sent);
    same(&here, &there, &ids);
    is_clean(&there.repo);
    let back = push(&here.repo, &peer, &[wish(ids[1], false, None)], "push", &Silent);
    assert_eq!(refused(back), ErrorKind::Conflict);
    let stale = push(&here.repo, &peer, &[wish(ids[1], false, Some(Some(ids[0])))], "push", &Silent);
    assert_eq!(refused(stale), ErrorKind::Conflict);
    let done = push(&here.repo, &peer, &[wish(ids[1], false, Some(Some(ids[5])))], "push", &Silent).expect("leased");
    assert_eq!((done.sent, done.refs.len()), (0, 1));
    assert_eq!(peer.refs().expect("refs").get(MAIN), Some(ids[1]));
    // What is refused keeps nothing else from moving.
    let beside = Push { name: "refs/heads/beside".to_owned(), ..wish(ids[5], false, None) };
    let done = push(&here.repo, &peer, &[wish(ids[0], false, None), beside.clone()], "push", &Silent).expect("push");
    let told = done.refs.iter().map(|(m, outcome)| (m.name.as_str(), outcome.is_ok()));
    assert_eq!(told.collect::<Vec<_>>(), [(MAIN, false), (beside.name.as_str(), true)]);
    let there = peer.refs().expect("refs");
    assert_eq!((there.get(MAIN), there.get(&beside.name)), (Some(ids[1]), Some(ids[5])));
}

#[test]
fn a_cut_transfer_goes_on_where_it_was_and_a_flipped_bit_is_not_taken_in() {
    let (from, to) = (place(), place());
    let ids = from.train(4);
    let tip = ids[3];
    let mut peer = Flaky::new(near(&from));
    peer.flip_at = Some(0);
    let e = receive(&to.repo, &peer, want(tip), &Silent).expect_err("flipped");
    assert_eq!(e.kind(), ErrorKind::Corrupt, "{e}");
    assert_eq!(pack_bytes(&to.repo), 0);
    // What was wrong is not kept.
    let peer = Flaky::new(near(&from));
    let got = receive(&to.repo, &peer, want(tip), &Silent).expect("received");
    assert!(got.carried > 0);
    note(&to.repo, ORIGIN, None, tip);
    same(&from, &to, &ids);
    is_clean(&to.repo);
}

#[test]
fn chains_of_two_sides_that_were_stored_differently_still_end() {
    let (from, to) = (place(), place());
    let ids = from.train(9);
    assert!(depth_of(&from.repo, ids[8]) > 4);
    let peer = near(&from);
    receive(&to.repo, &peer, want(ids[4]), &Silent).expect("received");
    note(&to.repo, ORIGIN, None, ids[4]);
    // The tip's tensors are whole now on one side, and far down their chains on the other.
    mdl_repo::compact(&from.repo, &CompactOptions::default(), &Silent).expect("compact");
    let peer = near(&from);
    receive(&to.repo, &peer, want(ids[8]), &Silent).expect("received");
    note(&to.repo, ORIGIN, Some(ids[4]), ids[8]);
    same(&from, &to, &ids);
    is_clean(&to.repo);
    mdl_repo::compact(&to.repo, &CompactOptions::default(), &Silent).expect("compact");
    is_clean(&to.repo);
    same(&from, &to, &ids);
}

#[test]
fn a_tensor_far_down_a_chain_comes_whole_where_the_other_side_can_make_it_so() {
    let (from, to) = (place(), place());
    // Deltas that are not much shorter than what they are deltas to.
    let ids = from.train_by(9, 1.0 / 64.0);
    assert!(depth_of(&from.repo, ids[8]) > 4);
    let mut shallow = want(ids[8]);
    shallow.depth = Some(1);
    // First: the other leaves whole copies where this one would take them from.
    let other = place();
    let with_chain = receive(&other.repo, &near(&from), shallow.clone(), &Silent).expect("received");
    assert_eq!(files(&from.repo, &ids[8]), files(&other.repo, &ids[8]));
    let mut peer = Flaky::new(near(&from));
    peer.whole = true;
    let got = receive(&to.repo, &peer, shallow, &Silent).expect("received");
    assert_eq!(files(&from.repo, &ids[8]), files(&to.repo, &ids[8]));
    assert!(2 * got.carried < with_chain.carried, "{} and {}", got.carried, with_chain.carried);
    // Older commits are there, their contents are not.
    to.repo.odb().commit(&ids[0]).expect("commit");
    mdl_repo::files(&to.repo, &ids[0]).expect_err("no contents");
}
