//! Read-only checkouts that share their files: what is done to one never reaches the store, nor a later checkout.

use crate::support::{Noise, Place, engine, place};
use mdl_repo::{CheckedOut, CheckoutOptions, Repo, Silent, checkout_to, fsck, resolve};
use std::{
    collections::BTreeSet,
    fs,
    os::unix::fs::{MetadataExt, PermissionsExt},
    path::Path,
};
use tempfile::TempDir;

fn noise(seed: u64) -> Vec<u8> {
    let mut noise = Noise(seed);
    (0..40_000).flat_map(|_| noise.next().to_le_bytes()).collect()
}

fn linked(repo: &Repo, rev: &str, dir: &Path) -> CheckedOut {
    let id = resolve(repo, rev).expect("a revision");
    let options = CheckoutOptions { link: true, ..CheckoutOptions::default() };
    checkout_to(repo, &id, dir, &options, &Silent).expect("checkout")
}

fn committed() -> Place {
    let p = place();
    p.write("big.bin", &noise(1));
    p.write("run.sh", b"#!/bin/sh\n");
    fs::set_permissions(p.path().join("run.sh"), fs::Permissions::from_mode(0o755)).expect("mode");
    p.commit("one");
    p
}

fn inode(path: &Path) -> u64 {
    fs::metadata(path).expect("a file").ino()
}

/// What an owner can do to a read-only file of his.
fn overwrite(path: &Path, bytes: &[u8]) {
    fs::set_permissions(path, fs::Permissions::from_mode(0o644)).expect("mode");
    fs::write(path, bytes).expect("written");
}

fn store_is_whole(p: &Place) {
    assert_eq!(fsck(&p.repo, false, &Silent).expect("checked").problems, []);
    assert_eq!(p.file_at("main", "big.bin"), noise(1));
}

#[test]
fn ten_checkouts_take_the_room_of_one() {
    let (p, out) = (committed(), TempDir::new().expect("a directory"));
    let mut inodes = BTreeSet::new();
    for n in 0..10 {
        let dir = out.path().join(n.to_string());
        let done = linked(&p.repo, "main", &dir);
        assert_eq!((done.written, done.shared), (2, if n == 0 { 0 } else { 2 }));
        let file = dir.join("big.bin");
        assert_eq!(fs::metadata(&file).expect("a file").permissions().mode() & 0o777, 0o444);
        assert_eq!(fs::metadata(dir.join("run.sh")).expect("a file").permissions().mode() & 0o777, 0o555);
        assert_eq!(fs::read(&file).expect("a file"), noise(1));
        inodes.insert(inode(&file));
    }
    // Clones have inodes of their own; links have one.
    assert!(inodes.len() == 1 || inodes.len() == 10);
    let in_store = |dir: &str| fs::read_dir(p.path().join(".mdl").join(dir)).into_iter().flatten().flatten();
    let of_store: BTreeSet<u64> =
        ["packs", "cache", "links"].into_iter().flat_map(in_store).map(|e| inode(&e.path())).collect();
    assert!(of_store.is_disjoint(&inodes), "nothing in the store is linked");
}

#[test]
fn a_file_that_was_made_writable_and_changed_is_not_taken_again() {
    let (p, out) = (committed(), TempDir::new().expect("a directory"));
    let at = |n: &str| out.path().join(n).join("big.bin");
    linked(&p.repo, "main", &out.path().join("a"));
    linked(&p.repo, "main", &out.path().join("b"));
    let mut other = noise(1);
    other[17] ^= 1;
    overwrite(&at("a"), &other);
    store_is_whole(&p);
    let done = linked(&p.repo, "main", &out.path().join("c"));
    assert_eq!(fs::read(at("c")).expect("a file"), noise(1));
    assert_ne!(inode(&at("c")), inode(&at("a")));
    assert!(done.shared <= 1, "run.sh, or big.bin by a clone of b");
    // Read-only again, and as long and as old as it was.
    fs::set_permissions(at("a"), fs::Permissions::from_mode(0o444)).expect("mode");
    linked(&p.repo, "main", &out.path().join("d"));
    assert_eq!(fs::read(at("d")).expect("a file"), noise(1));
    store_is_whole(&p);
}

#[test]
fn what_is_no_file_any_more_is_passed_over() {
    let (p, out) = (committed(), TempDir::new().expect("a directory"));
    let at = |n: &str| out.path().join(n).join("big.bin");
    linked(&p.repo, "main", &out.path().join("a"));
    fs::remove_file(at("a")).expect("removed");
    fs::write(out.path().join("elsewhere"), noise(1)).expect("written");
    std::os::unix::fs::symlink(out.path().join("elsewhere"), at("a")).expect("a link");
    assert_eq!(linked(&p.repo, "main", &out.path().join("b")).shared, 1);
    assert!(fs::symlink_metadata(at("b")).expect("a file").is_file());
    // Notes of the store that make no sense are no notes.
    for note in fs::read_dir(p.path().join(".mdl/links")).expect("notes") {
        fs::write(note.expect("a note").path(), "[1, \"/dev/zero\"").expect("written");
    }
    assert_eq!(linked(&p.repo, "main", &out.path().join("c")).shared, 0);
    assert_eq!(fs::read(at("c")).expect("a file"), noise(1));
}

#[test]
fn another_version_in_the_same_directory_leaves_the_others_as_they_are() {
    let (p, out) = (committed(), TempDir::new().expect("a directory"));
    let at = |n: &str| out.path().join(n).join("big.bin");
    linked(&p.repo, "main", &out.path().join("a"));
    linked(&p.repo, "main", &out.path().join("b"));
    p.write("big.bin", &noise(2));
    p.commit("two");
    linked(&p.repo, "main", &out.path().join("b"));
    assert_eq!(fs::read(at("b")).expect("a file"), noise(2));
    assert_eq!(fs::read(at("a")).expect("a file"), noise(1));
    // A plain checkout's files are its owner's.
    let id = resolve(&p.repo, "main").expect("main");
    checkout_to(&p.repo, &id, &out.path().join("own"), &CheckoutOptions::default(), &Silent).expect("checkout");
    let own = at("own");
    assert_ne!(inode(&own), inode(&at("b")));
    fs::write(&own, b"mine").expect("writable");
    assert_eq!(fs::read(at("b")).expect("a file"), noise(2));
}

#[test]
fn a_linked_work_tree_notes_in_the_same_place() {
    let (p, out) = (committed(), TempDir::new().expect("a directory"));
    let id = resolve(&p.repo, "main").expect("main");
    let head = mdl_repo::Head::Detached(id);
    mdl_repo::add_work_tree(&p.repo, &out.path().join("w"), &id, &head, &CheckoutOptions::default(), &Silent)
        .expect("made");
    let other = Repo::open(&out.path().join("w"), engine()).expect("a work tree");
    linked(&p.repo, "main", &out.path().join("a"));
    assert_eq!(linked(&other, "main", &out.path().join("b")).shared, 2);
}
