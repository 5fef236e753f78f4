//! Names, branches and detached heads: what keeps a version exact beside the window.

use super::run::{Run, fidelity, read};
use mdl_objects::Id;
use mdl_repo::{CommitRequest, Fidelity, HEADS, Head, Silent};

fn tag(run: &Run, name: &str, version: usize) {
    mdl_repo::create_tag(&run.p.repo, name, &run.all[version].id, None, false).expect("tag");
}

fn branch(name: &str) -> CommitRequest {
    CommitRequest { branch: Some(name.to_owned()), ..CommitRequest::default() }
}

/// Puts HEAD on a version.
fn detach(run: &Run, id: &Id) {
    mdl_repo::attach(&run.p.repo, &Head::Detached(*id), Some(*id), &Silent).expect("HEAD moves");
}

#[test]
fn a_tag_keeps_a_version_exact_whether_it_came_before_or_after_it_aged() {
    let mut run = Run::new("exact_latest = 1");
    run.on(1);
    tag(&run, "before", 0);
    run.on(2);
    assert_eq!(run.aged(), [1]);
    tag(&run, "after", 1);
    mdl_repo::create_tag(&run.p.repo, "annotated", &run.all[2].id, Some("why"), false).expect("tag");
    run.on(3).collect();
    run.are_exact(&[0, 1, 2, 5]);
    assert_eq!(run.aged(), [3, 4], "a name takes a version off the record");
}

#[test]
fn without_its_tag_a_version_goes_with_the_next_commit_and_collection() {
    let mut run = Run::new("exact_latest = 1");
    run.on(1);
    tag(&run, "t", 0);
    run.on(3).collect();
    run.are_exact(&[0, 3]);
    // Whether it had aged before it was tagged or not, it ages with the next commit.
    run.on(1);
    tag(&run, "late", 3);
    run.collect();
    run.are_exact(&[0, 3, 4]);
    mdl_repo::delete_tag(&run.p.repo, "late").expect("untagged");
    mdl_repo::delete_tag(&run.p.repo, "t").expect("untagged");
    run.collect();
    run.are_exact(&[0, 3, 4]);
    run.on(1).collect();
    run.are_exact(&[5]);
}

#[test]
fn every_branch_has_a_window_of_its_own() {
    let mut run = Run::new("exact_latest = 2");
    run.on(2);
    mdl_repo::create_branch(&run.p.repo, "side", &run.all[0].id, false).expect("branch");
    run.on(3).collect();
    // The tip of the other branch is among its newest two.
    run.are_exact(&[0, 3, 4]);
    for _ in 0..3 {
        run.commit(branch("side"));
    }
    run.collect();
    run.are_exact(&[3, 4, 6, 7]);
    for (version, parent) in [(5usize, 0usize), (6, 5), (7, 6)] {
        let commit = run.p.repo.odb().commit(&run.all[version].id).expect("commit");
        assert_eq!(commit.parents, [run.all[parent].id]);
    }
    mdl_repo::delete_branch(&run.p.repo, "side", true, &Silent).expect("deleted");
    run.on(1);
    let main: Vec<usize> = vec![0, 1, 2, 3, 4, 8];
    run.collect();
    for n in main {
        run.all[n].gives(&run.p.repo, [4, 8].contains(&n), &format!("version {n}"));
    }
    super::run::is_clean(&run.p.repo);
}

#[test]
fn two_branches_from_one_version_share_it() {
    let mut run = Run::new("exact_latest = 1");
    run.on(2).collect();
    let fork = run.all[1].clone();
    mdl_repo::create_branch(&run.p.repo, "a", &fork.id, false).expect("branch");
    mdl_repo::create_branch(&run.p.repo, "b", &fork.id, false).expect("branch");
    run.commit(branch("a"));
    run.collect();
    run.are_exact(&[1, 2]);
    run.commit(branch("b"));
    run.collect();
    // The branch that all began on still stands there.
    run.are_exact(&[1, 2, 3]);
    run.on(1).collect();
    run.are_exact(&[2, 3, 4]);
    let parents: Vec<_> =
        run.all[2..].iter().map(|v| run.p.repo.odb().commit(&v.id).expect("commit").parents).collect();
    assert!(parents.iter().all(|p| *p == [fork.id]));
}

#[test]
fn a_detached_head_keeps_its_version_and_a_child_goes_on_from_what_is_there() {
    let mut run = Run::new("exact_latest = 1");
    run.on(3);
    detach(&run, &run.all[0].id);
    run.collect();
    run.are_exact(&[0, 2]);
    // Without exact contents: HEAD is elsewhere while they are collected.
    detach(&run, &run.all[2].id);
    run.collect();
    run.are_exact(&[2]);
    detach(&run, &run.all[0].id);
    run.commit(CommitRequest::default());
    assert_eq!(run.p.repo.odb().commit(&run.all[3].id).expect("commit").parents, [run.all[0].id]);
    run.collect();
    run.are_exact(&[2, 3]);
    run.commit(CommitRequest::default());
    run.collect();
    run.are_exact(&[2, 4]);
}

#[test]
fn a_lossless_child_of_an_aged_version_is_exact_for_good() {
    let mut run = Run::new("exact_latest = 1");
    run.on(3).collect();
    detach(&run, &run.all[1].id);
    let request = run.request(branch("lossless"));
    let done = mdl_repo::commit(&run.p.repo, &request, &Silent).expect("commit");
    let exact = run.training.bytes();
    run.next();
    let moved = |run: &Run| mdl_repo::resolve(&run.p.repo, "lossless").expect("branch");
    assert_eq!(moved(&run), done.id);
    // Lossy versions on top of it.
    for _ in 0..2 {
        run.commit(branch("lossless"));
    }
    detach(&run, &run.all[2].id);
    run.collect();
    assert_eq!(read(&run.p.repo, &done.id).expect("read"), exact);
    assert_eq!(fidelity(&run.p.repo, &done.id), Fidelity::Exact);
    run.are_exact(&[2, 4]);
    // Nor does a lossless commit at the tip age what is before it; the next lossy one does.
    let request = run.request(branch("lossless"));
    mdl_repo::commit(&run.p.repo, &request, &Silent).expect("commit");
    run.next();
    run.collect();
    run.are_exact(&[2, 4]);
    run.commit(branch("lossless"));
    run.collect();
    run.are_exact(&[2, 5]);
}

#[test]
fn a_branch_moved_back_keeps_the_version_that_it_stands_on() {
    let mut run = Run::new("exact_latest = 1");
    run.on(4);
    let name = format!("{HEADS}old");
    mdl_repo::move_ref(&run.p.repo, &name, None, Some(run.all[1].id), None, "moved").expect("moved");
    run.collect();
    run.are_exact(&[1, 3]);
    mdl_repo::delete_branch(&run.p.repo, "old", true, &Silent).expect("deleted");
    run.collect();
    run.are_exact(&[1, 3]);
    run.on(1).collect();
    run.are_exact(&[4]);
}

#[test]
fn a_merge_moves_the_window_of_its_branch() {
    let mut run = Run::new("exact_latest = 1");
    run.on(1);
    for _ in 0..3 {
        run.commit(branch("work"));
    }
    assert_eq!(run.aged(), [1, 2], "the branch that it began on stands on the first");
    mdl_repo::merge(&run.p.repo, &run.all[3].id, "work", &Silent).expect("merged");
    assert_eq!(run.aged(), [0, 1, 2]);
    run.collect();
    run.are_exact(&[3]);
}

#[test]
fn what_one_branch_lets_go_of_another_keeps_by_its_own_rules() {
    // A window of three versions, beside a branch with one of one.
    let mut run = Run::new("exact_latest = 3");
    run.on(2);
    mdl_repo::create_branch(&run.p.repo, "wide", &run.all[1].id, false).expect("branch");
    let last = run.all[1].id;
    run.keep("exact_latest = 1");
    run.on(2).collect();
    run.are_exact(&[0, 1, 3]);
    assert_eq!(mdl_repo::resolve(&run.p.repo, "wide").expect("there"), last);
}

#[test]
fn a_name_gives_a_version_the_whole_time_of_grace_again() {
    let mut run = Run::new("exact_latest = 1");
    run.on(3);
    assert_eq!(run.aged(), [0, 1]);
    // The branch goes back, and on from there.
    mdl_repo::reset(&run.p.repo, &run.all[1].id, false, &Silent).expect("reset");
    assert_eq!(run.aged(), [0]);
    let before = mdl_store::lock::now_ms();
    run.on(1);
    let record = mdl_repo::pruned(&run.p.repo).expect("the record");
    assert!(record.aged(&run.all[1].id).expect("aged anew").time_ms >= before);
    // So it is with a tag that comes and goes.
    tag(&run, "t", 0);
    assert_eq!(run.aged(), [1]);
    mdl_repo::delete_tag(&run.p.repo, "t").expect("untagged");
    run.collect();
    run.on(1);
    let record = mdl_repo::pruned(&run.p.repo).expect("the record");
    assert!(record.aged(&run.all[0].id).expect("aged anew").time_ms >= before);
}
