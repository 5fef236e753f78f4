//! Standard output: bytes, colours, `--quiet`, closed pipes; and how a repository is found.

#![allow(clippy::unwrap_used, clippy::panic, reason = "a test fails by panicking")]

use crate::common::{Run, Sandbox, matrix};
use std::{fs, io::Read, process::Stdio};

fn floats(bytes: &[u8]) -> Vec<f32> {
    bytes.chunks_exact(4).map(|b| f32::from_le_bytes(b.try_into().unwrap())).collect()
}

fn raw(s: &Sandbox, args: &[&str]) -> Vec<u8> {
    let out = s.command(args).output().unwrap();
    assert!(out.status.success(), "{args:?}: {out:?}");
    out.stdout
}

#[test]
fn cat_gives_exact_bytes_and_slices() {
    let s = Sandbox::with_history();
    let file = "main:model.safetensors";
    let all = matrix(2.0);
    assert_eq!(floats(&raw(&s, &["cat", file, "a", "--raw"])), all);
    let slice = |text: &str| floats(&raw(&s, &["cat", file, "a", "--raw", "--slice", text]));
    assert_eq!(slice("1:3"), all[6..18]);
    assert_eq!(slice("1:3,2:4"), [all[8], all[9], all[14], all[15]]);
    assert_eq!(slice("::2,-1"), [all[5], all[17]]);
    assert_eq!(slice("...,0"), [all[0], all[6], all[12], all[18]]);
    assert_eq!(slice("2,3"), [all[15]]);
    assert_eq!(slice("3:1"), [] as [f32; 0]);
    let npy = raw(&s, &["cat", file, "a", "--npy", "--slice", "0:2"]);
    assert!(npy.starts_with(b"\x93NUMPY\x01\x00") && String::from_utf8_lossy(&npy).contains("'shape': (2, 6)"));
    assert_eq!(floats(&npy[128..]), all[..12]);
    s.ok(&["cat", file, "b", "--raw", "-o", "b.bin"]);
    assert_eq!(fs::read(s.work().join("b.bin")).unwrap(), [0x80, 0x3f].repeat(3));
    assert!(!s.work().join("b.bin.part").exists());
    s.ok(&["cat", file, "b", "--raw", "-o", "/dev/null"]);
}

#[test]
fn a_reader_that_leaves_is_no_error() {
    let s = Sandbox::with_history();
    let commands: [&[&str]; 3] = [&["completions", "zsh"], &["log"], &["cat", "main:model.safetensors", "a", "--raw"]];
    for args in commands {
        let mut child = s.command(args).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
        let mut byte = [0];
        child.stdout.take().unwrap().read_exact(&mut byte).unwrap();
        let run = Run::from(child.wait_with_output().unwrap());
        assert_eq!((run.code, run.err.as_str()), (0, ""), "{args:?}");
    }
    // Closed before the first byte.
    let mut child = s.command(&["log"]).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    drop(child.stdout.take());
    let run = Run::from(child.wait_with_output().unwrap());
    assert_eq!((run.code, run.err.as_str()), (0, ""));
}

#[test]
fn colours_are_for_those_who_ask() {
    let s = Sandbox::with_history();
    assert!(!s.ok(&["log", "--graph"]).contains('\x1b'));
    assert!(s.ok(&["--color", "always", "log"]).contains("\x1b[33mcommit "));
    assert!(s.run(&["--color=always", "show", "nope"]).err.starts_with("\x1b[31merror:\x1b[0m "));
    assert!(!s.ok(&["--color=never", "log"]).contains('\x1b'));
    assert!(!s.ok(&["--color=always", "--json", "log"]).contains('\x1b'));
}

#[test]
fn quiet_says_only_what_was_asked_for() {
    let s = Sandbox::with_history();
    s.write("config.json", "[]\n");
    let commands: [&[&str]; 7] = [
        &["-q", "commit", "-m", "x"],
        &["-q", "branch", "b"],
        &["-q", "tag", "t"],
        &["-q", "checkout", "main~1"],
        &["-q", "switch", "main"],
        &["-q", "fsck"],
        &["-q", "gc"],
    ];
    for args in commands {
        let run = s.run(args);
        assert_eq!((run.code, run.out.as_str(), run.err.as_str()), (0, "", ""), "{args:?}");
    }
    assert!(!s.ok(&["-q", "log", "--oneline"]).is_empty());
}

#[test]
fn repositories_are_found_and_named() {
    let s = Sandbox::with_history();
    let below = s.work().join("sub/deep");
    fs::create_dir_all(&below).unwrap();
    let run = |c: &mut std::process::Command| Run::from(c.output().unwrap());
    assert_eq!(run(s.command(&["log"]).current_dir(&below)).code, 0);
    assert_eq!(run(s.command(&["log"]).current_dir(s.root())).code, 3);
    assert_eq!(run(s.command(&["log"]).current_dir(s.root()).env("MDL_REPO", s.work())).code, 0);
    assert_eq!(run(s.command(&["log", "--repo", "work/.mdl"]).current_dir(s.root())).code, 0);
    assert_eq!(run(s.command(&["--repo", "nowhere", "log"]).current_dir(s.root())).code, 3);
    let bare = run(s.command(&["init", "--bare", "bare.mdl", "-b", "trunk"]).current_dir(s.root()));
    assert_eq!(bare.code, 0, "{bare:?}");
    let args = ["--repo", "bare.mdl", "commit", "work", "-m", "from outside"];
    let done = run(s.command(&args).current_dir(s.root()));
    assert!(done.out.starts_with("[trunk (root-commit) "), "{done:?}");
    let args = ["--repo", "bare.mdl", "status"];
    assert_eq!(run(s.command(&args).current_dir(s.root())).code, 1);
}

#[test]
fn a_new_branch_takes_uncommitted_changes_along() {
    let s = Sandbox::with_history();
    s.write("config.json", "mine\n");
    s.ok(&["switch", "-c", "topic"]);
    assert_eq!(s.read("config.json"), "mine\n");
    let out = s.ok(&["switch", "main"]);
    assert!(out.contains("modified  config.json"), "{out}");
    assert_eq!(s.read("config.json"), "mine\n");
    s.ok(&["checkout", "HEAD", "--only", "config.json", "--force"]);
    assert_eq!(s.read("config.json"), "{}\n");
    // A start elsewhere must not lose changes, nor leave a branch behind when it refuses.
    s.tensors("model.safetensors", 9.0);
    assert_eq!(s.run(&["switch", "-c", "other", "main~1"]).code, 1);
    assert!(!s.ok(&["branch"]).contains("other"));
}

#[test]
fn a_fresh_repository_can_change_its_mind_about_the_first_branch() {
    let s = Sandbox::new();
    s.ok(&["switch", "-c", "trunk"]);
    s.write("a.txt", "a\n");
    assert!(s.ok(&["commit", "-m", "x"]).starts_with("[trunk (root-commit)"));
    assert_eq!(s.ok(&["branch"]), "* trunk\n");
}
