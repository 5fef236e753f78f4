//! Objects that are what their ids say and yet make no sense together: trees that stand for more files than there are
//! atoms, tensors that do not fit what refers to them. The check finds what a reader refuses.

use super::setup::*;
use mdl_codec::{Bases, Dtype};
use mdl_objects::{Commit, Entry, Id, Kind, Mode, Tree, tensor_id};
use mdl_repo::{
    ErrorKind, Repo, WriteTransaction,
    pack::{NewObject, PackWriter},
};

fn object(pack: &mut PackWriter, kind: Kind, bytes: &[u8]) -> Id {
    let id = Id::from_content(kind, bytes);
    let (depth, base, logical) = (0, None, bytes.len() as u64);
    let object = NewObject { id, kind, depth, base, grandparent: None, logical };
    pack.add(object, &[&[0], bytes].concat()).expect("add");
    id
}

fn entry(name: &str, mode: Mode, size: u64, id: Id) -> Entry {
    Entry { name: name.to_owned(), mode, executable: false, size, id }
}

#[test]
fn trees_within_trees_are_bounded() {
    let (_, repo) = fresh();
    let transaction = WriteTransaction::begin(&repo).expect("lock");
    let mut pack = transaction.pack([]).expect("pack");
    let blob = object(&mut pack, Kind::Blob, b"x");
    let leaf = Tree { entries: vec![entry("f", Mode::Blob, 1, blob)] };
    let mut id = object(&mut pack, Kind::Tree, &leaf.encode());
    for _ in 0..200 {
        let tree = Tree { entries: ["a", "b"].map(|n| entry(n, Mode::Tree, u64::MAX, id)).to_vec() };
        id = object(&mut pack, Kind::Tree, &tree.encode());
    }
    transaction.publish(pack).expect("published");
    assert_eq!(repo.odb().files(&id).expect_err("too many").kind(), ErrorKind::Corrupt);
}

/// The version on main with its tensors' dtype replaced by another of the same size.
fn redescribe(repo: &Repo, tip: &Id) -> Id {
    let commit = repo.odb().commit(tip).expect("commit");
    let file = "model.safetensors";
    let old = repo.odb().files(&commit.tree).expect("files")[file].clone();
    let mut manifest = repo.odb().manifest(&old.id).expect("manifest");
    manifest.tensors.iter_mut().for_each(|t| t.dtype = Dtype::I32);
    let transaction = WriteTransaction::begin(repo).expect("lock");
    let mut pack = transaction.pack([]).expect("pack");
    let id = object(&mut pack, Kind::Manifest, &manifest.encode());
    let tree = Tree { entries: vec![entry(file, Mode::Manifest, old.size, id)] };
    let tree = object(&mut pack, Kind::Tree, &tree.encode());
    let commit =
        Commit { tree, parents: vec![], report: None, resumed_from: None, quality: None, side: Vec::new(), ..commit };
    let id = object(&mut pack, Kind::Commit, &commit.encode());
    transaction.publish(pack).expect("published");
    id
}

#[test]
fn a_manifest_that_misdescribes_its_tensors_is_found() {
    let (_, repo) = fresh();
    let tip = commit(&repo, "main", &run(1, 1, 200)[0]);
    let odd = redescribe(&repo, &tip);
    assert_clean(&repo);
    mdl_repo::create_branch(&repo, "odd", &odd, false).expect("branch");
    assert_eq!(checkout(&repo, &odd).expect_err("refused").kind(), ErrorKind::Corrupt);
    let report = fsck(&repo);
    assert_eq!(report.problems.len(), 3, "{report:?}");
    assert!(report.problems.iter().all(|p| p.affected.iter().all(|a| a.commit == odd)));
}

#[test]
fn a_base_of_another_dtype_is_found() {
    let (_, repo) = fresh();
    let bytes: Vec<u8> = (0..64).map(|i: u8| i.wrapping_mul(97)).collect();
    let encoded = engine().encode(Dtype::U8, &bytes, Bases::NONE, None).expect("encode").bytes;
    let transaction = WriteTransaction::begin(&repo).expect("lock");
    let mut pack = transaction.pack([]).expect("pack");
    let mut base: Option<Id> = None;
    // The upper one names the lower as its base and needs nothing of it.
    for (depth, dtype) in [(0, Dtype::U8), (1, Dtype::I8)] {
        let id = tensor_id(dtype, &[64], &bytes);
        let mut header = vec![1, u8::from(base.is_some()), dtype.code(), 1, 64];
        header.extend(base.iter().flat_map(|b| *b.as_bytes()));
        header.extend((encoded.len() as u32).to_le_bytes());
        let len = (header.len() as u32).to_le_bytes();
        let (kind, logical) = (Kind::Tensor, 64);
        let object = NewObject { id, kind, depth, base, grandparent: None, logical };
        pack.add(object, &[encoded.as_slice(), &header, &len].concat()).expect("add");
        base = Some(id);
    }
    transaction.publish(pack).expect("published");
    let upper = base.expect("written");
    assert_eq!(repo.odb().tensor(&upper).expect_err("refused").kind(), ErrorKind::Corrupt);
    let report = fsck(&repo);
    assert_eq!(report.problems.len(), 1, "{report:?}");
    assert!(report.problems[0].reason.contains("dtype"), "{report:?}");
}

#[test]
fn a_segment_that_is_not_there_is_an_error() {
    let (_, repo) = fresh();
    let tip = commit(&repo, "main", &run(1, 1, 200)[0]);
    let files = repo.odb().files(&repo.odb().commit(&tip).expect("commit").tree).expect("files");
    let manifest = repo.odb().manifest(&files["model.safetensors"].id).expect("manifest");
    let reader = repo.odb().tensor(&manifest.tensors[0].id).expect("tensor");
    reader.segment(0).expect("segment");
    reader.scheme(0).expect("scheme");
    for index in [1, usize::MAX] {
        reader.segment(index).expect_err("no such segment");
        reader.scheme(index).expect_err("no such segment");
    }
}
