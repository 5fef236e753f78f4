//! Revisions, branches, tags, merges, the reflog and compare-and-swap.

use crate::support::{Place, place};
use mdl_objects::Id;
use mdl_repo::{CheckoutOptions, CommitRequest, ErrorKind, Head, Merged, RefName, Silent, WriteTransaction};

fn step(p: &Place, step: u64, loss: f64) -> Id {
    p.write("f", format!("{step}").as_bytes());
    let request = CommitRequest {
        message: format!("step {step}"),
        step: Some(step),
        metrics: [("loss".to_owned(), loss), ("accuracy".to_owned(), -loss)].into(),
        ..CommitRequest::default()
    };
    mdl_repo::commit(&p.repo, &request, &Silent).expect("commit").id
}

#[test]
fn revisions_mean_what_they_mean_in_git() {
    let p = place();
    let ids: Vec<Id> = [(10, 3.0), (20, 1.0), (30, 2.0)].map(|(s, l)| step(&p, s, l)).to_vec();
    mdl_repo::create_tag(&p.repo, "v1", &ids[0], Some("first"), false).expect("tag");
    mdl_repo::create_tag(&p.repo, "light", &ids[1], None, false).expect("tag");
    let at = |rev: &str| mdl_repo::resolve(&p.repo, rev).unwrap_or_else(|e| panic!("{rev}: {e}"));
    for (rev, i) in [
        ("main", 2),
        ("HEAD", 2),
        ("@", 2),
        ("main~1", 1),
        ("main~2", 0),
        ("HEAD^", 1),
        ("HEAD^^", 0),
        ("HEAD~1^1", 0),
        ("HEAD^0", 2),
        ("v1", 0),
        ("light", 1),
        ("light^", 0),
        ("main@{0}", 2),
        ("main@{1}", 1),
        ("@{2}", 0),
        ("main@step=20", 1),
        ("@step=30~1", 1),
        ("main@best(loss)", 1),
        ("main@worst(loss)", 0),
        ("main@best(accuracy)", 1),
        ("refs/heads/main", 2),
    ] {
        assert_eq!(at(rev), ids[i], "{rev}");
    }
    assert_eq!(at(&ids[0].to_hex()), ids[0]);
    assert_eq!(at(&ids[1].to_hex()[..10]), ids[1]);
    for (rev, kind) in [
        ("nope", ErrorKind::NotFound),
        ("main~9", ErrorKind::NotFound),
        ("main@{9}", ErrorKind::NotFound),
        ("main@step=11", ErrorKind::NotFound),
        ("main@best(f1)", ErrorKind::NotFound),
        ("main^2", ErrorKind::NotFound),
        ("main@{x}", ErrorKind::Usage),
        ("main~1!", ErrorKind::Usage),
        ("0123456789", ErrorKind::NotFound),
    ] {
        assert_eq!(mdl_repo::resolve(&p.repo, rev).expect_err(rev).kind(), kind, "{rev}");
    }
}

#[test]
fn refs_move_only_from_where_they_were_expected() {
    let p = place();
    let (a, b) = (step(&p, 1, 0.0), step(&p, 2, 0.0));
    let who = p.repo.config().signature();
    let main = RefName::branch("main").expect("a name");
    let transaction = WriteTransaction::begin(&p.repo).expect("lock");
    let lost = transaction.update_ref(&main, Some(a), Some(a), &who, "late").expect_err("stale");
    assert_eq!(lost.kind(), ErrorKind::Conflict);
    assert_eq!(mdl_repo::resolve(&p.repo, "main").expect("main"), b);
    // The attempt that lost is in no history.
    let log = p.repo.refs().reflog(&RefName::branch("main").expect("a name")).expect("log");
    assert_eq!(log.iter().map(|e| e.new).collect::<Vec<_>>(), [Some(b), Some(a)]);
}

#[test]
fn a_stored_policy_which_is_no_version_stands_in_the_way_of_nothing() {
    let p = place();
    let (a, b) = (step(&p, 1, 0.0), step(&p, 2, 0.0));
    mdl_repo::set_policy(&p.repo, "own", "try = []\n").expect("stored");
    mdl_repo::create_branch(&p.repo, "side", &a, false).expect("made");
    assert_eq!(mdl_repo::delete_branch(&p.repo, "side", false, &Silent).expect("main reaches it"), a);
    let dir = tempfile::tempdir().expect("dir");
    std::fs::write(dir.path().join("f"), "1").expect("the first version's bytes");
    let done = mdl_repo::checkout_to(&p.repo, &b, dir.path(), &CheckoutOptions::default(), &Silent);
    assert_eq!(done.expect("some version has them").written, 1);
}

#[test]
fn names_that_would_confuse_are_refused() {
    let p = place();
    let id = step(&p, 1, 0.0);
    for bad in
        ["", "a b", "a..b", "-x", ".x", "a/", "/a", "a//b", "x.lock", "a@{1}", "a~1", "HEAD", "@", "a:b", "a%b", "a\n"]
    {
        assert_eq!(
            mdl_repo::create_branch(&p.repo, bad, &id, false).expect_err(bad).kind(),
            ErrorKind::User,
            "{bad:?}"
        );
    }
    mdl_repo::create_branch(&p.repo, "lr=3e-4/run-1", &id, false).expect("fine");
    mdl_repo::create_branch(&p.repo, "lr=3e-4", &id, false).expect_err("is a directory of names");
    mdl_repo::create_branch(&p.repo, "lr=3e-4/run-1/x", &id, false).expect_err("is below a name");
    mdl_repo::delete_branch(&p.repo, "lr=3e-4/run-1", false, &Silent).expect("deleted");
    mdl_repo::create_branch(&p.repo, "lr=3e-4", &id, false).expect("free again");
}

#[test]
fn branches_merge_forward_and_no_further_yet() {
    let p = place();
    let base = step(&p, 1, 0.0);
    mdl_repo::create_branch(&p.repo, "exp", &base, false).expect("branch");
    let request = CommitRequest { message: "on exp".into(), branch: Some("exp".into()), ..CommitRequest::default() };
    p.write("f", b"exp");
    let ahead = mdl_repo::commit(&p.repo, &request, &Silent).expect("commit").id;
    assert_eq!(mdl_repo::resolve(&p.repo, "main").expect("main"), base);
    assert_eq!(mdl_repo::merge(&p.repo, &base, "base", &Silent).expect("merge"), Merged::UpToDate);
    p.write("f", b"1");
    let merged = mdl_repo::merge(&p.repo, &ahead, "exp", &Silent).expect("merge");
    assert_eq!(merged, Merged::FastForward { from: Some(base), to: ahead });
    assert_eq!(p.read("f"), b"exp");
    let parted = step(&p, 3, 0.0);
    mdl_repo::create_branch(&p.repo, "other", &base, false).expect("branch");
    mdl_repo::reset(&p.repo, &base, true, &Silent).expect("reset");
    step(&p, 4, 0.0);
    assert_eq!(mdl_repo::merge(&p.repo, &parted, "x", &Silent).expect_err("parted").kind(), ErrorKind::User);
}

#[test]
fn a_branch_nothing_else_reaches_is_deleted_only_by_force() {
    let p = place();
    let base = step(&p, 1, 0.0);
    let request = CommitRequest { message: "b".into(), branch: Some("b".into()), ..CommitRequest::default() };
    p.write("f", b"b");
    mdl_repo::commit(&p.repo, &request, &Silent).expect("commit");
    mdl_repo::delete_branch(&p.repo, "main", true, &Silent).expect_err("HEAD is on it");
    mdl_repo::delete_branch(&p.repo, "b", false, &Silent).expect_err("unmerged");
    mdl_repo::delete_branch(&p.repo, "b", true, &Silent).expect("forced");
    mdl_repo::create_branch(&p.repo, "c", &base, false).expect("branch");
    mdl_repo::delete_branch(&p.repo, "c", false, &Silent).expect("main reaches it");
    mdl_repo::delete_branch(&p.repo, "c", false, &Silent).expect_err("gone");
    assert_eq!(p.repo.refs().head().expect("head"), Head::Branch("main".into()));
}
