//! Bisection on the command line, filters of the log, grep-metric.

#![allow(clippy::unwrap_used, clippy::panic, reason = "a test fails by panicking")]

use crate::common::{Sandbox, masked};
use serde_json::{Value, json};
use std::fs;

/// Twelve versions whose file holds their number; the loss is 2.5 from the eighth on.
fn sandbox() -> Sandbox {
    let s = Sandbox::new();
    for i in 0..12 {
        s.write("number.txt", &format!("{i}\n"));
        s.write("other.txt", "the same");
        let loss = if i >= 7 { "loss=2.5" } else { "loss=2" };
        s.ok(&["commit", "-m", &format!("number {i}"), "--step", &(i * 100).to_string(), "--metric", loss]);
    }
    s
}

fn members(document: &Value) -> Vec<String> {
    document.as_object().unwrap().keys().cloned().collect()
}

#[test]
fn by_hand() {
    let s = sandbox();
    let mut all = String::new();
    let commands: [&[&str]; 12] = [
        &["bisect"],
        &["bisect", "start"],
        &["bisect", "bad", "main"],
        &["bisect", "good", "main~11"],
        &["status"],
        &["bisect", "good"],
        &["bisect", "skip"],
        &["bisect", "good", "main~5"],
        &["bisect", "bad", "main~4"],
        &["bisect", "start"],
        &["bisect", "log"],
        &["bisect", "reset"],
    ];
    for args in commands {
        let run = s.run(args);
        all.push_str(&format!("$ mdl {}\n{}{}", args.join(" "), run.out, run.err));
    }
    insta::assert_snapshot!("bisect_by_hand", masked(&s, &all));
    assert_eq!(s.read("number.txt"), "11\n");
    assert_eq!(s.json(&["status"])["branch"], "main");
}

#[test]
fn by_a_command() {
    let s = sandbox();
    s.ok(&["bisect", "start", "--no-checkout", "HEAD", "main~11"]);
    assert_eq!(s.json(&["status"])["bisect"], 2);
    let script = "test ! -e other.txt && test \"$PWD\" = \"$MDL_BISECT_DIR\" && test \"$(cat number.txt)\" -lt 7";
    let done = s.json(&["bisect", "run", "--only", "number.txt", "sh", "-c", script]);
    assert_eq!(members(&done), ["first_bad", "probability", "rounds", "state", "trials"]);
    assert_eq!(done["state"], "found");
    assert!(done["trials"].as_u64().unwrap() <= 4, "{done}");
    let first_bad = s.json(&["log", "main~4", "-n", "1"])[0]["commit"].clone();
    assert_eq!(done["first_bad"], first_bad);
    // The work tree was left alone, and nothing is left of the trials.
    assert_eq!(s.read("number.txt"), "11\n");
    assert_eq!(fs::read_dir(s.work().join(".mdl/bisect-trials")).unwrap().count(), 1);
    let log = s.json(&["bisect", "log"]);
    assert_eq!(members(&log), ["branch", "checkout", "commit", "marks", "noise"]);
    assert_eq!(members(&log["marks"][0]), ["commit", "noisy", "verdict"]);
    s.ok(&["bisect", "reset"]);
    assert!(!s.work().join(".mdl/bisect-trials").exists());

    s.ok(&["bisect", "start", "HEAD", "main~11"]);
    let script = "test \"$(cat number.txt)\" -lt 7";
    let args = ["bisect", "run", "--jobs", "3", "--repeat", "3", "--noise", "0.05", "sh", "-c", script];
    let done = s.json(&args);
    assert_eq!(done["first_bad"], first_bad);
    assert!(done["trials"].as_u64().unwrap() <= 12, "{done}");
    assert_eq!(s.json(&["bisect", "log"])["noise"], json!({"repeat": 3, "rate": 0.05}));
    s.ok(&["bisect", "reset"]);
}

#[test]
fn commands_that_cannot_decide() {
    let s = sandbox();
    let refused = |args: &[&str]| {
        let run = s.run(args);
        assert_ne!(run.code, 0, "{args:?}");
        masked(&s, &run.err)
    };
    let mut all = String::new();
    all += &refused(&["bisect", "run", "true"]);
    s.ok(&["bisect", "start", "HEAD"]);
    for args in [
        &["bisect", "run", "--quiet", "true"][..],
        &["bisect", "good", "nothing"],
        &["bisect", "start"],
        &["bisect", "--metric", "loss"],
        &["bisect", "--metric", "loss", "--above", "9"],
        &["bisect", "--metric", "other", "--above", "9"],
    ] {
        all += "\n";
        all += &refused(args);
    }
    s.ok(&["bisect", "good", "main~11"]);
    for args in [
        &["bisect", "run", "--quiet", "sh", "-c", "exit 130"][..],
        &["bisect", "run", "--quiet", "sh", "-c", "kill -9 $$"],
        &["bisect", "run", "--quiet", "no-such-program"],
        &["bisect", "run", "--quiet", "--repeat", "3", "--noise", "0.5", "true"],
    ] {
        all += "\n";
        all += &refused(args);
    }
    insta::assert_snapshot!("bisect_refused", all);
    // Nothing was decided: it goes on.
    let skipped = s.ok(&["bisect", "run", "--quiet", "sh", "-c", "exit 125"]);
    assert_eq!(skipped, "");
    assert_eq!(s.json(&["bisect"])["state"], "undecided");
    assert_eq!(members(&s.json(&["bisect"])), ["any_of", "state"]);
}

#[test]
fn by_recorded_metrics() {
    let s = sandbox();
    let found = s.json(&["bisect", "--metric", "loss", "--above", "2.3"]);
    assert_eq!(members(&found), ["candidates", "first_bad", "looked_at", "or_any_of", "wrong"]);
    assert_eq!(found["first_bad"], s.json(&["log", "main~4", "-n", "1"])[0]["commit"]);
    assert!(found["looked_at"].as_array().unwrap().len() <= 4);
    assert_eq!(members(&found["looked_at"][0]), ["commit", "value"]);
    let mut all = masked(&s, &s.ok(&["bisect", "--metric", "loss", "--above", "2.3", "main~2", "main~9"]));
    all += "\n";
    all += &masked(&s, &s.ok(&["bisect", "--metric", "loss", "--above", "2.3", "--noisy"]));
    insta::assert_snapshot!("bisect_by_metrics", all);
}

#[test]
fn filters_of_the_log() {
    let s = sandbox();
    s.write("other.txt", "changed");
    s.ok(&["commit", "-m", "The Other", "--metric", "acc=0.5"]);
    let messages = |args: &[&str]| -> Vec<String> {
        let all: Vec<&str> = ["log"].into_iter().chain(args.iter().copied()).collect();
        s.json(&all).as_array().unwrap().iter().map(|c| c["message"].as_str().unwrap().to_owned()).collect()
    };
    assert_eq!(messages(&["--", "other.txt"]), ["The Other", "number 0"]);
    assert_eq!(messages(&["--grep", "the other"]), ["The Other"]);
    assert_eq!(messages(&["--metric", "loss<2.3 and step>=500"]), ["number 6", "number 5"]);
    assert_eq!(messages(&["--metric", "loss>2", "-n", "2"]), ["number 11", "number 10"]);
    assert_eq!(messages(&["--author", "ADA@", "--until", "1h"]), Vec::<String>::new());
    assert_eq!(messages(&["--author", "ada@", "--since", "1h", "-n", "1"]), ["The Other"]);
    assert!(messages(&["--author", "bob"]).is_empty());
    let mut all = String::new();
    for args in [
        &["log", "--since", "soon"][..],
        &["log", "--metric", "loss"],
        &["log", "--graph", "--grep", "x"],
        &["log", "--", "a["],
        &["grep-metric", "loss < "],
    ] {
        let run = s.run(args);
        assert_eq!(run.code, 2, "{args:?}");
        all += &run.err;
    }
    insta::assert_snapshot!("filters_refused", all);
    let found = s.json(&["grep-metric", "loss>2 or acc>0", "--sort", "step", "--reverse", "-n", "3"]);
    let steps: Vec<&Value> = found.as_array().unwrap().iter().map(|c| &c["step"]).collect();
    assert_eq!(steps, [&json!(1100), &json!(1000), &json!(900)]);
    insta::assert_snapshot!("grep_metric", masked(&s, &s.ok(&["grep-metric", "step>=1000, loss>2"])));
}
