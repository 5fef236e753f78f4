//! Merges and soups: what they say.

#![allow(clippy::unwrap_used, clippy::panic, reason = "a test fails by panicking")]

use crate::common::{Sandbox, masked};

/// Two branches that have parted: both changed the model and `config.json`.
fn parted() -> Sandbox {
    let s = Sandbox::new();
    s.tensors("model.safetensors", 0.0);
    s.write("config.json", "{}\n");
    s.ok(&["commit", "-m", "base"]);
    s.ok(&["branch", "exp"]);
    s.tensors("model.safetensors", 1.0);
    s.write("config.json", "own\n");
    s.ok(&["commit", "-m", "own"]);
    s.ok(&["switch", "exp"]);
    s.tensors("model.safetensors", 4.0);
    s.write("config.json", "exp\n");
    s.ok(&["commit", "-m", "exp"]);
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
fn merges_and_refusals() {
    let s = parted();
    let mut all = said(&s, &["merge", "exp"], 4);
    all += &said(&s, &["merge", "exp", "--strategy", "best"], 2);
    all += &said(&s, &["merge", "exp", "--strategy", "slerp", "--seed", "1"], 1);
    all += &said(&s, &["merge", "exp", "--strategy", "ties", "--density", "2"], 1);
    all += &said(&s, &["merge", "exp", "--strategy", "average", "--for", "nonsense"], 2);
    all += &said(&s, &["merge", "exp", "--strategy", "average"], 4);
    all += &said(&s, &["merge", "exp", "--strategy", "average", "--for", "*.json=theirs"], 0);
    all += &said(&s, &["merge", "--verify", "HEAD"], 0);
    all += &said(&s, &["merge", "--verify", "exp"], 1);
    all += &said(&s, &["merge", "exp", "--strategy", "average"], 0);
    all += &said(&s, &["merge"], 2);
    all += &said(&s, &["merge", "--abort"], 1);
    all += &said(&s, &["reflog", "-n", "1"], 0);
    insta::assert_snapshot!(all);
}

#[test]
fn soups() {
    let s = parted();
    let mut all = said(&s, &["soup", "main~1..main"], 1);
    all += &said(&s, &["soup", "main~1", "main"], 0);
    all += &said(&s, &["soup", "main~2", "main~1", "--ema", "1.5"], 1);
    all += &said(&s, &["soup", "main~2", "main~1", "--greedy", "--eval", "echo 1"], 0);
    all += &said(&s, &["soup", "main~2", "main~1", "--greedy", "--eval", "echo none"], 1);
    insta::assert_snapshot!(all);
}
