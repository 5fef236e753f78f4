//! Hostile bytes: every truncation and every flipped bit of a small pack, and indexes that lie. Reading gives an error
//! or exactly the right bytes; the check reports it; nothing panics or hangs.

use super::setup::*;
use mdl_objects::{Id, Kind};
use mdl_repo::{
    PackApart, Repo, Silent, WriteTransaction,
    pack::{Pack, PackId},
    storage::{Key, MemoryStorage, Storage},
};
use std::path::Path;
use tempfile::TempDir;

/// An object, its kind and its right bytes.
type Object = (Id, Kind, Vec<u8>);

/// A repository whose objects all lie in one small pack: a chain of deltas, blobs, trees, commits, a tag.
fn small() -> (MemoryStorage, Key, Vec<Object>) {
    let (storage, repo) = fresh();
    commit_all(&repo, "main", &run(3, 1, 96));
    let id = mdl_repo::resolve(&repo, "main").expect("main");
    mdl_repo::create_tag(&repo, "t", &id, Some("a tag"), false).expect("tag");
    mdl_repo::compact(&repo, &Default::default(), &Silent).expect("compact");
    let mut objects = Vec::new();
    for key in packs(&storage) {
        let pack = PackId::from_key(&key).expect("a pack's name");
        for r in Pack::open(&storage, pack).expect("pack").records() {
            objects.push((r.id, r.kind, content(&repo, &r.id, r.kind).expect("read")));
        }
    }
    let packs = packs(&storage);
    assert_eq!(packs.len(), 1);
    let kinds = |k: Kind| objects.iter().filter(|o| o.1 == k).count();
    assert!(Kind::ALL.iter().all(|k| kinds(*k) > 0));
    (storage, packs[0].clone(), objects)
}

fn content(repo: &Repo, id: &Id, kind: Kind) -> mdl_repo::Result<Vec<u8>> {
    match kind {
        Kind::Tensor => repo.odb().tensor(id)?.read(),
        kind => repo.odb().read(id, kind),
    }
}

/// Reads everything: whatever is no error is right. Returns the number of errors.
fn read_all(repo: &Repo, objects: &[Object], label: &str) -> usize {
    let wrong = |(id, kind, right): &&Object| match content(repo, id, *kind) {
        Ok(bytes) => {
            assert!(bytes == *right, "wrong bytes: {label}");
            false
        }
        Err(_) => true,
    };
    objects.iter().filter(wrong).count()
}

fn with(storage: &MemoryStorage, key: &Key, bytes: &[u8]) -> Repo {
    storage.put(key, bytes).expect("put");
    open(storage.clone())
}

#[test]
fn every_truncation_of_a_pack() {
    let (storage, key, objects) = small();
    let whole = storage.get(&key).expect("get").expect("pack");
    for len in 0..whole.len() {
        let repo = with(&storage, &key, &whole[..len]);
        let errors = read_all(&repo, &objects, &format!("first {len} bytes"));
        assert_eq!(errors, objects.len(), "a pack without its end has no objects");
        if len % 16 == 0 || len + 100 > whole.len() {
            assert!(!mdl_repo::fsck(&repo, true, &Silent).expect("fsck").problems.is_empty(), "first {len} bytes");
        }
    }
    for extra in [&b"x"[..], &whole] {
        let repo = with(&storage, &key, &[&whole, extra].concat());
        read_all(&repo, &objects, "longer");
        assert!(extra == whole || !mdl_repo::fsck(&repo, true, &Silent).expect("fsck").problems.is_empty());
    }
}

#[test]
fn every_flipped_bit_of_a_pack() {
    let (storage, key, objects) = small();
    let whole = storage.get(&key).expect("get").expect("pack");
    for bit in 0..whole.len() * 8 {
        let mut bytes = whole.clone();
        bytes[bit / 8] ^= 1 << (bit % 8);
        let repo = with(&storage, &key, &bytes);
        let label = format!("bit {} of byte {}", bit % 8, bit / 8);
        // Reading everything eight times per byte would take minutes: each byte in full once, each bit by the check.
        if bit % 8 == (bit / 8) % 8 {
            read_all(&repo, &objects, &label);
        }
        assert!(!mdl_repo::fsck(&repo, true, &Silent).expect("fsck").problems.is_empty(), "quick: {label}");
        if bit % 64 == 0 {
            assert!(!mdl_repo::fsck(&repo, false, &Silent).expect("fsck").problems.is_empty(), "full: {label}");
        }
    }
    assert_eq!(read_all(&with(&storage, &key, &whole), &objects, "whole"), 0);
}

/// Writes a pack of one object whose record may lie.
fn forge(repo: &Repo, object: mdl_repo::pack::NewObject, payload: &[u8]) {
    let mut pack = PackApart::new(repo.storage()).expect("pack");
    pack.add(object, payload).expect("add");
    pack.finish(&WriteTransaction::begin(repo).expect("lock")).expect("finish");
}

#[test]
fn records_that_lie_are_found_out() {
    let (storage, _, objects) = small();
    let tensor = objects.iter().find(|o| o.1 == Kind::Tensor).expect("tensor");
    let (a, b) = (Id::from_content(Kind::Blob, b"a"), Id::from_content(Kind::Blob, b"b"));
    let new = |id, kind, depth, base, logical| mdl_repo::pack::NewObject {
        id,
        kind,
        depth,
        base,
        grandparent: None,
        logical,
    };
    let forgeries = [
        // Another kind, lengths beyond reason, bases that go round, a base that is no tensor, one that is not there.
        (vec![new(a, Kind::Tree, 0, None, 3)], b"\x00abc".to_vec()),
        (vec![new(a, Kind::Blob, 0, None, u64::MAX)], b"\x01abc".to_vec()),
        (vec![new(a, Kind::Tensor, 0, None, 1 << 60)], b"\x00".to_vec()),
        (vec![new(a, Kind::Tensor, 2, Some(b), 4), new(b, Kind::Tensor, 1, Some(a), 4)], vec![0; 64]),
        (vec![new(a, Kind::Tensor, 1, Some(a), 4)], vec![0; 64]),
        (vec![new(a, Kind::Tensor, 1, Some(objects[0].0), 4)], vec![0; 64]),
        (vec![new(a, Kind::Tensor, 9, Some(b), 4)], vec![0; 64]),
        (vec![new(a, Kind::Tensor, 255, Some(tensor.0), 4)], vec![0xff; 64]),
    ];
    for (i, (records, payload)) in forgeries.into_iter().enumerate() {
        let copy = duplicate(&storage);
        let repo = open(copy.clone());
        records.into_iter().for_each(|r| forge(&repo, r, &payload));
        let repo = open(copy);
        for id in [a, b] {
            for kind in Kind::ALL {
                content(&repo, &id, kind).expect_err("no such object");
            }
        }
        assert!(!mdl_repo::fsck(&repo, false, &Silent).expect("fsck").problems.is_empty(), "forgery {i}");
        assert_eq!(read_all(&repo, &objects, "beside a forgery"), 0);
        let _ = mdl_repo::compact(&repo, &Default::default(), &Silent);
        mdl_repo::gc(&repo, &NOW, &Silent).expect("gc");
        assert_clean(&repo);
        assert_eq!(read_all(&repo, &objects, "after gc"), 0);
    }
}

fn files_of(dir: &Path) -> Vec<std::path::PathBuf> {
    let mut out = Vec::new();
    for entry in std::fs::read_dir(dir).expect("dir") {
        let path = entry.expect("entry").path();
        if path.is_dir() { out.extend(files_of(&path)) } else { out.push(path) }
    }
    out.sort();
    out
}

#[test]
fn an_index_that_is_damaged_missing_or_held_only_costs_time() {
    let dir = TempDir::new().expect("temp dir");
    let versions = run(3, 1, 200);
    let ids: Vec<Id> = {
        let (repo, _) = Repo::init(dir.path(), false, "main", engine()).expect("init");
        versions.iter().map(|v| commit(&repo, "main", v)).collect()
    };
    let index = dir.path().join(".mdl/index");
    let check = |label: &str| {
        let repo = Repo::open(dir.path(), engine()).expect("open");
        for (id, v) in ids.iter().zip(&versions) {
            let found = checkout(&repo, id).expect(label);
            assert!(found == *v, "{label}");
        }
    };
    check("whole");
    let names: Vec<_> = files_of(&index).iter().map(|p| p.strip_prefix(&index).expect("below").to_owned()).collect();
    assert!(!names.is_empty(), "the test needs an index");
    let mut noise = Noise(7);
    for name in &names {
        let path = index.join(name);
        check("before");
        for round in 0..12 {
            let Ok(bytes) = std::fs::read(&path) else { continue };
            let mut damaged = bytes.clone();
            let label = format!("{} round {round}", name.display());
            match round {
                0 => damaged.clear(),
                1 => damaged.truncate(bytes.len() / 2),
                2 => damaged.iter_mut().for_each(|b| *b = 0xff),
                // The beginning is where what matters is: the rest of sled's files is mostly empty.
                _ => {
                    for _ in 0..4 {
                        let at = noise.next() as usize % bytes.len().clamp(1, 4096);
                        if let Some(b) = damaged.get_mut(at) {
                            *b ^= 1 << (noise.next() % 8)
                        }
                    }
                }
            }
            std::fs::write(&path, damaged).expect("damage");
            check(&label);
        }
        let _ = std::fs::remove_file(&path);
        check("a file is gone");
    }
    std::fs::remove_dir_all(&index).expect("remove");
    check("gone");
    std::fs::remove_dir_all(&index).expect("remove");
    std::fs::write(&index, b"a file where a directory should be").expect("write");
    check("a file in its place");
    std::fs::remove_file(&index).expect("remove");
    // Held by another handle.
    let holder = Repo::open(dir.path(), engine()).expect("open");
    assert!(holder.odb().has(&ids[0]).expect("has"));
    check("held");
    // Stale: packs come, and are replaced, while the holder has the index open.
    let other = Repo::open(dir.path(), engine()).expect("open");
    let new = commit(&other, "main", &run(4, 1, 200)[3]);
    mdl_repo::compact(&other, &Default::default(), &Silent).expect("compact");
    assert!(holder.odb().has(&new).expect("has"));
    assert_version(&holder, &ids[2], &versions[2]);
    drop((holder, other));
    check("stale");
}
