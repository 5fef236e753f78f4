//! Exit code, message and JSON of every kind of error.

#![allow(clippy::unwrap_used, clippy::panic, reason = "a test fails by panicking")]

use crate::common::{Run, Sandbox, masked};
use serde_json::Value;
use std::{fs, process::Stdio};

/// The text of standard error, masked, below the command that caused it.
fn told(s: &Sandbox, cases: &[(&[&str], i32)]) -> String {
    let mut all = String::new();
    for (args, code) in cases {
        let run = s.run(args);
        assert_eq!((run.code, run.out.as_str()), (*code, ""), "mdl {args:?}: {run:?}");
        all.push_str(&format!("$ mdl {}\n{}\n-> {code}\n\n", args.join(" "), masked(s, &run.err)));
        json_error(s, args, *code);
    }
    all
}

/// The same error with --json: one object on standard error.
fn json_error(s: &Sandbox, args: &[&str], code: i32) {
    let all: Vec<&str> = args.iter().copied().chain(["--json"]).collect();
    let run = s.run(&all);
    assert_eq!(run.code, code, "{all:?}: {run:?}");
    let document: Value = serde_json::from_str(&run.err).unwrap_or_else(|e| panic!("{all:?}: {e}: {run:?}"));
    let kind = ["", "user", "usage", "not_found", "conflict", "corrupt", "io"][code as usize];
    assert_eq!(document["error"]["kind"], kind);
    assert!(document["error"]["message"].as_str().is_some_and(|m| !m.is_empty()));
    assert!(document["error"].get("hint").is_some());
}

#[test]
fn refused_requests() {
    let s = Sandbox::with_history();
    fs::create_dir(s.work().join("sub")).unwrap();
    insta::assert_snapshot!(told(
        &s,
        &[
            (&["commit", "-m", "again"], 1),
            (&["branch", "dev"], 1),
            (&["branch", "a..b"], 1),
            (&["branch", "-d", "main"], 1),
            (&["branch", "-d", "dev"], 1),
            (&["tag", "v1"], 1),
            (&["merge", "dev"], 4),
            (&["switch", "v1"], 1),
            (&["switch", "-c", "dev"], 1),
            (&["branch", "HEAD"], 1),
            (&["commit", ".mdl", "-m", "x"], 1),
            (&["commit", "sub", "-m", "x", "--step", "1"], 1),
            (&["verify", "."], 1),
            (&["cat", "main:config.json", "a"], 1),
            (&["init", "config.json"], 1),
        ]
    ));
}

#[test]
fn wrong_usage() {
    let s = Sandbox::with_history();
    insta::assert_snapshot!(told(
        &s,
        &[
            (&["comit"], 2),
            (&["commit"], 2),
            (&["commit", "-m", " "], 2),
            (&["commit", "-m", "x", "--metric", "loss"], 2),
            (&["commit", "-m", "x", "--metric", "loss=low"], 2),
            (&["commit", "-m", "x", "--metric", "a=1", "--metric", "a=2"], 2),
            (&["commit", "-m", "x", "--epoch", "-1"], 2),
            (&["checkout"], 2),
            (&["reset", "--hard", ""], 2),
            (&["cat", "main", "a"], 2),
            (&["cat", "main:model.safetensors", "a", "--slice", "1:2:0"], 2),
            (&["cat", "main:model.safetensors", "a", "--slice", "9"], 2),
            (&["cat", "main:model.safetensors", "a", "-o", "x"], 2),
            (&["branch", "a", "b", "c"], 2),
            (&["config", "no.such", "1"], 2),
            (&["config", "no.such"], 2),
            (&["config", "delta.max_depth", "251"], 2),
            (&["commit", "-m", "x", "--metric", "loss=1e999"], 2),
            (&["log", "main~x"], 2),
            (&["log", "main@{-1}"], 2),
            (&["log", "main@step=x"], 2),
            (&["log", "main@min(loss"], 2),
            (&["log", "main..HEAD"], 2),
        ]
    ));
}

#[test]
fn things_that_are_not_there() {
    let s = Sandbox::with_history();
    insta::assert_snapshot!(told(
        &s,
        &[
            (&["show", "nope"], 3),
            (&["show", "main~9"], 3),
            (&["log", "main@step=7"], 3),
            (&["log", "main@best(acc)"], 3),
            (&["log", "main@best(los)"], 3),
            (&["switch", "nope"], 3),
            (&["branch", "-d", "nope"], 3),
            (&["tag", "-d", "nope"], 3),
            (&["ls", "main", "nope"], 3),
            (&["cat", "main:nope", "a"], 3),
            (&["cat", "main:model.safetensors", "nope"], 3),
            (&["checkout", "main", "--only", "*.pt"], 3),
            (&["checkout", "main", "--only", "modle.safetensors"], 3),
            (&["checkout", "main", "--to", "x", "--only", "*.safetensor"], 3),
            (&["verify", "config.json", "main:nope"], 3),
            (&["config", "user.name"], 3),
            (&["reflog", "nope"], 3),
            (&["show", "abc"], 3),
            (&["verify", "nope"], 3),
        ]
    ));
    let empty = Sandbox::empty();
    insta::assert_snapshot!(masked(&empty, &empty.run(&["log"]).err));
    assert_eq!(empty.run(&["log"]).code, 3);
    assert_eq!(Sandbox::new().run(&["log"]).code, 3);
}

#[test]
fn uncommitted_changes_are_named() {
    let s = Sandbox::with_history();
    s.write("config.json", "mine\n");
    insta::assert_snapshot!(told(
        &s,
        &[(&["switch", "dev"], 1), (&["checkout", "main~2", "--only", "config.json"], 1)]
    ));
    assert_eq!(s.read("config.json"), "mine\n");
}

#[test]
fn a_branch_that_moves_meanwhile_is_a_conflict() {
    let s = Sandbox::with_history();
    // The second writer moves the branch between the first one's look and its move: the first one's editor is where it
    // waits.
    let dir = s.work();
    fs::write(dir.join("big.bin"), vec![7u8; 1 << 16]).unwrap();
    let mut codes = Vec::new();
    for round in 0..20 {
        fs::write(dir.join("big.bin"), vec![round as u8; 8 << 20]).unwrap();
        let spawn = |m: &str| {
            let mut c = s.command(&["--json", "commit", "-m", m]);
            c.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap()
        };
        let children = [spawn("one"), spawn("two")];
        for child in children {
            let run = Run::from(child.wait_with_output().unwrap());
            assert!([0, 1, 4].contains(&run.code), "{run:?}");
            if run.code == 4 {
                let document: Value = serde_json::from_str(&run.err).unwrap();
                assert_eq!(document["error"]["kind"], "conflict");
            }
            codes.push(run.code);
        }
        if codes.contains(&4) {
            return;
        }
    }
    // Both may always have landed one after the other; then there was nothing to see.
    assert!(codes.contains(&0));
}

/// The largest pack of the repository.
fn pack(s: &Sandbox) -> std::path::PathBuf {
    let packs = fs::read_dir(s.work().join(".mdl/packs")).unwrap().map(|e| e.unwrap().path());
    packs.filter(|p| p.extension().is_some_and(|e| e == "pack")).max_by_key(|p| p.metadata().unwrap().len()).unwrap()
}

#[test]
fn damage_is_found_and_named() {
    let s = Sandbox::with_history();
    s.ok(&["compact"]);
    let file = pack(&s);
    let mut bytes = fs::read(&file).unwrap();
    // Tensors come first in a pack, behind its short head.
    bytes[40] ^= 1;
    fs::write(&file, bytes).unwrap();
    let found = s.run(&["fsck"]);
    assert_eq!(found.code, 5, "{found:?}");
    assert!(found.out.contains("damaged: ") && found.out.contains("1 problem"), "{found:?}");
    assert!(found.err.starts_with("error: 1 problem found\nhint: "), "{found:?}");
    let document: Value = serde_json::from_str(&s.run(&["--json", "fsck"]).out).unwrap();
    assert_eq!(document["ok"], false);
    assert_eq!(document["problems"].as_array().unwrap().len(), 1);
    let runs: Vec<Run> = ["main", "dev", "main~1", "main~2"]
        .map(|rev| s.run(&["--json", "checkout", rev, "--to", rev]))
        .into_iter()
        .filter(|r| r.code != 0)
        .collect();
    assert!(!runs.is_empty());
    for run in runs {
        assert_eq!(run.code, 5, "{run:?}");
        assert!(run.err.contains("\"kind\":\"corrupt\"") && run.err.contains("mdl fsck"), "{run:?}");
    }
}

#[test]
fn a_failing_medium_is_input_output() {
    let s = Sandbox::with_history();
    s.write("wall", "a file where a directory must go\n");
    let run = s.run(&["checkout", "main", "--to", "wall/out"]);
    assert_eq!(run.code, 6, "{run:?}");
    let run = s.run(&["cat", "main:model.safetensors", "a", "--raw", "-o", "nowhere/a.bin"]);
    assert_eq!(run.code, 6, "{run:?}");
    if std::path::Path::new("/dev/full").exists() {
        let full = fs::OpenOptions::new().write(true).open("/dev/full").unwrap();
        let out = s.command(&["log"]).stdout(full).stderr(Stdio::piped()).output().unwrap();
        let run = Run::from(out);
        assert_eq!(run.code, 6, "{run:?}");
        assert!(run.err.contains("standard output"), "{run:?}");
    }
}
