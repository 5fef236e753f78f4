//! Test fixtures: a repository in a temporary directory, the program run in it, masks for what differs between runs.

#![allow(dead_code, reason = "each test file uses a part")]
#![allow(clippy::unwrap_used, clippy::panic, reason = "a test fails by panicking")]

use serde_json::Value;
use std::{
    fs,
    path::{Path, PathBuf},
    process::{Command, Output, Stdio},
};
use tempfile::TempDir;

/// How a run ended.
#[derive(Debug)]
pub struct Run {
    pub code: i32,
    pub out: String,
    pub err: String,
}

/// A temporary directory with a repository in `work`.
#[derive(Debug)]
pub struct Sandbox {
    root: TempDir,
}

impl Sandbox {
    /// A directory without a repository.
    pub fn empty() -> Sandbox {
        let root = TempDir::new().unwrap();
        fs::create_dir(root.path().join("work")).unwrap();
        Sandbox { root }
    }

    /// A repository without commits.
    pub fn new() -> Sandbox {
        let s = Sandbox::empty();
        s.ok(&["init"]);
        s
    }

    /// Three commits on main (steps 100, 200, 300), one more on dev beside the third.
    pub fn with_history() -> Sandbox {
        let s = Sandbox::new();
        s.tensors("model.safetensors", 0.0);
        s.write("config.json", "{}\n");
        s.ok(&["commit", "-m", "first", "--step", "100", "--metric", "loss=1"]);
        s.tensors("model.safetensors", 1.0);
        s.ok(&["commit", "-m", "second", "--step", "200", "--epoch", "0.5", "--metric", "loss=0.5"]);
        s.ok(&["switch", "-c", "dev"]);
        s.write("config.json", "{\"lr\": 1}\n");
        s.ok(&["commit", "-m", "beside\n\nwith a body", "--meta", "run=a"]);
        s.ok(&["switch", "main"]);
        s.tensors("model.safetensors", 2.0);
        s.ok(&["commit", "--step", "300", "--metric", "loss=0.9"]);
        s.ok(&["tag", "v1", "-m", "released"]);
        s
    }

    pub fn root(&self) -> &Path {
        self.root.path()
    }

    pub fn work(&self) -> PathBuf {
        self.root().join("work")
    }

    /// The program, about to be run in the work tree.
    pub fn command(&self, args: &[&str]) -> Command {
        let mut c = Command::new(env!("CARGO_BIN_EXE_mdl"));
        c.args(args).current_dir(self.work()).stdin(Stdio::null()).env_clear();
        c.env("HOME", self.root()).env("COLUMNS", "100").env("TZ", "UTC");
        c.env("MDL_AUTHOR_NAME", "Ada").env("MDL_AUTHOR_EMAIL", "ada@example.org");
        c
    }

    pub fn run(&self, args: &[&str]) -> Run {
        Run::from(self.command(args).output().unwrap())
    }

    /// Runs a command that must succeed; its standard output.
    pub fn ok(&self, args: &[&str]) -> String {
        let run = self.run(args);
        assert_eq!(run.code, 0, "mdl {args:?}: {run:?}");
        run.out
    }

    /// Runs a command with --json that must succeed; its document.
    pub fn json(&self, args: &[&str]) -> Value {
        let all: Vec<&str> = ["--json"].into_iter().chain(args.iter().copied()).collect();
        let out = self.ok(&all);
        serde_json::from_str(&out).unwrap_or_else(|e| panic!("mdl {all:?}: {e}: {out}"))
    }

    pub fn write(&self, name: &str, text: &str) {
        fs::write(self.work().join(name), text).unwrap();
    }

    pub fn read(&self, name: &str) -> String {
        fs::read_to_string(self.work().join(name)).unwrap()
    }

    /// A safetensors file with `a`, f32 [4, 6], whose element (i, j) is 10 i + j + `plus`, and `b`, bf16 [3] of ones.
    pub fn tensors(&self, name: &str, plus: f32) {
        let head = r#"{"a":{"dtype":"F32","shape":[4,6],"data_offsets":[0,96]},"b":{"dtype":"BF16","shape":[3],"data_offsets":[96,102]}}"#;
        let mut bytes = (head.len() as u64).to_le_bytes().to_vec();
        bytes.extend(head.as_bytes());
        bytes.extend(matrix(plus).iter().flat_map(|v| v.to_le_bytes()));
        bytes.extend([0x80, 0x3f].repeat(3));
        fs::write(self.work().join(name), bytes).unwrap();
    }
}

/// The elements of tensor `a`.
pub fn matrix(plus: f32) -> Vec<f32> {
    (0..24).map(|n| (n / 6 * 10 + n % 6) as f32 + plus).collect()
}

impl From<Output> for Run {
    fn from(o: Output) -> Run {
        Run {
            code: o.status.code().unwrap_or(-1),
            out: String::from_utf8_lossy(&o.stdout).into_owned(),
            err: String::from_utf8_lossy(&o.stderr).into_owned(),
        }
    }
}

/// Replaces ids, dates, stored sizes and the temporary directory.
pub fn masked(s: &Sandbox, text: &str) -> String {
    let root = s.root().canonicalize().unwrap();
    let text = text.replace(root.to_str().unwrap(), "ROOT");
    let lines: Vec<String> = text.lines().map(|l| stored(&dates(&ids(l)))).collect();
    lines.join("\n")
}

fn ids(line: &str) -> String {
    let hex = |c: char| c.is_ascii_digit() || ('a'..='f').contains(&c);
    let mut out = String::new();
    let mut rest = line;
    while !rest.is_empty() {
        let n = rest.find(|c| !hex(c)).unwrap_or(rest.len());
        match n {
            64 => out.push_str("ID"),
            12 => out.push_str("SHORT"),
            _ => out.push_str(&rest[..n]),
        }
        let next = rest[n..].find(hex).map_or(rest.len(), |m| n + m);
        out.push_str(&rest[n..next]);
        rest = &rest[next..];
    }
    out
}

/// `2026-11-21 12:30:05 +0100` is 25 characters in which digits and signs have their places.
fn dates(line: &str) -> String {
    const LIKE: &str = "0000-00-00 00:00:00 +0000";
    let same = |a: char, b: char| a == b || (a == '0' && b.is_ascii_digit()) || (a == '+' && b == '-');
    let chars: Vec<char> = line.chars().collect();
    let mut out = String::new();
    let mut i = 0;
    while i < chars.len() {
        let window: Vec<char> = chars[i..].iter().copied().take(LIKE.len()).collect();
        if window.len() == LIKE.len() && LIKE.chars().zip(&window).all(|(a, b)| same(a, *b)) {
            out.push_str("DATE");
            i += LIKE.len();
        } else {
            out.push(chars[i]);
            i += 1;
        }
    }
    out
}

/// What a version costs is the codec's business: `-> 1.2 KiB (3.00x)`.
fn stored(line: &str) -> String {
    match line.split_once(" B -> ").and_then(|(a, b)| Some((a, b.split_once(')')?.1))) {
        Some((before, after)) => format!("{before} B -> STORED{after}"),
        None => line.to_owned(),
    }
}
