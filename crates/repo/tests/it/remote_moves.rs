//! Ref moves asked for by a remote client: refs by their full names, commits that expect the branch where it was seen.

use crate::support::{Place, place};
use mdl_objects::{Id, Kind, Signature};
use mdl_repo::{
    CommitRequest, Direction, ErrorKind, GcOptions, LossyRequest, PruneOptions, RefName, RepoError, Retention, Silent,
};

const MAIN: &str = "refs/heads/main";

fn step(p: &Place, text: &str) -> Id {
    p.write("f", text.as_bytes());
    p.commit(text).id
}

fn ada(time_ms: i64) -> Signature {
    Signature { name: "Ada".to_owned(), email: "ada@example.org".to_owned(), time_ms, utc_offset_min: 60 }
}

#[test]
fn refs_move_by_compare_and_swap() {
    let p = place();
    let (a, b) = (step(&p, "a"), step(&p, "b"));
    let go = |name: &str, from, to| mdl_repo::move_ref(&p.repo, name, from, to, Some(ada(0)), "moved");
    go("refs/heads/x/y", None, Some(a)).expect("made");
    let taken = go("refs/heads/x/y", None, Some(b)).expect_err("it exists");
    assert!(matches!(taken, RepoError::Conflict { expected: None, found: Some(f), .. } if f == a));
    go("refs/heads/x/y", Some(b), Some(a)).expect_err("it stands elsewhere");
    go("refs/heads/x/y", Some(a), Some(b)).expect("moved");
    let log = p.repo.refs().reflog(&RefName::branch("x/y").expect("a name")).expect("log");
    assert_eq!(log.iter().map(|e| (e.old, e.new)).collect::<Vec<_>>(), [(Some(a), Some(b)), (None, Some(a))]);
    // Who is the caller's, when is not: by the time of its moves a log is shortened.
    assert!(log.iter().all(|e| e.who.name == "Ada" && e.who.time_ms > 1_600_000_000_000));
    go("refs/heads/x", None, Some(a)).expect_err("a directory of names");
    assert_eq!(go("refs/heads/x/y", Some(a), None).expect_err("stale").kind(), ErrorKind::Conflict);
    go("refs/heads/x/y", Some(b), None).expect("deleted");
    assert_eq!(go("refs/heads/x/y", Some(b), None).expect_err("gone").kind(), ErrorKind::Conflict);
    go("refs/heads/x/y", None, None).expect("it is as it is to be");
    assert_eq!(go(MAIN, Some(b), None).expect_err("HEAD").kind(), ErrorKind::User);
    go(MAIN, Some(b), Some(a)).expect("back");
    assert_eq!(mdl_repo::resolve(&p.repo, "HEAD").expect("HEAD"), a);
}

#[test]
fn only_branches_and_tags_of_commits() {
    let p = place();
    let a = step(&p, "a");
    let tree = p.repo.odb().commit(&a).expect("commit").tree;
    let tag = mdl_repo::create_tag(&p.repo, "v1", &a, Some("first"), false).expect("tag");
    let go = |name: &str, to| mdl_repo::move_ref(&p.repo, name, None, Some(to), None, "moved").map_err(|e| e.kind());
    for name in [
        "HEAD",
        "main",
        "refs/policies/x",
        "refs/heads/",
        "refs/heads/../x",
        "refs/heads/HEAD",
        "refs/tags/a b",
        "config",
        "refs/heads/a/../../../x",
        "",
    ] {
        assert_eq!(go(name, a), Err(ErrorKind::User), "{name}");
    }
    assert_eq!(go("refs/heads/x", tag), Err(ErrorKind::User));
    assert_eq!(go("refs/heads/x", tree), Err(ErrorKind::User));
    assert_eq!(go("refs/tags/x", tree), Err(ErrorKind::User));
    assert_eq!(go("refs/tags/x", Id::from_content(Kind::Commit, b"no such")), Err(ErrorKind::NotFound));
    go("refs/tags/x", tag).expect("an annotated tag");
    go("refs/tags/y", a).expect("a light tag");
    assert_eq!(mdl_repo::resolve(&p.repo, "x").expect("tag"), a);
}

#[test]
fn pruned_versions_get_no_names() {
    let p = place();
    let ids: Vec<Id> = ["a", "b", "c"].map(|t| step(&p, t)).to_vec();
    let rules = Retention::LatestN { n: 1 };
    let report = mdl_repo::prune(&p.repo, None, &rules, &PruneOptions::default()).expect("prune");
    assert_eq!(report.pruned.len(), 2);
    let go = |name: &str| mdl_repo::move_ref(&p.repo, name, None, Some(ids[0]), None, "moved").map_err(|e| e.kind());
    assert_eq!(go("refs/heads/x"), Err(ErrorKind::User));
    mdl_repo::gc(&p.repo, &GcOptions { prune_now: true, dry_run: false, grace: None }, &Silent).expect("gc");
    assert_eq!(go("refs/tags/x"), Err(ErrorKind::NotFound));
}

fn request(text: &str, expects: Option<Option<Id>>) -> CommitRequest {
    CommitRequest {
        message: text.to_owned(),
        expects,
        author: Some(ada(1_000)),
        branch: Some("exp".to_owned()),
        allow_empty: true,
        ..CommitRequest::default()
    }
}

#[test]
fn a_commit_may_say_where_the_branch_must_stand_and_who_makes_it() {
    let p = place();
    let a = step(&p, "a");
    let commit = |expects| mdl_repo::commit(&p.repo, &request("x", expects), &Silent);
    assert_eq!(commit(Some(Some(a))).expect_err("no such branch").kind(), ErrorKind::Conflict);
    let first = commit(Some(None)).expect("made from HEAD's commit");
    assert_eq!(first.parent, Some(a));
    let lost = commit(Some(None)).expect_err("it exists");
    assert!(matches!(lost, RepoError::Conflict { expected: None, found: Some(f), .. } if f == first.id));
    assert_eq!(commit(Some(Some(a))).expect_err("elsewhere").kind(), ErrorKind::Conflict);
    let second = commit(Some(Some(first.id))).expect("where it was seen");
    assert_eq!(p.repo.odb().commit(&second.id).expect("commit").author, ada(1_000));
    let log = p.repo.refs().reflog(&RefName::branch("exp").expect("a name")).expect("log");
    assert_eq!(log.len(), 2, "attempts that lost are not logged");
    assert!(log.iter().all(|e| e.who.name == "Ada" && e.who.time_ms > 1_000));
    let third = commit(None).expect("wherever it stands");
    assert_eq!(third.parent, Some(second.id));
}

#[test]
fn so_may_a_lossy_commit() {
    let p = place();
    let a = step(&p, "a");
    let commit = |expects| {
        let mut lossy = LossyRequest {
            policy: mdl_repo::policy(&p.repo, "lossy").expect("policy"),
            evaluator: None,
            direction: Direction::LowerIsBetter,
            grads: None,
            since: None,
        };
        mdl_repo::commit_lossy(&p.repo, &request("x", expects), &mut lossy, &Silent)
    };
    assert_eq!(commit(Some(Some(a))).expect_err("no such branch").kind(), ErrorKind::Conflict);
    let first = commit(Some(None)).expect("made");
    assert_eq!(commit(Some(None)).expect_err("it exists").kind(), ErrorKind::Conflict);
    commit(Some(Some(first.id))).expect("where it was seen");
}
