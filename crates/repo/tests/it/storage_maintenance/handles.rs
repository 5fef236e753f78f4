//! Several handles on one repository, each with its caches: none takes what it has not seen for absent, none overrides
//! another's move.

use super::setup::*;
use mdl_objects::Id;
use mdl_repo::{
    CommitRequest, ErrorKind, Head, RefName, Repo, RepoError, Result, Silent, WriteTransaction,
    storage::{MemoryStorage, Storage},
};
use std::{
    sync::{
        Arc, Mutex,
        atomic::{AtomicBool, AtomicU64, Ordering},
    },
    thread,
    time::Duration,
};
use tempfile::TempDir;

fn labelled(step: u64, source: &TempDir) -> CommitRequest {
    CommitRequest {
        source: Some(source.path().to_owned()),
        message: format!("step {step}"),
        step: Some(step),
        ..CommitRequest::default()
    }
}

#[test]
fn an_open_index_keeps_up_with_other_writers() {
    let dir = TempDir::new().expect("temp dir");
    let versions = run(4, 1, 200);
    let (a, _) = Repo::init(dir.path(), false, "main", engine()).expect("init");
    let first = commit(&a, "main", &versions[0]);
    assert!(a.odb().has(&first).expect("has"), "opens the index");
    let b = Repo::open(dir.path(), engine()).expect("open");
    let second = commit(&b, "main", &versions[1]);
    // As many packs as before, but others.
    let third = commit(&a, "main", &versions[2]);
    assert_eq!(a.odb().commit(&third).expect("commit").parents, [second]);
    let fourth = commit(&b, "main", &versions[3]);
    mdl_repo::compact(&b, &Default::default(), &Silent).expect("compact");
    for (id, version) in [first, second, third, fourth].iter().zip(&versions) {
        assert_version(&a, id, version);
    }
    mdl_repo::create_branch(&a, "held", &fourth, false).expect("found");
}

#[test]
fn an_index_that_lacks_an_object_or_lies_about_its_depth_is_not_believed() {
    let versions = run(3, 1, 3000);
    for damage in ["lacks", "deeper"] {
        let dir = TempDir::new().expect("temp dir");
        let ids: Vec<Id> = {
            let (repo, _) = Repo::init(dir.path(), false, "main", engine()).expect("init");
            versions.iter().map(|v| commit(&repo, "main", v)).collect()
        };
        {
            let db = sled::open(dir.path().join(".mdl/index")).expect("index");
            let objects = db.open_tree("objects").expect("tree");
            for entry in objects.iter().collect::<Vec<_>>() {
                let (key, mut hint) = entry.expect("entry");
                if damage == "lacks" {
                    objects.remove(key).expect("remove");
                } else {
                    hint[32] = 200;
                    objects.insert(key, hint).expect("insert");
                }
            }
            db.open_tree("commits").expect("tree").clear().expect("clear");
            db.flush().expect("flush");
        }
        let repo = Repo::open(dir.path(), engine()).expect("open");
        for (id, version) in ids.iter().zip(&versions) {
            assert_version(&repo, id, version);
        }
    }
}

#[test]
fn what_cannot_be_read_is_not_called_absent() {
    let (storage, repo) = fresh();
    let id = commit(&repo, "main", &run(1, 1, 200)[0]);
    let broken = Arc::new(AtomicBool::new(true));
    let fails = broken.clone();
    let before = move |key: &str| -> Result<()> {
        if key.starts_with("packs/") && fails.load(Ordering::SeqCst) {
            return Err(RepoError::Io {
                context: "cannot read".to_owned(),
                source: std::io::Error::other("input/output error"),
            });
        }
        Ok(())
    };
    let inner = storage.clone();
    let before = Arc::new(before);
    let failing = open(Watched { inner, before, capacity: None });
    for _ in 0..2 {
        assert_eq!(failing.odb().commit(&id).expect_err("unreadable").kind(), ErrorKind::Io);
        assert_eq!(
            mdl_repo::create_tag(&failing, "t", &id, None, false).expect_err("unreadable").kind(),
            ErrorKind::Io
        );
    }
    broken.store(false, Ordering::SeqCst);
    failing.odb().commit(&id).expect("the medium has recovered");
    let key = packs(&storage).remove(0);
    let mut bytes = storage.get(&key).expect("get").expect("pack");
    let at = bytes.len() - 70;
    bytes[at] ^= 1;
    storage.put(&key, &bytes).expect("damage");
    let damaged = open(storage.clone());
    for _ in 0..2 {
        assert_eq!(damaged.odb().commit(&id).expect_err("damaged").kind(), ErrorKind::Corrupt);
    }
    let absent = Id::from_content(mdl_objects::Kind::Commit, b"none");
    storage.delete(&key).expect("lose");
    assert_eq!(open(storage).odb().commit(&absent).expect_err("absent").kind(), ErrorKind::NotFound);
}

/// A repository with HEAD detached at its only commit, and a directory to commit from.
fn detached() -> (MemoryStorage, Id, TempDir) {
    let (storage, repo) = fresh();
    let id = commit(&repo, "main", &run(1, 1, 200)[0]);
    let who = repo.config().signature();
    let transaction = WriteTransaction::begin(&repo).expect("lock");
    transaction.set_head(&Head::Detached(id), &who, "detach").expect("detach");
    let source = TempDir::new().expect("temp dir");
    write(&run(1, 2, 200)[0], source.path());
    (storage, id, source)
}

#[test]
fn of_two_commits_on_a_detached_head_one_is_told() {
    let (storage, id, source) = detached();
    let (one, two) = (open(storage.clone()), open(storage));
    let won = Mutex::new(None);
    let meanwhile = AtEnd(|| {
        let done = mdl_repo::commit(&two, &labelled(2, &source), &Silent).expect("the first to move");
        *won.lock().expect("lock") = Some(done.id);
    });
    let lost = mdl_repo::commit(&one, &labelled(1, &source), &meanwhile).expect_err("HEAD moved");
    assert_eq!(lost.kind(), ErrorKind::Conflict);
    let won = won.into_inner().expect("lock").expect("committed");
    assert_eq!(one.refs().head().expect("head"), Head::Detached(won));
    assert_eq!(one.odb().commit(&won).expect("commit").parents, [id]);
}

#[test]
fn a_detached_commit_does_not_pull_head_back() {
    let (storage, id, source) = detached();
    let (one, two) = (open(storage.clone()), open(storage));
    let main = Head::Branch("main".to_owned());
    let meanwhile = AtEnd(|| {
        let who = two.config().signature();
        let transaction = WriteTransaction::begin(&two).expect("lock");
        transaction.set_head(&main, &who, "switch").expect("switch");
    });
    let lost = mdl_repo::commit(&one, &labelled(1, &source), &meanwhile).expect_err("HEAD moved");
    assert_eq!(lost.kind(), ErrorKind::Conflict);
    assert_eq!(one.refs().head().expect("head"), main);
    assert_eq!(one.refs().head_commit().expect("head"), Some(id));
    let reset = mdl_repo::reset(&one, &id, false, &Silent);
    reset.expect("on a branch again");
}

#[test]
fn a_reset_does_not_step_over_a_commit_made_during_its_checkout() {
    let dir = TempDir::new().expect("temp dir");
    let versions = run(3, 1, 200);
    let (repo, _) = Repo::init(dir.path(), false, "main", engine()).expect("init");
    let first = commit(&repo, "main", &versions[0]);
    commit(&repo, "main", &versions[1]);
    let other = Repo::open(dir.path(), engine()).expect("open");
    let made = Mutex::new(None);
    let meanwhile = AtEnd(|| {
        *made.lock().expect("lock") = Some(commit(&other, "main", &versions[2]));
    });
    let lost = mdl_repo::reset(&repo, &first, true, &meanwhile).expect_err("main moved");
    assert_eq!(lost.kind(), ErrorKind::Conflict);
    let made = made.into_inner().expect("lock");
    assert_eq!(repo.refs().get(&RefName::branch("main").expect("a name")).expect("ref"), made);
}

#[test]
fn a_reflog_read_beside_a_commit_is_not_empty() {
    let (storage, repo) = fresh();
    let versions = run(2, 1, 200);
    let first = commit(&repo, "main", &versions[0]);
    let reads = AtomicU64::new(0);
    let before = Arc::new(move |key: &str| -> Result<()> {
        // Between the ref and its log, in whichever order they are read.
        let watched = key.starts_with("logs/") || key == "refs/heads/main";
        if watched && reads.fetch_add(1, Ordering::SeqCst) == 1 {
            commit(&repo, "main", &versions[1]);
        }
        Ok(())
    });
    let log = open(Watched { inner: storage, before, capacity: None })
        .refs()
        .reflog(&RefName::branch("main").expect("a name"))
        .expect("log");
    assert!(log.iter().any(|e| e.new == Some(first)), "{log:?}");
}

#[test]
fn a_deletion_waits_for_a_collector() {
    let (storage, repo) = fresh();
    let id = commit(&repo, "main", &run(1, 1, 200)[0]);
    mdl_repo::create_branch(&repo, "b", &id, false).expect("branch");
    mdl_repo::create_tag(&repo, "t", &id, None, false).expect("tag");
    mdl_repo::create_branch(&repo, "old", &id, false).expect("branch");
    let operations: [&(dyn Fn() + Sync); 3] = [
        &|| assert_eq!(mdl_repo::delete_branch(&repo, "b", true, &Silent).expect("delete"), id),
        &|| assert_eq!(mdl_repo::delete_tag(&repo, "t").expect("delete"), id),
        &|| mdl_repo::rename_branch(&repo, "old", "new", &Silent).expect("rename"),
    ];
    for operation in operations {
        let alone = storage.lock_exclusive().expect("lock");
        thread::scope(|scope| {
            let waiting = scope.spawn(operation);
            thread::sleep(Duration::from_millis(30));
            assert!(!waiting.is_finished());
            drop(alone);
        });
    }
}

#[test]
fn an_index_that_notes_other_packs_than_it_has_is_looked_through() {
    let dir = TempDir::new().expect("temp dir");
    let versions = run(4, 9, 200);
    let path = dir.path().join(".mdl/index");
    let ids: Vec<Id> = {
        let (repo, _) = Repo::init(dir.path(), false, "main", engine()).expect("init");
        versions[..3].iter().map(|v| commit(&repo, "main", v)).collect()
    };
    let note = |change: &dyn Fn(&sled::Db)| {
        let db = sled::open(&path).expect("index");
        change(&db);
        db.flush().expect("flush");
    };
    let noted = || {
        let db = sled::open(&path).expect("index");
        let at = db.get("packs").expect("get").map(|v| v.to_vec());
        (at, db.open_tree("packs").expect("tree").len())
    };
    let check = |label: &str| {
        let repo = Repo::open(dir.path(), engine()).expect("open");
        ids.iter().zip(&versions).for_each(|(id, v)| assert!(checkout(&repo, id).expect(label) == *v, "{label}"));
    };
    let (right, packs) = noted();
    let right = right.expect("noted by the commits");
    assert_eq!((packs, right[0]), (3, 3));
    // As an index of before has it; as a kill, or a bit that flipped, leaves it.
    type Change<'a> = &'a dyn Fn(&sled::Db);
    let changes: [(&str, Change<'_>); 4] = [
        ("not noted", &|db| drop(db.remove("packs").expect("remove"))),
        ("too short", &|db| drop(db.insert("packs", b"x").expect("insert"))),
        ("another set", &|db| drop(db.insert("packs", vec![1; 40]).expect("insert"))),
        ("packs that are not there", &|db| {
            db.open_tree("packs").expect("tree").insert([7; 32], &[]).expect("insert");
            db.remove("packs").expect("remove");
        }),
    ];
    for (label, change) in changes {
        note(change);
        check(label);
        assert_eq!(noted(), (Some(right.clone()), 3), "{label}");
    }
    // It says that it has them all and has none: what it lacks, the packs have.
    note(&|db| {
        db.open_tree("objects").expect("tree").clear().expect("clear");
        db.open_tree("packs").expect("tree").clear().expect("clear");
    });
    check("nothing behind the note");
    // A pack more, and packs that go.
    let repo = Repo::open(dir.path(), engine()).expect("open");
    let last = commit(&repo, "main", &versions[3]);
    mdl_repo::compact(&repo, &Default::default(), &Silent).expect("compact");
    drop(repo);
    check("after a compaction");
    let repo = Repo::open(dir.path(), engine()).expect("open");
    assert_version(&repo, &last, &versions[3]);
    drop(repo);
    let (set, n) = noted();
    assert_eq!((set.map(|s| s[0]), n), (Some(1), 1));
}
