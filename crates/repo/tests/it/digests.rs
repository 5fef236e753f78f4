//! Digests that other tools know files by: remembered in the index, and never needed.

use crate::support::{Place, place};
use mdl_objects::{Id, Kind};
use mdl_repo::Digests;

fn some(n: u8) -> Digests {
    Digests { sha256: [n; 32], git: [n ^ 0xff; 20], len: u64::from(n) << 33 }
}

fn file(p: &Place, text: &str) -> Id {
    p.write("f", text.as_bytes());
    let id = p.commit(text).id;
    mdl_repo::files(&p.repo, &id).expect("files")["f"].id
}

#[test]
fn they_are_remembered_both_ways() {
    let mut p = place();
    let (a, b) = (file(&p, "a"), file(&p, "b"));
    assert_eq!(p.repo.odb().digest(&a), None);
    p.repo.odb().put_digest(&a, &some(1));
    p.repo.odb().put_digest(&b, &some(2));
    for _ in 0..2 {
        let odb = p.repo.odb();
        assert_eq!((odb.digest(&a), odb.digest(&b)), (Some(some(1)), Some(some(2))));
        assert_eq!(odb.by_sha256(&[1; 32]), Some((a, 1 << 33)));
        assert_eq!(odb.by_sha256(&[2; 32]), Some((b, 2 << 33)));
        assert_eq!(odb.by_sha256(&[3; 32]), None);
        p.reopen();
    }
    // A content has one digest: a new word replaces the old one, and what led to it leads nowhere.
    p.repo.odb().put_digest(&a, &some(5));
    assert_eq!(p.repo.odb().by_sha256(&[1; 32]), None);
    assert_eq!(p.repo.odb().by_sha256(&[5; 32]), Some((a, 5 << 33)));
    // What the repository does not have is not found, whatever is remembered of it.
    let gone = Id::from_content(Kind::Blob, b"gone");
    p.repo.odb().put_digest(&gone, &some(4));
    assert_eq!(p.repo.odb().by_sha256(&[4; 32]), None);
}

#[test]
fn without_the_index_there_are_none() {
    let mut p = place();
    let a = file(&p, "a");
    p.repo.odb().put_digest(&a, &some(1));
    p.reopen();
    let other = mdl_repo::Repo::open(p.path(), crate::support::engine()).expect("open");
    assert_eq!(other.odb().digest(&a), Some(some(1)), "takes the index");
    assert_eq!(p.repo.odb().digest(&a), None, "held by another");
    p.repo.odb().put_digest(&a, &some(2));
    drop(other);
    p.reopen();
    assert_eq!(p.repo.odb().digest(&a), Some(some(1)));
    p.repo.odb().release_index();
    std::fs::remove_dir_all(p.path().join(".mdl/index")).expect("there was an index");
    p.reopen();
    assert_eq!((p.repo.odb().digest(&a), p.repo.odb().by_sha256(&[1; 32])), (None, None));
    let alone = mdl_repo::Repo::open(p.path(), crate::support::engine()).expect("open").without_index();
    alone.odb().put_digest(&a, &some(1));
    assert_eq!(alone.odb().digest(&a), None);
}

#[test]
fn an_older_index_lacks_them_and_a_damaged_word_is_none() {
    let mut p = place();
    let a = file(&p, "a");
    p.repo.odb().put_digest(&a, &some(1));
    p.repo.odb().put_digest(&Id::from_content(Kind::Blob, b"x"), &some(7));
    p.repo.odb().release_index();
    let at = p.path().join(".mdl/index");
    let stored = |change: &dyn Fn(&sled::Db)| {
        let db = sled::open(&at).expect("index");
        change(&db);
        db.flush().expect("flush");
    };
    let key = [&b"i"[..], a.as_bytes()].concat();
    let value = || {
        let db = sled::open(&at).expect("index");
        let tree = db.open_tree("digests").expect("tree");
        tree.get(&key).expect("get").expect("remembered").to_vec()
    };
    let right = value();
    for at in 0..right.len() {
        let mut wrong = right.clone();
        wrong[at] ^= 1 << (at % 8);
        stored(&|db| drop(db.open_tree("digests").expect("tree").insert(&key, wrong.as_slice())));
        p.reopen();
        assert_eq!(p.repo.odb().digest(&a), None, "byte {at}");
        assert_eq!(p.repo.odb().by_sha256(&[1; 32]), None, "byte {at}");
        p.repo.odb().release_index();
    }
    // Another content's word in its place, a reverse that leads elsewhere.
    let other = [&b"i"[..], Id::from_content(Kind::Blob, b"x").as_bytes()].concat();
    stored(&|db| {
        let tree = db.open_tree("digests").expect("tree");
        let foreign = tree.get(&other).expect("get").expect("remembered");
        tree.insert(&key, foreign).expect("insert");
    });
    p.reopen();
    assert_eq!(p.repo.odb().digest(&a), None);
    p.repo.odb().release_index();
    stored(&|db| {
        let tree = db.open_tree("digests").expect("tree");
        tree.insert(&key, right.as_slice()).expect("insert");
        tree.insert([&b"s"[..], &[7; 32]].concat(), a.as_bytes()).expect("insert");
    });
    p.reopen();
    assert_eq!(p.repo.odb().digest(&a), Some(some(1)));
    assert_eq!(p.repo.odb().by_sha256(&[7; 32]), None);
    p.repo.odb().release_index();
    stored(&|db| assert!(db.drop_tree("digests").expect("drop")));
    p.reopen();
    assert_eq!(p.repo.odb().digest(&a), None);
    p.repo.odb().put_digest(&a, &some(3));
    assert_eq!(p.repo.odb().digest(&a), Some(some(3)));
}
