//! Rebase, cherry-pick, revert and a pull of two sides: what they say, in text and in JSON.

#![allow(clippy::unwrap_used, clippy::panic, reason = "a test fails by panicking")]

use crate::common::{Sandbox, masked};
use serde_json::{Value, json};

/// Two branches that have parted, one version each; both changed `config.json`.
fn parted() -> Sandbox {
    let s = Sandbox::new();
    s.tensors("model.safetensors", 0.0);
    s.write("config.json", "{}\n");
    s.ok(&["commit", "-m", "base", "--step", "1"]);
    s.ok(&["branch", "theirs"]);
    s.tensors("model.safetensors", 1.0);
    s.write("config.json", "own\n");
    s.ok(&["commit", "-m", "own", "--step", "2", "--metric", "loss=0.5"]);
    s.ok(&["switch", "theirs"]);
    s.write("config.json", "theirs\n");
    s.write("readme.md", "theirs\n");
    s.ok(&["commit", "-m", "theirs"]);
    s.ok(&["switch", "main"]);
    s
}

/// What a run said, masked, below the command.
fn said(s: &Sandbox, args: &[&str], code: i32) -> String {
    let run = s.run(args);
    assert_eq!(run.code, code, "mdl {args:?}: {run:?}");
    format!("$ mdl {}\n{}\n{}\n-> {code}\n\n", args.join(" "), masked(s, &run.out), masked(s, &run.err))
}

#[test]
fn a_rebase_that_stops_and_goes_on() {
    let s = parted();
    let mut all = said(&s, &["rebase", "theirs"], 4);
    all += &said(&s, &["status"], 0);
    all += &said(&s, &["commit", "-m", "no"], 1);
    all += &said(&s, &["revert", "--continue"], 1);
    all += &said(&s, &["rebase", "--continue"], 4);
    all += &said(&s, &["rebase", "--continue", "--theirs", "config.json"], 0);
    all += &said(&s, &["rebase", "theirs"], 0);
    all += &said(&s, &["rebase", "--abort"], 1);
    insta::assert_snapshot!(all);
}

#[test]
fn ways_back_and_refusals() {
    let s = parted();
    let mut all = said(&s, &["rebase", "theirs"], 4);
    s.write("config.json", "half of an answer\n");
    all += &said(&s, &["rebase", "--abort"], 0);
    all += &said(&s, &["rebase", "theirs", "--theirs", "*.json"], 0);
    all += &said(&s, &["revert", "HEAD"], 0);
    all += &said(&s, &["cherry-pick", "main~1", "-x"], 0);
    all += &said(&s, &["cherry-pick", "main~1"], 0);
    s.tensors("model.safetensors", 7.0);
    s.ok(&["commit", "-m", "later"]);
    all += &said(&s, &["revert", "main~1", "--exact"], 4);
    all += &said(&s, &["revert", "main~1"], 0);
    all += &said(&s, &["rebase"], 2);
    all += &said(&s, &["rebase", "theirs", "--abort"], 2);
    all += &said(&s, &["revert", "--update", "HEAD"], 2);
    s.write("config.json", "changed\n");
    all += &said(&s, &["revert", "HEAD"], 1);
    insta::assert_snapshot!(all);
}

#[test]
fn a_record_that_cannot_be_read() {
    let s = parted();
    s.run(&["rebase", "theirs"]);
    s.write(".mdl/sequencer", "nonsense");
    let mut all = said(&s, &["status"], 0);
    all += &said(&s, &["rebase", "--continue"], 5);
    all += &said(&s, &["commit", "-m", "no"], 5);
    all += &said(&s, &["rebase", "--quit"], 0);
    all += &said(&s, &["reset", "--hard"], 0);
    insta::assert_snapshot!(all);
    assert_eq!(s.json(&["status"])["clean"], true);
}

#[test]
fn two_sides_that_have_parted() {
    let s = parted();
    s.ok(&["init", "--bare", "../origin"]);
    s.ok(&["remote", "add", "origin", "../origin"]);
    s.ok(&["push", "origin", "theirs:refs/heads/main"]);
    let mut all = said(&s, &["push"], 4);
    all += &said(&s, &["pull"], 4);
    all += &said(&s, &["pull", "--rebase", "--theirs", "config.json"], 0);
    all += &said(&s, &["push"], 0);
    insta::assert_snapshot!(all);
}

#[test]
fn a_pull_makes_one_version_of_both_sides() {
    let s = parted();
    s.ok(&["init", "--bare", "../origin"]);
    s.ok(&["remote", "add", "origin", "../origin"]);
    s.ok(&["push", "origin", "theirs:refs/heads/main"]);
    let mut all = said(&s, &["pull", "--merge", "median"], 2);
    all += &said(&s, &["pull", "--merge", "average"], 4);
    all += &said(&s, &["pull", "--merge", "average", "--theirs", "config.json"], 0);
    all += &said(&s, &["push"], 0);
    insta::assert_snapshot!(all);
    assert_eq!(s.read("config.json"), "theirs\n");
}

fn keys(document: &Value) -> Vec<&str> {
    let mut keys: Vec<&str> = document.as_object().unwrap().keys().map(String::as_str).collect();
    keys.sort_unstable();
    keys
}

#[test]
fn documents_for_programs() {
    const MEMBERS: [&str; 10] =
        ["branch", "commit", "conflicts", "from", "left", "onto", "operation", "replayed", "result", "version"];
    let s = parted();
    assert_eq!(s.json(&["status"])["in_progress"], Value::Null);
    let stopped = s.run(&["--json", "rebase", "theirs"]);
    let document: Value = serde_json::from_str(&stopped.out).unwrap();
    assert_eq!((stopped.code, keys(&document)), (4, MEMBERS.to_vec()));
    assert_eq!((&document["result"], &document["left"]), (&json!("stopped"), &json!(1)));
    let conflicts = json!([{"path": "config.json", "reason": "both-changed", "tensors": []}]);
    assert_eq!(document["conflicts"], conflicts);
    let error: Value = serde_json::from_str(&stopped.err).unwrap();
    assert_eq!(error["error"]["kind"], "conflict");
    let status = s.json(&["status"]);
    let members = ["conflicts", "done", "left", "onto", "operation", "original", "version"];
    assert_eq!(keys(&status["in_progress"]), members);
    assert_eq!((&status["in_progress"]["conflicts"], &status["clean"]), (&conflicts, &json!(true)));
    let back = s.json(&["rebase", "--abort"]);
    assert_eq!(keys(&back), ["aside", "commit", "moved_to", "operation", "removed", "result", "written"]);
    let done = s.json(&["rebase", "theirs", "--ours", "config.json"]);
    assert_eq!((keys(&done), &done["result"]), (MEMBERS.to_vec(), &json!("done")));
    assert_eq!(done["replayed"][0]["to"], done["commit"]);
    assert_eq!(s.json(&["revert", "HEAD"])["operation"], "revert");
    assert_eq!(s.json(&["rebase", "theirs"])["result"], "up_to_date");
    assert_eq!(s.json(&["revert", "--quit"]), json!({"operation": "revert", "result": "forgotten"}));
}
