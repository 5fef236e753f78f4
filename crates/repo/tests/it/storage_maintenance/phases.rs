//! Collection in two phases, step by step: what a writer does and what a collector does, in every order that matters.

use super::{setup::*, unlocked::*};
use mdl_objects::Id;
use mdl_repo::{
    CommitRequest, Content, ErrorKind, GcOptions, NewFile, RefName, Repo, Silent, WriteTransaction,
    storage::MemoryStorage,
};
use std::time::Duration;

const ZERO: Duration = Duration::ZERO;

/// A version on `main`, and one on `side`, whose branch is deleted.
fn scene() -> (MemoryStorage, Repo, [(Id, Version); 2]) {
    let (storage, repo) = unlocked();
    let (main, side) = (run(1, 1, 300).remove(0), run(1, 2, 300).remove(0));
    let kept = (commit(&repo, "main", &main), main);
    let gone = (commit(&repo, "side", &side), side);
    drop_branch(&repo, "side");
    (storage, repo, [kept, gone])
}

#[test]
fn packs_are_condemned_first_and_deleted_once_their_grace_is_over() {
    let (storage, repo, [kept, gone]) = scene();
    let first = collect(&repo, GRACE);
    assert_eq!((first.packs_condemned, first.packs_waiting, first.packs_deleted), (1, 1, 0));
    assert!(first.bytes_condemned > 0 && first.bytes_freed == 0);
    assert_eq!(packs(&storage).len(), 2);
    pass(&storage, GRACE / 2);
    assert_eq!(collect(&repo, GRACE).packs_waiting, 1);
    pass(&storage, GRACE / 2);
    let last = collect(&repo, GRACE);
    assert_eq!((last.packs_deleted, last.packs_waiting), (1, 0));
    assert_eq!(last.bytes_freed, first.bytes_condemned);
    assert_eq!(packs(&storage).len(), 1);
    assert!(!at(&storage).odb().has(&gone.0).expect("has"));
    assert_version(&repo, &kept.0, &kept.1);
    assert_clean(&repo);
    // Nothing is left to do, and that is seen.
    let idle = collect(&repo, GRACE);
    assert_eq!((idle.packs_condemned, idle.packs_deleted, idle.packs_waiting), (0, 0, 0));
}

#[test]
fn with_no_grace_or_a_short_one_one_call_does_both() {
    for grace in [ZERO, Duration::from_millis(30)] {
        let (storage, repo, [kept, _]) = scene();
        let report = collect(&repo, grace);
        assert_eq!((report.packs_condemned, report.packs_deleted, report.packs_waiting), (1, 1, 0));
        assert_eq!(packs(&storage).len(), 1);
        assert_version(&repo, &kept.0, &kept.1);
    }
}

#[test]
fn a_shorter_grace_later_counts_from_then() {
    let (storage, repo, _) = scene();
    collect(&repo, GRACE);
    let before = doomed(&storage);
    collect(&repo, GRACE / 60);
    let after = doomed(&storage);
    assert!(after[0][2] > before[0][2] && after[0][4] == "60000", "{before:?} {after:?}");
    pass(&storage, GRACE / 60);
    assert_eq!(collect(&repo, GRACE).packs_deleted, 1);
}

#[test]
fn what_is_in_a_condemned_pack_is_stored_again() {
    let (storage, repo, [_, (_, side)]) = scene();
    collect(&repo, GRACE);
    let again = commit(&at(&storage), "again", &side);
    pass(&storage, GRACE);
    collect(&repo, GRACE);
    assert_version(&at(&storage), &again, &side);
    assert_clean(&at(&storage));
}

#[test]
fn a_branch_made_at_a_condemned_commit_takes_its_pack_off_the_list() {
    let (storage, repo, [_, (id, side)]) = scene();
    collect(&repo, GRACE);
    mdl_repo::create_branch(&at(&storage), "back", &id, false).expect("branch");
    assert_eq!(doomed(&storage).len(), 0);
    pass(&storage, GRACE);
    assert_eq!(collect(&repo, ZERO).packs_deleted, 0);
    assert_version(&at(&storage), &id, &side);
}

#[test]
fn a_ref_moved_in_time_saves_its_packs_and_one_too_late_does_not_move() {
    let side_of = |repo: &Repo| RefName::branch(&repo.config().signature().name.len().to_string()).expect("a name");
    for (passed, moves) in [(GRACE / 4, true), (GRACE / 4 * 3, false)] {
        let (storage, repo, [_, (id, side)]) = scene();
        let held = WriteTransaction::begin_at(&repo, &id).expect("hold");
        collect(&at(&storage), GRACE);
        pass(&storage, passed);
        let who = repo.config().signature();
        let moved = held.update_ref(&side_of(&repo), None, Some(id), &who, "late");
        assert_eq!(moved.is_ok(), moves, "{moved:?}");
        if let Err(e) = moved {
            assert_eq!((e.kind(), e.hint().as_deref()), (ErrorKind::Conflict, Some("try again")));
        }
        pass(&storage, GRACE);
        let report = collect(&at(&storage), GRACE);
        assert_eq!(report.packs_deleted, u64::from(!moves));
        if moves {
            assert_version(&at(&storage), &id, &side);
            assert_eq!(doomed(&storage).len(), 0, "what is needed is taken off the list");
        }
        assert_clean(&at(&storage));
    }
}

#[test]
fn a_writer_that_slept_through_both_phases_is_told() {
    let (storage, repo, [_, (id, _)]) = scene();
    let held = WriteTransaction::begin_at(&repo, &id).expect("hold");
    collect(&at(&storage), ZERO);
    assert_eq!((doomed(&storage).len(), packs(&storage).len()), (0, 1));
    let who = repo.config().signature();
    let moved = held.update_ref(&RefName::branch("late").expect("a name"), None, Some(id), &who, "late");
    assert_eq!(moved.expect_err("gone").kind(), ErrorKind::Conflict);
    assert_clean(&at(&storage));
}

#[test]
fn what_a_late_writer_left_behind_keeps_what_it_stands_on() {
    // A pack that was published in time, by a writer whose ref never moved, refers to a doomed one.
    let (storage, repo, [_, (id, side)]) = scene();
    let slow = WriteTransaction::begin_at(&repo, &id).expect("hold");
    let mut pack = slow.pack([]).expect("pack");
    let tag = mdl_objects::Tag {
        target: id,
        name: "t".to_owned(),
        tagger: repo.config().signature(),
        message: "late".to_owned(),
        signature: None,
    };
    let bytes = tag.encode();
    let tag = Id::from_content(mdl_objects::Kind::Tag, &bytes);
    let object = mdl_repo::pack::NewObject {
        id: tag,
        kind: mdl_objects::Kind::Tag,
        depth: 0,
        base: None,
        grandparent: None,
        logical: bytes.len() as u64,
    };
    pack.add(object, &[&[0], bytes.as_slice()].concat()).expect("add");
    collect(&at(&storage), GRACE);
    slow.publish(pack).expect("in time");
    pass(&storage, GRACE);
    // Another relies on that pack alone: the one below must not go before this has been doomed for a while, too.
    let other = at(&storage);
    let held = WriteTransaction::begin_at(&other, &tag).expect("hold");
    assert_eq!(collect(&repo, GRACE).packs_deleted, 0);
    let who = other.config().signature();
    let moved = held.update_ref(&RefName::tag("t").expect("a name"), None, Some(tag), &who, "tag");
    moved.expect("in time");
    pass(&storage, GRACE);
    assert_eq!(collect(&repo, GRACE).packs_deleted, 0);
    assert_version(&at(&storage), &id, &side);
    assert_clean(&at(&storage));
}

#[test]
fn a_pack_of_the_same_name_is_taken_back() {
    let (storage, repo) = unlocked();
    commit(&repo, "main", &run(1, 1, 300)[0]);
    let staged = |repo: &Repo| mdl_repo::stage(repo, &[memory("a", [7u8; 5000])], None, &Silent).expect("stage");
    staged(&repo);
    collect(&repo, GRACE);
    let [line] = doomed(&storage).try_into().expect("one");
    let again = staged(&at(&storage)).remove(0);
    assert_eq!(doomed(&storage).len(), 0, "{line:?} was written again");
    let request = CommitRequest {
        files: Some(vec![NewFile { content: Content::Stored(again), ..memory("a", [7u8; 5000]) }]),
        branch: Some("joined".to_owned()),
        ..CommitRequest::default()
    };
    // A file staged long before it is joined, and doomed since.
    collect(&repo, GRACE);
    assert_eq!(doomed(&storage).len(), 1);
    let id = mdl_repo::commit(&at(&storage), &request, &Silent).expect("join").id;
    pass(&storage, GRACE);
    collect(&repo, ZERO);
    let version = Version::from([("a".to_owned(), vec![7u8; 5000])]);
    assert_version(&at(&storage), &id, &version);
    assert_clean(&at(&storage));
}

#[test]
fn a_mixed_pack_is_rewritten_and_a_compaction_condemns() {
    let (storage, repo) = unlocked();
    let (main, side) = (run(4, 1, 600), run(2, 2, 600));
    let mut kept = mixed(&repo, &main, &side);
    let report = collect(&repo, GRACE);
    assert!(report.packs_rewritten > 0 && report.packs_deleted == 0, "{report:?}");
    // Nothing of what was rewritten is stored a second time, though it is in doomed packs too.
    let stored = at(&storage);
    let before = packed_bytes(&storage);
    kept.push((commit(&stored, "main", &main[2]), main[2].clone()));
    let delta = packed_bytes(&storage) - before;
    assert!(delta < 3 * 600 * 4, "{delta} bytes for a small step");
    pass(&storage, GRACE);
    collect(&repo, GRACE);
    assert_eq!(doomed(&storage).len(), 0);
    let before = packs(&storage);
    mdl_repo::compact(&repo, &Default::default(), &Silent).expect("compact");
    assert!(before.iter().all(|p| packs(&storage).contains(p)), "nothing goes at once");
    // And what was written in between to shorten chains.
    let replaced = doomed(&storage).len();
    assert!(replaced >= before.len());
    let second = mdl_repo::compact(&repo, &Default::default(), &Silent).expect("again");
    assert_eq!((second.packs_before, second.packs_after), (1, 1));
    kept.push((commit(&at(&storage), "main", &main[3]), main[3].clone()));
    let hours = Duration::from_secs(3600 * repo.config().grace_hours());
    pass(&storage, hours);
    let keep = GcOptions::default();
    assert_eq!(mdl_repo::gc(&repo, &keep, &Silent).expect("gc").packs_deleted, replaced as u64);
    kept.iter().for_each(|(id, v)| assert_version(&at(&storage), id, v));
    assert_clean(&at(&storage));
}
