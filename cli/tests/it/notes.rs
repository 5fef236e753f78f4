//! Notes on the command line: added, shown, listed, removed, sent and fetched.

#![allow(clippy::unwrap_used, clippy::panic, reason = "a test fails by panicking")]

use crate::common::{Sandbox, masked};
use serde_json::{Value, json};

fn members(document: &Value) -> Vec<String> {
    document.as_object().unwrap().keys().cloned().collect()
}

/// Times of notes are of now.
fn timeless(text: &str) -> String {
    text.lines()
        .map(|l| match l.find("20") {
            Some(at) if l[at..].starts_with("202") => format!("{}TIME", &l[..at]),
            _ => l.to_owned(),
        })
        .collect::<Vec<_>>()
        .join("\n")
}

#[test]
fn noted_shown_and_removed() {
    let s = Sandbox::with_history();
    let mut all = String::new();
    let commands: [&[&str]; 9] = [
        &["notes", "add", "main~1", "acc=0.91", "wandb=https://example.org/run"],
        &["notes", "add", "main~1", "acc=0.91"],
        &["notes", "list"],
        &["notes", "show", "main~1"],
        &["notes", "add", "main", "no value"],
        &["notes", "add", "main", " =1"],
        &["notes", "remove", "main~1", "other"],
        &["notes", "remove", "main~1", "wandb"],
        &["notes", "show", "main~1"],
    ];
    for args in commands {
        let run = s.run(args);
        all.push_str(&format!("$ mdl {}\n{}{}", args.join(" "), run.out, run.err));
    }
    insta::assert_snapshot!("notes", timeless(&masked(&s, &all)));
    let shown = s.json(&["show", "main~1"]);
    assert_eq!((&shown["metrics"]["acc"], &shown["metrics"]["loss"]), (&json!(0.91), &json!(0.5)));
    assert_eq!(members(&shown["notes"]), ["acc"]);
    assert_eq!(members(&shown["notes"]["acc"]), ["by", "date"]);
    assert!(s.ok(&["show", "main~1"]).contains("Noted:   acc by Ada on "));
    // It is the best of its kind, and the version is what it was.
    let id = shown["commit"].clone();
    assert_eq!(s.json(&["log", "main@best(acc)", "-n", "1"])[0]["commit"], id);
    assert_eq!(s.json(&["log", "--metric", "acc>0.9"])[0]["commit"], id);
    assert_eq!(s.json(&["grep-metric", "acc>0.9"])[0]["commit"], id);
    let added = s.json(&["notes", "add", "main~1", "f1=nan", "why=late"]);
    assert_eq!(members(&added), ["changed", "commit", "notes"]);
    assert_eq!(added["notes"]["f1"]["value"], "NaN");
    assert_eq!(members(&added["notes"]["f1"]), ["by", "date", "value"]);
    let listed = s.json(&["notes", "list"]);
    assert_eq!(members(&listed["versions"][0]), ["commit", "notes"]);
    assert_eq!(members(&s.json(&["notes", "show"])), ["commit", "notes"]);
    s.ok(&["notes", "remove", "main~1"]);
    assert_eq!(s.json(&["notes", "list"]), json!({"versions": []}));
}

#[test]
fn notes_of_two_clones_come_together() {
    let s = Sandbox::with_history();
    s.ok(&["init", "--bare", "../hub.mdl"]);
    s.ok(&["remote", "add", "origin", "../hub.mdl"]);
    s.ok(&["notes", "add", "main", "acc=0.5", "both=1"]);
    s.ok(&["push", "origin", "main"]);
    s.ok(&["clone", "../hub.mdl", "../other"]);
    let there = |args: &[&str]| {
        let all: Vec<&str> = ["--repo", "../other"].into_iter().chain(args.iter().copied()).collect();
        s.json(&all)
    };
    let keys = |document: &Value| members(&document["notes"]);
    assert_eq!(keys(&there(&["notes", "show", "main"])), ["acc", "both"]);
    // Both add some, and both push: nothing is lost, and the later word on a key counts.
    s.ok(&["notes", "add", "main~1", "here=1"]);
    there(&["notes", "add", "main", "both=2", "there=1"]);
    there(&["push", "origin", "main"]);
    s.ok(&["push", "origin", "main"]);
    there(&["fetch"]);
    for shown in [s.json(&["notes", "show", "main"]), there(&["notes", "show", "main"])] {
        assert_eq!(keys(&shown), ["acc", "both", "there"]);
        assert_eq!(shown["notes"]["both"]["value"], 2.0);
    }
    assert_eq!(keys(&there(&["notes", "show", "main~1"])), ["here"]);
    // What was removed stays removed.
    s.ok(&["notes", "remove", "main", "acc"]);
    s.ok(&["push", "origin", "main"]);
    there(&["pull"]);
    assert_eq!(keys(&there(&["notes", "show", "main"])), ["both", "there"]);
    for place in ["../hub.mdl", "../other", "."] {
        assert_eq!(s.json(&["--repo", place, "fsck"])["ok"], true, "{place}");
    }
    // They settle: another push moves nothing.
    let refs = s.json(&["ls-remote", "origin"]);
    s.ok(&["push", "origin", "main"]);
    there(&["push", "origin", "main"]);
    assert_eq!(s.json(&["ls-remote", "origin"]), refs);
}
