//! A work tree whose branch another user moves: nothing is put back unasked, and no user is left stuck.

use crate::support::{Place, place};
use mdl_codec::CpuEngine;
use mdl_repo::{
    Change, CheckoutOptions, CommitRequest, ErrorKind, Head, RefName, Repo, RepoError, Silent, WriteTransaction,
};
use std::sync::Arc;

fn main_branch() -> Head {
    Head::Branch("main".to_owned())
}

/// The same repository, opened by a user who is not at its work tree.
fn other(p: &Place) -> Repo {
    let repo = Repo::open(p.path(), Arc::new(CpuEngine::default())).expect("opened");
    repo.from_elsewhere()
}

/// Another user's version of one file, on main.
fn moved(p: &Place, text: &str) -> mdl_objects::Id {
    let dir = tempfile::tempdir().expect("dir");
    std::fs::write(dir.path().join("a.txt"), text).expect("written");
    let request =
        CommitRequest { source: Some(dir.path().to_owned()), message: text.to_owned(), ..CommitRequest::default() };
    mdl_repo::commit(&other(p), &request, &Silent).expect("committed").id
}

#[test]
fn a_commit_on_top_of_what_nobody_here_has_seen_is_refused() {
    let p = place();
    p.write("a.txt", b"first");
    let first = p.commit("first").id;
    let second = moved(&p, "second");
    // The files are still the first version's, and unchanged.
    assert_eq!(mdl_repo::work_tree_base(&p.repo).expect("known"), Some(first));
    assert_eq!(mdl_repo::status(&p.repo, &Silent).expect("status"), []);
    p.write("b.txt", b"mine");
    let error = p.try_commit("mine").expect_err("main has moved");
    assert!(
        matches!(error, RepoError::FilesOfAnother { base, tip, .. } if base == Some(first) && tip == Some(second)),
        "{error}"
    );
    assert_eq!(error.kind(), ErrorKind::Conflict);
    assert_eq!(p.repo.refs().head_commit().expect("head"), Some(second));
    // Taking theirs needs no force: what is changed here is not in the way.
    let options = CheckoutOptions::default();
    mdl_repo::checkout(&p.repo, &second, &main_branch(), &options, &Silent).expect("theirs");
    assert_eq!(std::fs::read(p.path().join("a.txt")).expect("read"), b"second");
    let changes = mdl_repo::status(&p.repo, &Silent).expect("status");
    assert_eq!(changes, [("b.txt".to_owned(), Change::Added)]);
    p.commit("mine, on top of theirs");
}

#[test]
fn whoever_says_so_goes_on_with_the_files_that_are_here() {
    let p = place();
    p.write("a.txt", b"first");
    p.commit("first");
    let second = moved(&p, "second");
    p.try_commit("unasked").expect_err("main has moved");
    mdl_repo::reset(&p.repo, &second, false, &Silent).expect("they are meant to be on top");
    let changes = mdl_repo::status(&p.repo, &Silent).expect("status");
    assert_eq!(changes, [("a.txt".to_owned(), Change::Modified)]);
    assert_eq!(p.commit("put back").parent, Some(second));
}

#[test]
fn what_this_user_moves_by_any_verb_is_seen() {
    let p = place();
    p.write("a.txt", b"first");
    let first = p.commit("first").id;
    // From another directory, to another branch, and back.
    let dir = tempfile::tempdir().expect("dir");
    std::fs::write(dir.path().join("c.txt"), b"of a run").expect("written");
    let of_a_run = |branch: Option<&str>| CommitRequest {
        source: Some(dir.path().to_owned()),
        branch: branch.map(str::to_owned),
        message: "of a run".to_owned(),
        ..CommitRequest::default()
    };
    mdl_repo::commit(&p.repo, &of_a_run(None), &Silent).expect("to main");
    mdl_repo::commit(&p.repo, &of_a_run(Some("run")), &Silent).expect_err("nothing to commit");
    p.commit("the work tree again");
    mdl_repo::create_branch(&p.repo, "side", &first, false).expect("made");
    let options = CheckoutOptions { force: true, ..CheckoutOptions::default() };
    mdl_repo::checkout(&p.repo, &first, &Head::Branch("side".to_owned()), &options, &Silent).expect("switched");
    p.write("a.txt", b"on the side");
    let side = p.commit("side").id;
    mdl_repo::checkout(&p.repo, &side, &Head::Detached(side), &options, &Silent).expect("detached");
    p.write("a.txt", b"detached");
    p.commit("detached");
}

#[test]
fn a_branch_that_somebody_deleted_is_not_begun_anew() {
    let p = place();
    p.write("a.txt", b"first");
    let first = p.commit("first").id;
    let theirs = other(&p);
    mdl_repo::create_branch(&theirs, "elsewhere", &first, false).expect("made");
    let transaction = WriteTransaction::begin(&theirs).expect("lock");
    let (main, who) = (RefName::branch("main").expect("a name"), theirs.config().signature());
    transaction.update_ref(&main, Some(first), None, &who, "gone").expect("deleted");
    drop(transaction);
    p.write("a.txt", b"second");
    let error = p.try_commit("second").expect_err("main is gone");
    assert!(matches!(error, RepoError::FilesOfAnother { tip: None, .. }), "{error}");
    assert!(error.hint().unwrap_or_default().contains(&first.short()), "{error}");
}

#[test]
fn another_name_for_a_commit_does_not_make_files_that_are_not_here_deleted_ones() {
    let p = place();
    p.write("a", b"1");
    let tip = p.commit("first").id;
    // As in a clone of a part: HEAD has a version, and none of its files was written.
    std::fs::remove_file(p.path().join("a")).expect("removed");
    mdl_repo::clear_work_tree_base(&p.repo);
    mdl_repo::create_branch(&p.repo, "other", &tip, false).expect("made");
    let other = Head::Branch("other".to_owned());
    mdl_repo::attach(&p.repo, &other, Some(tip), &Silent).expect("switched");
    mdl_repo::rename_branch(&p.repo, "other", "another", &Silent).expect("renamed");
    assert_eq!(mdl_repo::work_tree_base(&p.repo).expect("known"), None);
    p.write("b", b"2");
    let refused = p.try_commit("without a").expect_err("a would be gone");
    assert!(matches!(refused, RepoError::FilesOfAnother { base: None, .. }), "{refused}");
    mdl_repo::reset(&p.repo, &tip, false, &Silent).expect("said so");
    p.commit("without a, on purpose");
}

#[test]
fn a_branch_without_a_commit_takes_no_name_that_is_taken() {
    let p = place();
    moved(&p, "theirs");
    let unborn = Head::Branch("unborn".to_owned());
    mdl_repo::attach(&p.repo, &unborn, None, &Silent).expect("switched");
    let taken = mdl_repo::rename_branch(&p.repo, "unborn", "main", &Silent).expect_err("it exists");
    assert_eq!((taken.kind(), p.repo.refs().head().expect("HEAD")), (ErrorKind::User, unborn));
    mdl_repo::rename_branch(&p.repo, "unborn", "free", &Silent).expect("renamed");
}
