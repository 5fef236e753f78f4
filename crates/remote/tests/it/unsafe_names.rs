//! Names that must not get onto a disk, in what is pushed and what is fetched.

use crate::support::{add_object, fresh};
use mdl_objects::{Entry, Id, Kind, Mode, Tree};
use mdl_remote::sync::{Arrived, receive_pack};
use mdl_repo::{RepoError, Silent, WriteTransaction, storage::Storage};

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
