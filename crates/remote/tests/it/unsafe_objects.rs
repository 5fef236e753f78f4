//! What must not get into a repository by a push or a fetch: names that lead elsewhere, objects of another kind.

use crate::support::{add_object, fresh};
use mdl_objects::{Commit, Entry, Id, Kind, Mode, Signature, Summary, Tree};
use mdl_remote::sync::{Arrived, RefMove, receive_pack, receive_refs};
use mdl_repo::{RepoError, Silent, WriteTransaction, storage::Storage};
use std::collections::BTreeMap;

fn entry(name: &str, mode: Mode, size: u64, id: Id) -> Entry {
    Entry { name: name.to_owned(), mode, executable: false, size, id }
}

#[test]
fn what_others_push_holds_no_repository_and_what_is_fetched_may() {
    let dir = tempfile::TempDir::new().expect("dir");
    for (name, sound) in [(".git", false), (".GIT.", false), ("mdl~1", false), (".gitignore", true)] {
        let (storage, repo) = fresh();
        let transaction = WriteTransaction::begin(&repo).expect("lock");
        let mut pack = transaction.pack([]).expect("pack");
        let blob = add_object(&mut pack, Kind::Blob, b"x");
        let tree = Tree { entries: vec![entry(name, Mode::Blob, 1, blob)] };
        let tree = add_object(&mut pack, Kind::Tree, &tree.encode());
        let id = transaction.publish(pack).expect("published").expect("a pack");
        let arrived = || {
            let path = dir.path().join("arrived");
            std::fs::write(&path, storage.get(&id.key()).expect("get").expect("the pack")).expect("write");
            [Arrived { id, path }]
        };
        let (_, served) = fresh();
        match receive_pack(&served, &arrived(), Some(u64::MAX), &Silent) {
            Ok(_) => assert!(sound, "{name}"),
            Err(RepoError::UnsafePath { path, .. }) => assert!(!sound && path == name, "{path}"),
            Err(e) => panic!("{name}: {e}"),
        }
        assert_eq!(served.odb().has(&tree).expect("has"), sound, "{name}");
        let (_, fetched) = fresh();
        receive_pack(&fetched, &arrived(), None, &Silent).expect("old histories can be had");
        assert!(
            fetched.odb().has(&tree).expect("has") && fetched.odb().files(&tree).expect("files").contains_key(name)
        );
    }
}

#[test]
fn a_commit_whose_tree_is_a_blob_gets_no_ref() {
    let (_, repo) = fresh();
    let transaction = WriteTransaction::begin(&repo).expect("lock");
    let mut pack = transaction.pack([]).expect("pack");
    let blob = add_object(&mut pack, Kind::Blob, b"no tree");
    let author = Signature { name: "a".to_owned(), email: String::new(), time_ms: 0, utc_offset_min: 0 };
    // The report is looked at first, and is a blob rightly.
    let commit = Commit {
        tree: blob,
        parents: Vec::new(),
        author,
        message: String::new(),
        step: None,
        epoch: None,
        metrics: BTreeMap::new(),
        meta: BTreeMap::new(),
        summary: Summary::default(),
        report: Some(blob),
        resumed_from: None,
        quality: None,
        side: Vec::new(),
        resume: None,
        approximation: None,
        provenance: None,
        signature: None,
        unknown: Vec::new(),
    };
    let id = add_object(&mut pack, Kind::Commit, &commit.encode());
    transaction.publish(pack).expect("published");
    drop(transaction);
    let moves = [RefMove { name: "refs/heads/main".to_owned(), expected: None, new: Some(id), force: false }];
    let refused = receive_refs(&repo, &moves, false, None, "push", &Silent);
    assert!(refused.is_err(), "{refused:?}");
    assert_eq!(repo.refs().list("refs/heads/").expect("list"), []);
}
