//! Everyday cases: names of views, versions of a part of a work tree, a detached HEAD, a broken setting.

#![allow(clippy::unwrap_used, clippy::panic, reason = "a test fails by panicking")]

use crate::common::Sandbox;
use std::fs;

/// A `.npy` file of f32 [3, 4] in Fortran order whose element (i, j) is 4 i + j + `plus`.
fn fortran(s: &Sandbox, name: &str, plus: f32) {
    let text = format!("{:<117}\n", "{'descr': '<f4', 'fortran_order': True, 'shape': (3, 4), }");
    let mut bytes = b"\x93NUMPY\x01\x00".to_vec();
    bytes.extend((text.len() as u16).to_le_bytes());
    bytes.extend(text.bytes());
    let by_column = (0..12).map(|n| (n % 3 * 4 + n / 3) as f32 + plus);
    bytes.extend(by_column.flat_map(f32::to_le_bytes));
    fs::write(s.work().join(name), bytes).unwrap();
}

#[test]
fn a_name_is_the_tensor_and_not_its_storage() {
    let s = Sandbox::new();
    fortran(&s, "t.npy", 0.0);
    s.ok(&["commit", "-m", "x"]);
    s.ok(&["cat", "HEAD:t.npy", "array", "--raw", "-o", "t.raw"]);
    let rows: Vec<u8> = (0..12).flat_map(|n| (n as f32).to_le_bytes()).collect();
    assert_eq!(fs::read(s.work().join("t.raw")).unwrap(), rows);
    let row = s.json(&["cat", "HEAD:t.npy", "array", "--slice", "0"]);
    assert_eq!((&row["min"], &row["max"]), (&0.0.into(), &3.0.into()));
    let whole = s.json(&["cat", "HEAD:t.npy", "array#storage"]);
    assert_eq!(whole["shape"], serde_json::json!([4, 3]));
    let listed = s.ok(&["ls", "HEAD", "t.npy"]);
    assert!(listed.contains("array#storage") && listed.contains("view of array#storage"), "{listed}");
    fs::remove_file(s.work().join("t.raw")).unwrap();
    fortran(&s, "t.npy", 1.0);
    s.ok(&["commit", "-m", "y"]);
    let tensor = &s.json(&["diff", "HEAD~1"])["files"][0]["tensors"][0];
    assert_eq!((&tensor["name"], &tensor["shape"]), (&"array".into(), &serde_json::json!([3, 4])));
    assert_eq!(tensor["max_abs"], 1.0);
}

#[test]
fn a_commit_says_what_it_left_out() {
    let s = Sandbox::with_history();
    fs::create_dir(s.work().join("sub")).unwrap();
    s.write("sub/a.txt", "a\n");
    let run = s.run(&["commit", "sub", "-m", "part"]);
    assert!(run.out.contains(" 1 file added, 2 deleted\n"), "{run:?}");
    assert!(run.err.contains("hint: ") && run.err.contains("2 files of the work tree"), "{run:?}");
    let run = s.run(&["commit", "-m", "all"]);
    assert!(run.out.contains(" 3 files added, 1 deleted\n") && run.err.is_empty(), "{run:?}");
    let run = s.run(&["commit", "-m", "again", "--allow-empty"]);
    assert!(run.out.ends_with(" no file changed\n"), "{run:?}");
}

#[test]
fn a_version_with_no_new_tensor_boasts_of_no_ratio() {
    let s = Sandbox::with_history();
    let out = s.ok(&["commit", "-m", "again", "--step", "400"]);
    assert!(out.contains("2 files, 2 tensors, 0 new; ") && out.contains(" stored (no new tensor)\n"), "{out}");
    let listed = s.ok(&["log", "-2", "--oneline"]);
    let lines: Vec<&str> = listed.lines().collect();
    assert!(lines[0].ends_with(" (no new tensor)") && lines[1].ends_with("x)"), "{listed}");
    assert!(s.ok(&["log", "-1"]).contains(" (no new tensor); 2 files, 2 tensors, 0 new\n"));
}

#[test]
fn what_is_pruned_can_be_taken_back_and_what_is_gone_cannot() {
    let s = Sandbox::with_history();
    s.ok(&["branch", "-D", "dev"]);
    s.ok(&["reflog", "main"]);
    let ends = |end: &str| s.ok(&["log", "--oneline"]).lines().filter(|l| l.ends_with(end)).count();
    s.ok(&["prune", "--keep-latest", "1"]);
    assert_eq!((ends(" pruned"), ends(" gone")), (2, 0));
    assert!(s.ok(&["log"]).contains("; `mdl prune --undo` takes it back until a gc)\n"));
    s.ok(&["gc", "--prune-now"]);
    assert_eq!((ends(" pruned"), ends(" gone")), (0, 2));
    let full = s.ok(&["log"]);
    assert!(full.contains("; contents are gone)\n") && !full.contains("--undo"), "{full}");
    assert_eq!(s.json(&["log"])[1]["fidelity"], "gone");
}

#[test]
fn the_version_may_name_the_commit_it_was_built_from() {
    let s = Sandbox::empty();
    let number = format!("mdl {}", env!("CARGO_PKG_VERSION"));
    assert_eq!(s.ok(&["-V"]).trim_end(), number);
    let long = s.ok(&["--version"]);
    let rest = long.trim_end().strip_prefix(number.as_str()).unwrap();
    let commit = rest.strip_prefix(" (").and_then(|r| r.strip_suffix(')'));
    assert!(rest.is_empty() || commit.is_some_and(|c| c.len() == 12 && c.bytes().all(|b| b.is_ascii_hexdigit())));
}

#[test]
fn commits_of_no_branch_are_not_left_silently() {
    let s = Sandbox::with_history();
    s.ok(&["checkout", "main~1"]);
    assert!(!s.run(&["switch", "main"]).err.contains("leave behind"));
    s.ok(&["checkout", "main~1"]);
    s.write("config.json", "[]\n");
    s.ok(&["commit", "-m", "mine"]);
    let run = s.run(&["switch", "main"]);
    assert!(run.err.contains("1 commit that you leave behind") && run.err.contains("mdl branch NAME"), "{run:?}");
}

#[test]
fn ends_of_a_metric() {
    let s = Sandbox::with_history();
    let id = |rev: &str| s.json(&["log", rev, "-1"])[0]["commit"].clone();
    assert_eq!(id("main@min(loss)"), id("main~1"));
    assert_eq!(id("main@best(loss)"), id("main~1"));
    assert_eq!(id("main@max(loss)"), id("main~2"));
    s.ok(&["commit", "-m", "x", "--metric", "lr=0.1"]);
    let unknown = s.run(&["log", "main@best(lr)"]);
    assert!(unknown.code == 1 && unknown.err.contains("@min(lr) or @max(lr)"), "{unknown:?}");
    let full = id("main").as_str().unwrap().to_uppercase();
    assert_eq!(id(&full[..8]), id("main"));
    assert_eq!(s.ok(&["log", "-2", "--oneline"]).lines().count(), 2);
}

#[test]
fn settings_that_are_broken_or_empty_stop_nobody() {
    let s = Sandbox::with_history();
    fs::create_dir_all(s.root().join(".config/mdl")).unwrap();
    fs::write(s.root().join(".config/mdl/config.toml"), "= 1\n").unwrap();
    let run = s.run(&["log"]);
    assert!(run.code == 0 && run.err.contains(".config/mdl/config.toml"), "{run:?}");
    assert!(s.command(&["log"]).env("MDL_REPO", "").output().unwrap().status.success());
    s.write(".mdlignore", "*.tmp\n{a\n");
    let run = s.run(&["status"]);
    assert!(run.code == 1 && run.err.contains(".mdlignore"), "{run:?}");
}

#[test]
fn control_characters_do_not_reach_a_terminal() {
    let s = Sandbox::with_history();
    s.ok(&["commit", "-m", "red \x1b[31m\x07", "--allow-empty"]);
    for args in [&["log"][..], &["log", "--oneline"], &["show"], &["branch", "-v"]] {
        let out = s.ok(args);
        assert!(!out.contains(['\x1b', '\x07']) && out.contains("red \\u{1b}[31m"), "{out}");
    }
}

#[test]
fn half_written_checkpoints_are_refused() {
    for (name, text) in [("a.pt", ""), ("a.bin", ""), ("a.npy", ""), ("a.npz", ""), ("a.gguf", ""), ("t.pt", "hi")] {
        let s = Sandbox::new();
        s.write(name, text);
        let run = s.run(&["commit", "-m", "x"]);
        assert!(run.code == 1 && run.err.contains("--allow-damaged"), "{name}: {run:?}");
        s.ok(&["commit", "-m", "x", "--allow-damaged"]);
    }
    let s = Sandbox::new();
    s.write("a.bin", "hi");
    s.ok(&["commit", "-m", "x"]);
}

#[test]
fn status_tells_what_cannot_be_committed_and_what_is_only_a_mode() {
    use std::os::unix::fs::{PermissionsExt, symlink};
    let s = Sandbox::with_history();
    symlink("config.json", s.work().join("link")).unwrap();
    let file = s.work().join("config.json");
    fs::set_permissions(&file, fs::Permissions::from_mode(0o755)).unwrap();
    let out = s.ok(&["status"]);
    assert!(out.contains("link is a symbolic link") && out.contains("(only the executable bit)"), "{out}");
    assert_eq!(s.run(&["commit", "-m", "x"]).code, 1);
    let out = s.ok(&["status", "--follow-symlinks"]);
    assert!(out.contains("added:    link") && !out.contains("symbolic"), "{out}");
    s.ok(&["commit", "-m", "x", "--follow-symlinks"]);
    assert!(s.ok(&["show"]).contains("modified  config.json  (only the executable bit)"));
}
