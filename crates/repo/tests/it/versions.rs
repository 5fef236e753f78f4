//! Commit and checkout: versions come back as they were committed, and cost what they should.

use crate::support::{Noise, place, safetensors};
use mdl_repo::{CheckoutOptions, CommitRequest, ErrorKind, Head, Progress, RepoError, Silent};
use mdl_store::write::chain_len;
use std::os::unix::fs::PermissionsExt;

fn nudge(values: &mut [f32], by: f32) {
    values.iter_mut().for_each(|v| *v *= 1.0 + by);
}

#[test]
fn every_kind_of_file_comes_back() {
    let p = place();
    let mut noise = Noise(1);
    let model = safetensors(&[("a", &noise.weights(5000)), ("b", &noise.weights(31)), ("empty", &[])]);
    let big = noise.bytes(3_500_000);
    let files: [(&str, &[u8]); 6] = [
        ("model.safetensors", &model),
        ("sub/dir/notes.txt", b"hello"),
        ("sub/empty", b""),
        ("big.bin", &big),
        ("size/one-mib", &big[..1 << 20]),
        ("size/one-mib-and-one", &big[..(1 << 20) + 1]),
    ];
    files.iter().for_each(|(rel, bytes)| p.write(rel, bytes));
    std::fs::set_permissions(p.path().join("sub/empty"), std::fs::Permissions::from_mode(0o755)).expect("chmod");
    let done = p.commit("all");
    assert_eq!(done.summary.files, 6);
    assert_eq!(done.summary.tensors, 3);
    assert_eq!(done.summary.logical_bytes, files.iter().map(|f| f.1.len() as u64).sum::<u64>());
    for (rel, bytes) in files {
        assert!(p.file_at("main", rel) == bytes, "{rel}");
    }
    assert_eq!(mdl_repo::status(&p.repo, &Silent).expect("status"), []);
    let out = tempfile::TempDir::new().expect("temp");
    mdl_repo::checkout_to(&p.repo, &done.id, out.path(), &CheckoutOptions::default(), &Silent).expect("checkout");
    let mode = |rel: &str| std::fs::metadata(out.path().join(rel)).expect("stat").permissions().mode() & 0o111;
    assert!(mode("sub/empty") != 0 && mode("big.bin") == 0);
}

#[test]
fn an_unchanged_tree_needs_a_label_to_be_committed_again() {
    let p = place();
    p.write("m.safetensors", &safetensors(&[("a", &Noise(2).weights(100_000))]));
    p.commit("one");
    assert_eq!(p.try_commit("again").expect_err("nothing to commit").kind(), ErrorKind::User);
    let request = CommitRequest { message: "step".into(), step: Some(7), ..CommitRequest::default() };
    let again = mdl_repo::commit(&p.repo, &request, &Silent).expect("labelled");
    assert_eq!(again.summary.new_tensors, 0);
    assert!(again.summary.stored_bytes < 64 << 10, "{}", again.summary.stored_bytes);
}

#[test]
fn small_changes_are_deltas_and_chains_are_bounded() {
    let p = place();
    let mut noise = Noise(3);
    let (mut a, fixed) = (noise.weights(40_000), noise.weights(40_000));
    let mut versions = Vec::new();
    for i in 0..20 {
        let bytes = safetensors(&[("a", &a), ("fixed", &fixed)]);
        p.write("m.safetensors", &bytes);
        let done = p.commit(&format!("v{i}"));
        let names: Vec<&str> = done.report.tensors.iter().map(|t| t.name.as_str()).collect();
        assert_eq!(names, if i == 0 { vec!["a", "fixed"] } else { vec!["a"] });
        let stored = &done.report.tensors[0];
        assert_eq!(stored.depth, chain_len(i as u8), "as skip deltas have it");
        if stored.depth > 0 {
            assert!(stored.stored * 2 < stored.logical, "{stored:?}");
        }
        versions.push((done.id, bytes));
        nudge(&mut a, 3e-6);
    }
    for (i, (id, bytes)) in versions.iter().enumerate() {
        assert!(p.file_at(&id.to_hex(), "m.safetensors") == *bytes, "version {i}");
    }
    assert!(p.file_at("main~19", "m.safetensors") == versions[0].1);
}

#[test]
fn a_tensor_larger_than_a_batch_streams() {
    let p = place();
    let mut values = Noise(4).weights(18 << 20);
    let first = safetensors(&[("big", &values), ("small", &[1.0])]);
    p.write("m.safetensors", &first);
    p.commit("one");
    values[5_000_000] += 1.0;
    let second = safetensors(&[("big", &values), ("small", &[1.0])]);
    p.write("m.safetensors", &second);
    let done = p.commit("two");
    assert_eq!(done.summary.new_tensors, 1);
    assert!(done.summary.stored_bytes < 64 << 10, "one element changed: {}", done.summary.stored_bytes);
    assert!(p.file_at("HEAD^", "m.safetensors") == first);
    assert!(p.file_at("HEAD", "m.safetensors") == second);
}

#[test]
fn equal_tensors_are_stored_once() {
    let p = place();
    let w = Noise(5).weights(50_000);
    p.write("a/m.safetensors", &safetensors(&[("x", &w), ("tied", &w)]));
    p.write("b/m.safetensors", &safetensors(&[("y", &w)]));
    let done = p.commit("tied");
    assert_eq!((done.summary.tensors, done.summary.new_tensors), (3, 1));
}

#[test]
fn the_index_is_only_a_cache() {
    let mut p = place();
    let bytes = safetensors(&[("a", &Noise(6).weights(1000))]);
    p.write("m.safetensors", &bytes);
    p.commit("one");
    p.repo.odb().release_index();
    let index = p.path().join(".mdl/index");
    std::fs::remove_dir_all(&index).expect("there was an index");
    p.reopen();
    assert!(p.file_at("main", "m.safetensors") == bytes);
    // Held by another: still right.
    let held = mdl_repo_index_holder(&p);
    p.reopen();
    assert!(p.file_at("main", "m.safetensors") == bytes);
    drop(held);
}

/// Another handle on the same repository that has its index open.
fn mdl_repo_index_holder(p: &crate::support::Place) -> mdl_repo::Repo {
    let other = mdl_repo::Repo::open(p.path(), crate::support::engine()).expect("open");
    mdl_repo::resolve(&other, "main").expect("uses the index");
    other
}

#[test]
fn checkout_loses_nothing_that_is_in_no_version() {
    let p = place();
    p.write("a", b"one");
    p.write("gone", b"later");
    let first = p.commit("one").id;
    p.write("a", b"two");
    std::fs::remove_file(p.path().join("gone")).expect("rm");
    p.write("new", b"n");
    p.commit("two");
    let head = Head::Detached(first);
    let none = CheckoutOptions::default();
    p.write("a", b"precious");
    let refused = mdl_repo::checkout(&p.repo, &first, &head, &none, &Silent).expect_err("would lose changes");
    assert_eq!((refused.kind(), p.read("a")), (ErrorKind::User, b"precious".to_vec()));
    assert_eq!(p.repo.refs().head().expect("head"), Head::Branch("main".into()));
    p.write("a", b"two");
    p.write("gone", b"untracked and different");
    mdl_repo::checkout(&p.repo, &first, &head, &none, &Silent).expect_err("would overwrite an untracked file");
    std::fs::remove_file(p.path().join("gone")).expect("rm");
    let done = mdl_repo::checkout(&p.repo, &first, &head, &none, &Silent).expect("clean");
    assert_eq!((p.read("a"), p.read("gone")), (b"one".to_vec(), b"later".to_vec()));
    assert_eq!((done.written, done.removed), (2, 1));
    assert!(!p.path().join("new").exists());
    let force = CheckoutOptions { force: true, ..none };
    p.write("a", b"precious");
    mdl_repo::checkout(&p.repo, &first, &head, &force, &Silent).expect("forced");
    assert_eq!(p.read("a"), b"one");
}

#[test]
fn nothing_is_written_through_links() {
    let p = place();
    p.write("d/f", b"x");
    let id = p.commit("one").id;
    let (out, outside) = (tempfile::TempDir::new().expect("temp"), tempfile::TempDir::new().expect("temp"));
    std::os::unix::fs::symlink(outside.path(), out.path().join("d")).expect("link");
    mdl_repo::checkout_to(&p.repo, &id, out.path(), &CheckoutOptions::default(), &Silent).expect_err("link in the way");
    assert!(!outside.path().join("f").exists());
    std::os::unix::fs::symlink("/etc/passwd", p.path().join("link")).expect("link");
    assert_eq!(p.try_commit("link").expect_err("links are refused").kind(), ErrorKind::User);
}

#[test]
fn only_takes_globs() {
    let p = place();
    p.write("a.json", b"1");
    p.write("d/b.json", b"2");
    p.write("d/c.txt", b"3");
    let id = p.commit("one").id;
    let out = tempfile::TempDir::new().expect("temp");
    let only = |g: &str| CheckoutOptions { only: vec![g.into()], ..CheckoutOptions::default() };
    assert_eq!(mdl_repo::checkout_to(&p.repo, &id, out.path(), &only("*.json"), &Silent).expect("globs").written, 2);
    assert_eq!(mdl_repo::checkout_to(&p.repo, &id, out.path(), &only("d/*"), &Silent).expect("globs").written, 1);
    assert_eq!(
        mdl_repo::checkout_to(&p.repo, &id, out.path(), &only("nope"), &Silent).expect_err("none").kind(),
        ErrorKind::NotFound
    );
}

#[test]
fn a_directory_whose_files_all_go_makes_room_for_a_file() {
    let p = place();
    p.write("a/b/c", b"1");
    p.write("a/d", b"2");
    let first = p.commit("a directory").id;
    std::fs::remove_dir_all(p.path().join("a")).expect("rm");
    p.write("a", b"a file");
    let second = p.commit("a file").id;
    let none = CheckoutOptions::default();
    let go = |id, options: &CheckoutOptions| mdl_repo::checkout(&p.repo, id, &Head::Detached(*id), options, &Silent);
    go(&first, &none).expect("a file makes room too");
    assert_eq!((p.read("a/b/c"), p.read("a/d")), (b"1".to_vec(), b"2".to_vec()));
    p.write("a/mine", b"untracked");
    let force = CheckoutOptions { force: true, ..CheckoutOptions::default() };
    go(&second, &force).expect_err("a file of nobody's is in it");
    assert_eq!(p.read("a/mine"), b"untracked");
    std::fs::remove_file(p.path().join("a/mine")).expect("rm");
    p.write("a/d", b"changed");
    go(&second, &none).expect_err("changes");
    assert_eq!(p.read("a/d"), b"changed");
    go(&second, &force).expect("forced");
    assert_eq!(p.read("a"), b"a file");
}

#[test]
fn only_what_a_version_has_is_overwritten_elsewhere() {
    let p = place();
    let none = CheckoutOptions::default();
    p.write("f", b"first");
    p.commit("one");
    p.write("f", b"second");
    let tip = p.commit("two").id;
    let out = tempfile::TempDir::new().expect("temp");
    let file = out.path().join("f");
    let to = |bytes: &[u8]| {
        std::fs::write(&file, bytes).expect("write");
        mdl_repo::checkout_to(&p.repo, &tip, out.path(), &none, &Silent)
    };
    to(b"first").expect("it is in a version");
    to(b"nowhere").expect_err("it is in none");
    // As after a commit that lost the race for its branch: stored, and in no version.
    let lost = CommitRequest { message: "lost".into(), branch: Some("lost".into()), ..CommitRequest::default() };
    p.write("f", b"only copy");
    mdl_repo::commit(&p.repo, &lost, &Silent).expect("commit");
    to(b"only copy").expect("a branch has it");
    mdl_repo::delete_branch(&p.repo, "lost", true, &Silent).expect("delete");
    to(b"only copy").expect_err("no version has it now");
    assert_eq!(std::fs::read(&file).expect("read"), b"only copy");
}

#[test]
fn what_a_killed_checkout_left_is_not_committed() {
    let p = place();
    for left in [".mdl-1-0-model.safetensors", "d/.mdl-4711-12", ".mdl-9-3-0badcafe-x"] {
        p.write(left, b"half a file");
    }
    p.write(".mdl-notes", b"the user's own");
    p.write(".mdl-2026-notes", b"and this");
    p.commit("one");
    let files = p
        .repo
        .odb()
        .files(&p.repo.odb().commit(&mdl_repo::resolve(&p.repo, "main").expect("main")).expect("commit").tree);
    let names: Vec<String> = files.expect("files").into_keys().collect();
    assert_eq!(names, [".mdl-2026-notes", ".mdl-notes"]);
}

/// Puts a program in the place of a file once the files have been listed.
struct Replaces(std::path::PathBuf);

impl Progress for Replaces {
    fn begin(&self, _what: &str, _total: u64) {
        let new = self.0.with_extension("new");
        std::fs::write(&new, b"#!").expect("written");
        std::fs::set_permissions(&new, std::fs::Permissions::from_mode(0o755)).expect("executable");
        std::fs::rename(new, &self.0).expect("renamed");
    }
    fn advance(&self, _n: u64) {}
    fn end(&self) {}
}

#[test]
fn a_version_never_has_the_bytes_of_one_file_and_the_executable_bit_of_another() {
    let p = place();
    p.write("run.sh", b"text");
    let changed = mdl_repo::commit(&p.repo, &CommitRequest::default(), &Replaces(p.path().join("run.sh")));
    assert!(matches!(changed, Err(RepoError::FileChanged { .. })), "{changed:?}");
    p.commit("the program");
    assert!(
        mdl_repo::files(&p.repo, &mdl_repo::resolve(&p.repo, "HEAD").expect("HEAD")).expect("files")["run.sh"]
            .executable
    );
}

/// Makes a file executable once a checkout has looked at it.
struct Permits(std::path::PathBuf);

impl Progress for Permits {
    fn begin(&self, _what: &str, _total: u64) {
        std::fs::set_permissions(&self.0, std::fs::Permissions::from_mode(0o755)).expect("executable");
    }
    fn advance(&self, _n: u64) {}
    fn end(&self) {}
}

#[test]
fn an_executable_bit_that_is_set_while_a_checkout_runs_stays() {
    let p = place();
    p.write("run.sh", b"first");
    let first = p.commit("first").id;
    p.write("run.sh", b"second");
    p.commit("second");
    let permits = Permits(p.path().join("run.sh"));
    let options = CheckoutOptions::default();
    let kept = mdl_repo::checkout(&p.repo, &first, &Head::Detached(first), &options, &permits);
    assert!(matches!(kept, Err(RepoError::FileKept { .. })), "{kept:?}");
    assert_eq!(p.read("run.sh"), b"second");
    assert_eq!(std::fs::metadata(&permits.0).expect("there").permissions().mode() & 0o777, 0o755);
}

#[test]
fn a_file_where_a_directory_must_go_is_named_before_anything_is_written() {
    let p = place();
    p.write("a", b"1");
    p.write("dir/file", b"1");
    let first = p.commit("first").id;
    std::fs::remove_dir_all(p.path().join("dir")).expect("removed");
    p.write("a", b"2");
    p.commit("second");
    p.write("dir", b"in no version");
    for force in [false, true] {
        let options = CheckoutOptions { force, ..CheckoutOptions::default() };
        let refused = mdl_repo::checkout(&p.repo, &first, &Head::Detached(first), &options, &Silent);
        assert_eq!(refused.expect_err("in the way").kind(), ErrorKind::User);
        assert_eq!((p.read("a"), p.read("dir")), (b"2".to_vec(), b"in no version".to_vec()));
    }
    // One that goes makes room.
    p.commit("third");
    mdl_repo::checkout(&p.repo, &first, &Head::Detached(first), &CheckoutOptions::default(), &Silent).expect("room");
    assert_eq!(p.read("dir/file"), b"1");
}
