//! Fsck: clean where all is well, exact about damage, and it never gives up.

use super::setup::*;
use mdl_objects::Id;
use mdl_repo::{
    Repo, Silent,
    storage::{Key, MemoryStorage, Storage},
};

#[test]
fn a_sound_repository_is_clean_and_counted() {
    let (storage, repo) = fresh();
    assert_clean(&repo);
    commit_all(&repo, "main", &run(3, 1, 600));
    let id = mdl_repo::resolve(&repo, "main~1").expect("rev");
    mdl_repo::create_tag(&repo, "light", &id, None, false).expect("tag");
    mdl_repo::create_tag(&repo, "heavy", &id, Some("a message"), false).expect("tag");
    assert_clean(&repo);
    let report = fsck(&repo);
    assert_eq!((report.packs, report.packs), (4, packs(&storage).len() as u64));
    assert_eq!(report.bytes, packed_bytes(&storage));
    assert!(serde_json::to_string(&report).expect("json").contains("\"problems\":[]"));
}

/// Flips a bit of the payload of tensor `a` of a version; returns the tensor's id.
fn damage_a(storage: &MemoryStorage, repo: &Repo, version: &Id) -> Id {
    let files = repo.odb().files(&repo.odb().commit(version).expect("commit").tree).expect("files");
    let manifest = repo.odb().manifest(&files["model.safetensors"].id).expect("manifest");
    let a = manifest.tensors.iter().find(|t| t.name == "a").expect("a").id;
    let at = repo.odb().locate(&a).expect("locate").expect("there");
    let key = at.pack.id.key();
    let mut bytes = storage.get(&key).expect("get").expect("pack");
    bytes[at.record.offset as usize + 100] ^= 4;
    storage.put(&key, &bytes).expect("damage");
    a
}

#[test]
fn what_a_check_found_damaged_is_stored_again_by_the_next_commit_of_it() {
    let (storage, repo) = fresh();
    let versions = run(3, 1, 3000);
    let ids: Vec<_> = versions.iter().map(|v| commit(&repo, "main", v)).collect();
    // What the other two are deltas to.
    damage_a(&storage, &repo, &ids[0]);
    let repo = open(storage.clone());
    assert_eq!(mdl_repo::fsck(&repo, false, &Silent).expect("fsck").problems.len(), 1);
    for (i, version) in versions.iter().enumerate() {
        let again = commit(&repo, &format!("again-{i}"), version);
        assert_eq!(repo.odb().commit(&again).expect("commit").tree, repo.odb().commit(&ids[i]).expect("commit").tree);
    }
    // By this handle, by one that knows only what is stored, and after the damaged copy has been collected.
    for collect in [false, false, true] {
        let repo = open(storage.clone());
        if collect {
            mdl_repo::gc(&repo, &NOW, &Silent).expect("gc");
        }
        let report = mdl_repo::fsck(&repo, false, &Silent).expect("fsck");
        assert!(report.problems.iter().all(|p| p.affected.is_empty()), "{report:?}");
    }
}

#[test]
fn damage_names_commits_files_and_tensors() {
    let (storage, repo) = fresh();
    let versions = run(3, 1, 3000);
    let ids: Vec<_> = versions.iter().map(|v| commit(&repo, "main", v)).collect();
    let a = damage_a(&storage, &repo, &ids[0]);
    for quick in [true, false] {
        let report = mdl_repo::fsck(&open(storage.clone()), quick, &Silent).expect("fsck");
        assert_eq!(report.problems.len(), 1, "{report:?}");
        let p = &report.problems[0];
        assert!(p.what.contains(&a.short()) && p.what.starts_with("tensor "), "{p:?}");
        for id in &ids {
            let here = |x: &&mdl_repo::Affected| x.commit == *id;
            let places: Vec<_> = p.affected.iter().filter(here).collect();
            assert_eq!(places.len(), 1);
            assert_eq!((places[0].path.as_str(), places[0].tensor.as_deref()), ("model.safetensors", Some("a")));
        }
    }
}

#[test]
fn a_missing_object_is_named_with_who_needs_it() {
    let (storage, repo) = fresh();
    let versions = run(2, 1, 600);
    let ids: Vec<_> = versions.iter().map(|v| commit(&repo, "main", v)).collect();
    let all = packs(&storage);
    for key in &all {
        let sound = storage.get(key).expect("get").expect("pack");
        storage.delete(key).expect("lose");
        let report = mdl_repo::fsck(&open(storage.clone()), false, &Silent).expect("fsck");
        assert!(!report.problems.is_empty());
        assert!(report.problems.iter().any(|p| p.affected.iter().any(|a| ids.contains(&a.commit))), "{report:?}");
        // A footer that cannot be read: everything in it is missing on its account.
        storage.put(key, &sound[..sound.len() - 1]).expect("truncate");
        let report = mdl_repo::fsck(&open(storage.clone()), true, &Silent).expect("fsck");
        let p = report.problems.iter().find(|p| *key == *p.what).expect("the pack");
        assert!(!p.affected.is_empty(), "{report:?}");
        storage.put(key, &sound).expect("back");
    }
    assert_clean(&open(storage));
}

#[test]
fn refs_and_head_that_make_no_sense_are_reported() {
    let (storage, repo) = fresh();
    commit(&repo, "main", &run(1, 1, 600)[0]);
    for (key, value) in [
        ("HEAD", "nonsense"),
        ("HEAD", "ref: elsewhere"),
        ("refs/heads/odd", "12345"),
        ("refs/heads/odd", "\u{0}\u{1}"),
        ("refs/heads/away", "abababababababababababababababababababababababababababababababab\n"),
        ("condemned", "nonsense"),
        ("packs/readme", "not a pack"),
    ] {
        let broken = duplicate(&storage);
        broken.put(&Key::fixed(key), value.as_bytes()).expect("put");
        let report = mdl_repo::fsck(&open(broken), false, &Silent).expect("fsck");
        assert_eq!(report.problems.len(), 1, "{key} {value:?}: {report:?}");
    }
    // A branch that points at what is no commit.
    let tree = repo.odb().commit(&mdl_repo::resolve(&repo, "main").expect("main")).expect("commit").tree;
    storage.put(&Key::fixed("refs/heads/tree"), format!("{tree}\n").as_bytes()).expect("put");
    assert_eq!(mdl_repo::fsck(&open(storage), false, &Silent).expect("fsck").problems.len(), 1);
}
