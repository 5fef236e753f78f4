//! Versions of older or other programs with a repository's directory in their tree: readable, never checked out.

#![allow(clippy::unwrap_used, clippy::panic, reason = "a test fails by panicking")]

use crate::common::Sandbox;
use mdl_codec::CpuEngine;
use mdl_objects::{Commit, Entry, Id, Kind, Mode, Tree};
use mdl_repo::{
    RefName, Repo, WriteTransaction,
    pack::{NewObject, PackWriter},
};
use std::{fs, sync::Arc};

fn add(pack: &mut PackWriter, kind: Kind, bytes: &[u8]) -> Id {
    let object = NewObject {
        id: Id::from_content(kind, bytes),
        kind,
        depth: 0,
        base: None,
        grandparent: None,
        logical: bytes.len() as u64,
    };
    let id = object.id;
    pack.add(object, &[&[0], bytes].concat()).unwrap();
    id
}

/// Puts a version on branch `old` that has what main has, and a directory of this name with the file `config` in it.
fn plant(s: &Sandbox, name: &str) {
    let repo = Repo::open(&s.work(), Arc::new(CpuEngine::new())).unwrap();
    let main: Commit = repo.odb().commit(&mdl_repo::resolve(&repo, "main").unwrap()).unwrap();
    let transaction = WriteTransaction::begin(&repo).unwrap();
    let mut pack = transaction.pack([]).unwrap();
    let text = b"[core]\n\tfsmonitor = \"touch harm\"\n";
    let entry = |name: &str, mode: Mode, id: Id| Entry {
        name: name.to_owned(),
        mode,
        executable: false,
        size: text.len() as u64,
        id,
    };
    let blob = add(&mut pack, Kind::Blob, text);
    let inner = Tree { entries: vec![entry("config", Mode::Blob, blob)] };
    let inner = add(&mut pack, Kind::Tree, &inner.encode());
    let mut entries = repo.odb().tree(&main.tree).unwrap().entries;
    entries.push(entry(name, Mode::Tree, inner));
    entries.sort_by(|a, b| a.name.cmp(&b.name));
    let tree = add(&mut pack, Kind::Tree, &Tree { entries }.encode());
    let commit = Commit { tree, message: "planted".to_owned(), ..main };
    let id = add(&mut pack, Kind::Commit, &commit.encode());
    transaction.publish(pack).unwrap();
    let branch = RefName::branch("old").unwrap();
    let before = repo.refs().get(&branch).unwrap();
    transaction.update_ref(&branch, before, Some(id), &commit.author, "test").unwrap();
}

#[test]
fn a_repository_in_a_version_is_read_and_never_checked_out() {
    for name in [".git", ".GIT", ".git.", "git~1", ".g\u{200c}it", ".git::$INDEX_ALLOCATION", "MDL~1"] {
        let s = Sandbox::with_history();
        plant(&s, name);
        let path = format!("{name}/config");
        // It is read by its name.
        assert!(s.ok(&["log", "old", "--oneline", "-n", "1"]).contains("planted"));
        assert!(s.ok(&["--json", "diff", "main", "old"]).contains("config"), "{name}");
        assert!(s.ok(&["ls", "old"]).contains(&path), "{name}");
        // It gets onto no disk, nor does anything beside it.
        let before = s.read("config.json");
        let out = s.root().join("out");
        for args in [
            &["checkout", "old", "--to", "../out"][..],
            &["checkout", "old", "--to", "../out", "--force"],
            &["checkout", "old"],
            &["switch", "old"],
            &["reset", "--hard", "old"],
            &["checkout", "old", "--to", "../out", "--only", "**/config"],
        ] {
            let run = s.run(args);
            assert_eq!(run.code, 1, "{name} {args:?}: {run:?}");
            assert!(run.err.contains("is not written to a disk") && run.err.contains("config"), "{run:?}");
            assert!(!out.exists() && !s.work().join(name).exists(), "{name} {args:?}");
        }
        assert_eq!((s.read("config.json"), s.json(&["status"])["branch"].as_str()), (before, Some("main")));
        // The other files of that version can be had.
        s.ok(&["checkout", "old", "--to", "../out", "--only", "*.json"]);
        let there: Vec<_> = fs::read_dir(&out).unwrap().map(|e| e.unwrap().file_name()).collect();
        assert_eq!(there, ["config.json"]);
        s.ok(&["checkout", "old", "--only", "model.safetensors"]);
        s.ok(&["fsck"]);
    }
}

#[test]
fn a_work_tree_that_stands_on_such_a_version_gets_away_from_it() {
    let s = Sandbox::with_history();
    plant(&s, ".git");
    s.ok(&["reset", "old"]);
    s.ok(&["switch", "dev"]);
    assert!(!s.work().join(".git").exists());
    s.ok(&["switch", "-c", "clean"]);
    s.write("config.json", "{}\n");
    s.ok(&["commit", "-m", "clean"]);
}

#[test]
fn no_commit_holds_a_repository() {
    for name in [".GIT", ".Mdl", ".git.", "git~1", ".git "] {
        let s = Sandbox::with_history();
        fs::create_dir(s.work().join(name)).unwrap();
        fs::write(s.work().join(name).join("config"), "[core]\n").unwrap();
        let run = s.run(&["commit", "-m", "x"]);
        assert_eq!(run.code, 1, "{name}: {run:?}");
        assert!(run.err.contains("directory of a repository") || run.err.contains("own directory"), "{run:?}");
        assert!(!s.ok(&["log", "--oneline"]).contains("x\n"));
    }
}
