//! Text output of log, graph, show, branches, tags and reflog.

#![allow(clippy::unwrap_used, clippy::panic, reason = "a test fails by panicking")]

use crate::common::{Sandbox, masked};
use mdl_codec::CpuEngine;
use mdl_objects::{Commit, Id, Kind};
use mdl_repo::{RefName, Repo, WriteTransaction, pack::NewObject};
use std::sync::Arc;

/// Puts a commit with these parents, and otherwise like the first of them, on a branch. No verb makes merges yet, but
/// histories that have some must be drawn.
fn merge(s: &Sandbox, branch: &str, parents: &[&str], message: &str) {
    let repo = Repo::open(&s.work(), Arc::new(CpuEngine::new())).unwrap();
    let parents: Vec<Id> = parents.iter().map(|p| mdl_repo::resolve(&repo, p).unwrap()).collect();
    let mut commit: Commit = repo.odb().commit(&parents[0]).unwrap();
    commit.author.time_ms += 1_000;
    (commit.parents, commit.message) = (parents, message.to_owned());
    let bytes = commit.encode();
    let id = Id::from_content(Kind::Commit, &bytes);
    let transaction = WriteTransaction::begin(&repo).unwrap();
    let mut pack = transaction.pack([]).unwrap();
    let object =
        NewObject { id, kind: Kind::Commit, depth: 0, base: None, grandparent: None, logical: bytes.len() as u64 };
    let raw: Vec<u8> = [0].into_iter().chain(bytes).collect();
    pack.add(object, &raw).unwrap();
    transaction.publish(pack).unwrap();
    let name = RefName::branch(branch).unwrap();
    let old = repo.refs().get(&name).unwrap();
    transaction.update_ref(&name, old, Some(id), &commit.author, "test").unwrap();
}

#[test]
fn log_in_full_and_in_lines() {
    let s = Sandbox::with_history();
    insta::assert_snapshot!("log", masked(&s, &s.ok(&["log"])));
    insta::assert_snapshot!("log_oneline", masked(&s, &s.ok(&["log", "--oneline", "--all"])));
    assert_eq!(s.ok(&["log", "--oneline", "-n", "2"]).lines().count(), 2);
    assert_eq!(s.ok(&["log", "--oneline", "-n", "0"]), "");
    assert_eq!(Sandbox::new().ok(&["log", "--all"]), "");
}

#[test]
fn graph_of_branches_and_merges() {
    let s = Sandbox::with_history();
    insta::assert_snapshot!("graph_full", masked(&s, &s.ok(&["log", "--graph", "--all"])));
    merge(&s, "main", &["main", "dev"], "merge dev");
    merge(&s, "octopus", &["main", "dev", "main~2"], "three at once");
    insta::assert_snapshot!("graph_merges", masked(&s, &s.ok(&["log", "--graph", "--oneline", "--all"])));
}

#[test]
fn show_a_tag_and_a_commit() {
    let s = Sandbox::with_history();
    let shown = masked(&s, &s.ok(&["show", "v1"]));
    // Below the list of files stands what the codec did.
    insta::assert_snapshot!("show_tag", shown.split("\n\n1 new tensor").next().unwrap());
    assert!(s.ok(&["show", "dev"]).contains("with a body"));
    assert!(s.ok(&["show"]).contains("model.safetensors:a"));
}

#[test]
fn names_and_moves() {
    let s = Sandbox::with_history();
    let mut all = String::new();
    let commands: [&[&str]; 19] = [
        &["branch"],
        &["branch", "-v"],
        &["branch", "exp/a", "main~1"],
        &["branch", "-l", "exp/*"],
        &["branch", "-m", "exp/a", "exp/b"],
        &["branch", "-d", "exp/b"],
        &["tag"],
        &["tag", "-v"],
        &["tag", "best", "main@best(loss)"],
        &["tag", "-d", "best"],
        &["checkout", "main~1"],
        &["status"],
        &["branch"],
        &["switch", "main"],
        &["switch", "main"],
        &["reset", "HEAD~1"],
        &["status"],
        &["reset", "--hard", "main@{1}"],
        &["reflog", "main"],
    ];
    for args in commands {
        let run = s.run(args);
        all.push_str(&format!("$ mdl {}\n{}\n", args.join(" "), masked(&s, &(run.out + &run.err))));
    }
    insta::assert_snapshot!(all);
}

#[test]
fn a_deleted_branch_is_found_in_the_reflog() {
    let s = Sandbox::with_history();
    let tip = s.json(&["log", "dev", "-n", "1"])[0]["commit"].as_str().unwrap().to_owned();
    s.ok(&["branch", "-D", "dev"]);
    let log = s.json(&["reflog", "dev"]);
    assert_eq!(log[0]["old"], tip.as_str());
    s.ok(&["branch", "dev", &tip]);
    s.ok(&["merge", "dev~1"]);
}
