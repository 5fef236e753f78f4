//! What the commands about remotes refuse, and their messages.

#![allow(clippy::unwrap_used, clippy::panic, reason = "a test fails by panicking")]

use crate::common::{Run, Sandbox};
use mdl_repo::{
    pack::{Pack, PackId},
    storage::LocalStorage,
};
use serde_json::Value;
use std::fs;

/// A repository with history whose remote `origin` is an empty one beside it.
fn with_origin() -> Sandbox {
    let s = Sandbox::with_history();
    s.ok(&["init", "--bare", "../origin"]);
    s.ok(&["remote", "add", "origin", "../origin"]);
    s
}

/// A run that must fail: its code, and what it says on standard error; standard output is empty.
fn fails(s: &Sandbox, args: &[&str], code: i32, words: &[&str]) -> Run {
    let run = s.run(args);
    assert_eq!((run.code, run.out.as_str()), (code, ""), "mdl {args:?}: {run:?}");
    for word in words {
        assert!(run.err.contains(word), "mdl {args:?} does not say {word:?}: {run:?}");
    }
    run
}

/// Short names of the refs at origin.
fn there(s: &Sandbox) -> Vec<String> {
    let listed = s.json(&["ls-remote"]);
    let names = listed["refs"].as_array().unwrap().iter().map(|r| r["name"].as_str().unwrap());
    names.map(|n| n.trim_start_matches("refs/").to_owned()).collect()
}

#[test]
fn neither_side_of_a_colon_may_be_empty() {
    let s = with_origin();
    s.ok(&["push", "origin", "dev:keep"]);
    for force in [&[][..], &["-f"][..]] {
        let args = [&["push", "origin", ":keep"], force].concat();
        fails(&s, &args, 2, &["revision is missing", "mdl push REMOTE --delete keep"]);
    }
    fails(&s, &["push", "origin", "main:"], 2, &["name is missing"]);
    fails(&s, &["push", "origin", ":"], 2, &["nothing to push"]);
    let dev = s.json(&["log", "dev"])[0]["commit"].clone();
    assert!(dev.is_string());
    assert_eq!(s.json(&["ls-remote"])["refs"][0]["id"], dev);
}

#[test]
fn what_is_deleted_there_is_what_is_there() {
    let s = with_origin();
    s.ok(&["push", "origin", "main", "dev", "v1"]);
    s.ok(&["push", "origin", "main:refs/heads/both", "main:refs/tags/both"]);
    // Here there is no such tag any more.
    s.ok(&["tag", "-d", "v1"]);
    assert!(s.ok(&["push", "origin", "--delete", "v1"]).contains("[deleted]"));
    assert_eq!(there(&s), ["heads/both", "heads/dev", "heads/main", "tags/both"]);
    fails(&s, &["push", "origin", "--delete", "both"], 1, &["refs/heads/both", "refs/tags/both"]);
    // Of a push that names what is not there nothing is done.
    let args = ["push", "origin", "--delete", "dev", "v1"];
    fails(&s, &args, 3, &["not found: v1 at origin", "mdl ls-remote origin"]);
    s.ok(&["push", "origin", "--delete", "refs/tags/both", "dev"]);
    assert_eq!(there(&s), ["heads/both", "heads/main"]);
}

#[test]
fn a_failed_push_does_not_say_that_everything_is_there() {
    let s = with_origin();
    s.ok(&["push", "origin", "main:a"]);
    // A name cannot be a directory of names too.
    fails(&s, &["push", "origin", "main:a/b"], 1, &["error: "]);
    fails(&s, &["push", "--json", "origin", "main:a/b"], 1, &["\"error\""]);
    let some = s.run(&["push", "--json", "origin", "main:a/b", "main:c"]);
    let document: Value = serde_json::from_str(&some.out).unwrap();
    assert_eq!((some.code, document["refs"].as_array().unwrap().len()), (1, 1));
    assert_eq!(s.ok(&["push", "origin", "main:a"]), "Everything is there already\n");
}

#[test]
fn a_url_stands_for_a_remote_of_a_push() {
    let s = with_origin();
    s.ok(&["remote", "remove", "origin"]);
    s.ok(&["push", "../origin", "main", "v1"]);
    assert_eq!(s.json(&["ls-remote", "../origin"])["refs"].as_array().unwrap().len(), 2);
    assert!(!s.ok(&["push", "../origin", "--delete", "v1"]).is_empty());
    assert!(!s.work().join(".mdl/refs/remotes").exists(), "a URL has no name to note it by");
    fails(&s, &["push", "../origin", "--force-with-lease"], 2, &["mdl remote add NAME URL"]);
    fails(&s, &["fetch", "../origin"], 3, &["mdl remote add NAME URL"]);
    let secret = fails(&s, &["fetch", "https://me:hunter2@h/o/n"], 2, &["credentials"]);
    assert!(!secret.err.contains("hunter2"));
    s.ok(&["remote", "add", "other", "../origin"]);
    fails(&s, &["push", "nope"], 3, &["mdl remote add NAME URL"]);
    fs::remove_dir_all(s.root().join("origin")).unwrap();
}

#[test]
fn what_is_not_there_is_looked_for_there() {
    let s = with_origin();
    s.ok(&["push", "origin", "main"]);
    let listed = "mdl ls-remote origin";
    fails(&s, &["fetch", "origin", "nope"], 3, &["nope at origin", listed]);
    fails(&s, &["pull", "origin", "nope"], 3, &["nope at origin", listed]);
    let args = ["clone", "../origin", "../clone", "--branch", "nope"];
    fails(&s, &args, 3, &["branch not found: nope at ", "mdl ls-remote /"]);
    // A remote that is no repository.
    fails(&s, &["clone", "../nothing"], 3, &["repository not found", "check the URL"]);
    s.ok(&["remote", "add", "gone", "../nothing"]);
    for args in [&["fetch", "gone"][..], &["push", "gone"], &["pull", "gone"], &["ls-remote", "gone"]] {
        let said = fails(&s, args, 3, &["repository not found", "check the URL"]);
        assert!(!said.err.contains("mdl init"), "{said:?}");
    }
}

#[test]
fn a_lease_that_is_stale_is_looked_at_there() {
    let s = with_origin();
    s.ok(&["push", "origin", "main", "dev"]);
    s.ok(&["push", "../origin", "-f", "main~1:dev"]);
    let args = ["push", "origin", "dev", "--force-with-lease"];
    let said = fails(&s, &args, 4, &["moved meanwhile", "mdl fetch origin"]);
    assert!(!said.err.contains("reflog"), "{said:?}");
}

#[test]
fn a_pull_over_changes_says_what_a_pull_can_do() {
    let s = with_origin();
    s.ok(&["push", "origin", "main"]);
    s.ok(&["reset", "--hard", "main~1"]);
    s.tensors("model.safetensors", 9.0);
    let said = fails(&s, &["pull"], 1, &["model.safetensors", "mdl checkout HEAD --only FILE --force"]);
    assert!(!said.err.contains("pass --force"), "{said:?}");
    s.ok(&["checkout", "HEAD", "--only", "model.safetensors", "--force"]);
    assert!(s.ok(&["pull"]).contains("Fast-forward"));
}

#[test]
fn a_clone_finds_its_branch_where_head_names_none() {
    let s = with_origin();
    s.ok(&["push", "origin", "main:trunk"]);
    s.ok(&["clone", "../origin", "../one"]);
    assert!(s.root().join("one/config.json").exists());
    assert_eq!(s.json(&["--repo", "../one", "status"])["branch"], "trunk");
    s.ok(&["push", "origin", "dev:other"]);
    let said = s.run(&["clone", "../origin", "../two"]);
    assert_eq!(said.code, 0, "{said:?}");
    for word in ["warning: HEAD there names main", "mdl switch -c NAME origin/NAME", "other, trunk"] {
        assert!(said.err.contains(word), "{said:?}");
    }
    s.ok(&["--repo", "../two", "switch", "-c", "trunk", "origin/trunk"]);
    assert!(s.root().join("two/config.json").exists());
    let empty = Sandbox::new();
    let said = empty.run(&["clone", ".", "../clone"]);
    assert_eq!((said.code, said.err.contains("warning")), (0, false), "{said:?}");
}

/// Flips a bit of every object of origin: which lies where depends on ids.
fn damage_origin(s: &Sandbox) {
    let origin = s.root().join("origin");
    let storage = LocalStorage::new(&origin);
    for entry in fs::read_dir(origin.join("packs")).unwrap() {
        let path = entry.unwrap().path();
        let key = format!("packs/{}", path.file_name().unwrap().to_str().unwrap());
        let Some(id) = PackId::from_key(&key) else { continue };
        let pack = Pack::open(&storage, id).unwrap();
        let mut bytes = fs::read(&path).unwrap();
        for record in pack.records() {
            bytes[record.offset as usize] ^= 1;
        }
        fs::write(&path, bytes).unwrap();
    }
}

#[test]
fn damage_that_was_sent_is_at_the_other_side() {
    let s = with_origin();
    s.ok(&["push", "origin", "main"]);
    s.ok(&["clone", "../origin", "../some", "--only", "*.json"]);
    damage_origin(&s);
    let said = s.run(&["clone", "../origin", "../clone"]);
    assert_eq!(said.code, 5, "{said:?}");
    assert!(said.err.contains("at the other side (origin)"), "{said:?}");
    let said = s.run(&["--repo", "../some", "checkout", "main", "--to", "../out"]);
    assert_eq!(said.code, 5, "{said:?}");
    assert!(said.err.contains("as it came from") && said.err.contains("run `mdl fsck` there"), "{said:?}");
}

#[test]
fn a_work_tree_with_a_repository_says_where_its_bytes_are() {
    let s = Sandbox::new();
    let args = ["init", "--storage", "memory://b/p"];
    fails(&s, &args, 1, &["in the directory itself, not at memory://b/p"]);
}

#[test]
fn servers_say_what_is_wrong_by_their_codes() {
    let s = Sandbox::new();
    fails(&s, &["token", "revoke", "nope"], 3, &["token not found: nope"]);
    fails(&s, &["serve", "--root", "nowhere"], 3, &["directory not found: nowhere"]);
    let taken = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let address = taken.local_addr().unwrap().to_string();
    fails(&s, &["serve", "--listen", &address], 6, &["cannot listen at", "--listen"]);
}

#[test]
fn a_depth_means_one_branch() {
    let s = with_origin();
    s.ok(&["push", "origin", "main", "dev", "v1"]);
    s.ok(&["clone", "../origin", "../one", "--depth", "1"]);
    let noted = |at: &str| {
        let listed = s.ok(&["--repo", at, "tag"]);
        let remotes = s.root().join("work").join(at).join(".mdl/refs/remotes/origin");
        let mut names: Vec<String> =
            fs::read_dir(remotes).unwrap().map(|e| e.unwrap().file_name().into_string().unwrap()).collect();
        names.sort();
        (names.join(" "), listed.trim().to_owned())
    };
    assert_eq!(noted("../one"), ("main".to_owned(), String::new()));
    // A later fetch keeps to it, and brings what is named.
    s.ok(&["--repo", "../one", "fetch"]);
    s.ok(&["--repo", "../one", "pull"]);
    assert_eq!(noted("../one"), ("main".to_owned(), String::new()));
    s.ok(&["--repo", "../one", "fetch", "origin", "dev", "v1"]);
    let (branches, tags) = noted("../one");
    assert_eq!((branches.as_str(), tags.contains("v1")), ("dev main", true));
    s.ok(&["clone", "../origin", "../dev", "--depth", "1", "--branch", "dev"]);
    assert_eq!(noted("../dev").0, "dev");
    s.ok(&["clone", "../origin", "../all", "--depth", "1", "--no-single-branch"]);
    let (branches, tags) = noted("../all");
    assert_eq!((branches.as_str(), tags.contains("v1")), ("dev main", true));
    let alone = s.run(&["clone", "../origin", "../x", "--no-single-branch"]);
    assert_eq!(alone.code, 2, "{alone:?}");
}

#[test]
fn one_tag_that_is_another_there_keeps_no_other_from_going() {
    let s = with_origin();
    s.ok(&["push", "origin", "main", "v1"]);
    s.ok(&["tag", "-f", "v1", "main~1"]);
    s.ok(&["tag", "v2", "main"]);
    let said = s.run(&["push", "origin", "--tags"]);
    assert_eq!(said.code, 1, "{said:?}");
    assert!(said.err.contains("tag v1 exists there and is another"), "{said:?}");
    assert!(said.out.contains("v2") && !said.out.contains("v1"), "{said:?}");
    let there = s.ok(&["ls-remote", "origin"]);
    assert!(there.contains("refs/tags/v2"), "{there}");
    s.ok(&["push", "origin", "--tags", "--force"]);
}

#[test]
fn a_place_gets_another_name_with_what_was_noted_of_it() {
    let s = with_origin();
    s.ok(&["push", "origin", "main", "dev"]);
    s.ok(&["remote", "add", "backup", "../backup"]);
    fails(&s, &["remote", "rename", "origin", "backup"], 1, &["there is a remote backup already"]);
    fails(&s, &["remote", "rename", "nope", "x"], 3, &["nope"]);
    fails(&s, &["remote", "rename", "origin", "a/b"], 1, &["no name for a remote"]);
    let names = |args: &[&str]| -> Vec<String> {
        let listed = s.ok(&[&["branch"], args].concat());
        listed.lines().map(|l| l[2..].to_owned()).collect()
    };
    assert_eq!(names(&["-r"]), ["origin/dev", "origin/main"]);
    s.ok(&["remote", "rename", "origin", "upstream"]);
    assert_eq!(s.ok(&["remote"]), "backup\nupstream\n");
    assert_eq!(names(&[]), ["dev", "main"]);
    assert_eq!(names(&["-a"]), ["dev", "main", "upstream/dev", "upstream/main"]);
    assert_eq!(names(&["-a", "*/dev"]), ["upstream/dev"]);
    let noted = &s.json(&["branch", "-r"])["branches"][1];
    assert_eq!(
        (&noted["name"], &noted["remote"], &noted["current"]),
        (&"upstream/main".into(), &"upstream".into(), &false.into())
    );
    s.ok(&["push", "upstream", "main"]);
}

#[test]
fn a_clone_that_cannot_go_on_by_itself_does_not_say_so() {
    let s = with_origin();
    s.ok(&["push", "origin", "main"]);
    for entry in fs::read_dir(s.root().join("origin/packs")).unwrap() {
        fs::remove_file(entry.unwrap().path()).unwrap();
    }
    let said = s.run(&["clone", "../origin", "../clone"]);
    assert!(said.code != 0 && said.err.contains("when that is mended"), "{said:?}");
}

#[test]
fn a_choice_that_chooses_nothing_is_told() {
    let s = with_origin();
    s.ok(&["push", "origin", "main"]);
    let said = s.run(&["clone", "../origin", "../some", "--only", "*.json", "--only", "model.safetensors:*nope*"]);
    assert_eq!(said.code, 0, "{said:?}");
    assert!(said.err.contains("nothing in main matches \"model.safetensors:*nope*\""), "{said:?}");
    assert!(!said.err.contains("json\""), "{said:?}");
}
