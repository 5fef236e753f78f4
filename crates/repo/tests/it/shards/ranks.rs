//! Ranks and finishers: many at once, late, again, in disagreement.

use super::{
    NOW, assert_holds, assert_sound, commit, content, join, joining, name, put, put_all, sessions, shard_of, tip,
};
use crate::support::{engine, fresh, memory, open};
use mdl_objects::Id;
use mdl_repo::{
    CommitRequest, ErrorKind, GcOptions, JoinRequest, Progress, RefName, Repo, ShardRequest, Silent,
    storage::{LocalStorage, Prefix, Storage},
};
use std::thread;
use tempfile::TempDir;

fn eight_at_once(open: &(dyn Fn() -> Repo + Sync)) {
    let before = commit(&open(), "before");
    for step in 0..2 {
        let session = format!("run/step-{step}");
        thread::scope(|s| {
            for rank in 0..8 {
                let session = &session;
                s.spawn(move || put(&open(), session, rank, step).expect("put"));
            }
        });
        assert_eq!(mdl_repo::sessions(&open()).expect("sessions")[step as usize].ranks, (0..8).collect::<Vec<_>>());
        let done = join(&open(), &session, 8).expect("join");
        let repo = open();
        assert_eq!(tip(&repo), Some(done.id));
        assert_eq!((done.summary.files, done.summary.tensors), (9, 16));
        // What ranks put at the same moment is in the packs of each of them.
        assert_eq!(done.summary.new_tensors, if step == 0 { done.report.tensors.len() as u64 } else { 8 });
        assert_holds(&repo, &done.id, 8, step);
        if step == 0 {
            assert_eq!(done.parent, Some(before));
        } else {
            assert!(done.report.tensors.iter().all(|t| t.depth == 1), "{:?}", done.report);
        }
    }
    assert_sound(&open(), "eight ranks");
}

#[test]
fn eight_ranks_at_once_in_memory() {
    let (storage, _) = fresh();
    eight_at_once(&|| open(storage.clone()));
}

#[test]
fn eight_ranks_at_once_on_disk() {
    let dir = TempDir::new().expect("temp dir");
    Repo::init(dir.path(), false, "main", engine()).expect("init");
    eight_at_once(&|| Repo::open(dir.path(), engine()).expect("open"));
    let repo = Repo::open(dir.path(), engine()).expect("open");
    mdl_repo::gc(&repo, &NOW, &Silent).expect("gc");
    // Nothing of a session is left behind, not even its directory.
    assert_eq!(LocalStorage::new(dir.path().join(".mdl")).list(&Prefix::fixed("shards/")).expect("list"), []);
    assert_eq!(std::fs::read_dir(dir.path().join(".mdl/shards")).expect("dir").count(), 0);
    assert_sound(&repo, "swept");
}

#[test]
fn four_finishers_at_once_make_one_version() {
    for round in 0..20 {
        let (storage, repo) = fresh();
        let before = commit(&repo, "before");
        put_all(&repo, 3, 0);
        let ids: Vec<Id> = thread::scope(|s| {
            let one = || s.spawn(|| join(&open(storage.clone()), "s", 3).expect("join").id);
            let all: Vec<_> = (0..4).map(|_| one()).collect();
            all.into_iter().map(|t| t.join().expect("thread")).collect()
        });
        assert!(ids.iter().all(|id| *id == ids[0]), "round {round}: {ids:?}");
        assert_eq!(tip(&repo), Some(ids[0]));
        assert_eq!(repo.odb().commit(&ids[0]).expect("commit").parents, [before]);
        assert_holds(&repo, &ids[0], 3, 0);
        // A reply that was lost is asked for again, and again when the branch has moved on.
        let next = commit(&repo, "after");
        assert_eq!(join(&repo, "s", 3).expect("again").id, ids[0]);
        assert_eq!(tip(&repo), Some(next));
        assert_sound(&repo, "finished four times");
    }
}

#[test]
fn finishers_and_ranks_that_put_again_meet() {
    for round in 0..10 {
        let (storage, repo) = fresh();
        put_all(&repo, 2, 0);
        let (again, done) = thread::scope(|s| {
            let again = s.spawn(|| put(&open(storage.clone()), "s", 1, 3));
            let done = s.spawn(|| join(&open(storage.clone()), "s", 2).expect("join").id);
            (again.join().expect("thread"), done.join().expect("thread"))
        });
        let files = repo.odb().files(&repo.odb().commit(&done).expect("commit").tree).expect("files");
        let read = repo.odb().read_range(&files[&name(1)], 0, u64::MAX).expect("read");
        // Told "done", it is in the version; told "too late", the version may have either.
        match again {
            Ok(_) => assert!(read == content(1, 3), "round {round}"),
            Err(e) => {
                assert!(e.to_string().contains("too late"), "{e}");
                assert!(read == content(1, 0) || read == content(1, 3), "round {round}");
            }
        }
        assert_sound(&repo, "put again");
    }
}

/// Does something once, when work begins.
struct AtBegin<F>(std::sync::Once, F);

impl<F: Fn() + Sync> Progress for AtBegin<F> {
    fn begin(&self, _what: &str, _total: u64) {
        self.0.call_once(&self.1);
    }
    fn advance(&self, _n: u64) {}
    fn end(&self) {}
}

#[test]
fn what_a_rank_puts_while_a_finisher_writes_is_in_the_version() {
    let (storage, repo) = fresh();
    put_all(&repo, 2, 0);
    // The finisher has read the records, and decided nothing yet.
    let meanwhile = AtBegin(std::sync::Once::new(), || {
        (0..2).for_each(|rank| drop(put(&open(storage.clone()), "s", rank, 2).expect("put")));
    });
    let done = mdl_repo::join_shards(&repo, &joining("s", 2), &meanwhile).expect("join");
    assert_holds(&repo, &done.id, 2, 2);
    assert_eq!(repo.refs().reflog(&RefName::branch("main").expect("a name")).expect("log").len(), 1);
}

#[test]
fn missing_ranks_are_named_and_nothing_is_committed() {
    let (_, repo) = fresh();
    assert_eq!(join(&repo, "s", 3).expect_err("no session").kind(), ErrorKind::NotFound);
    assert_eq!(sessions(&repo), 0);
    put(&repo, "s", 1, 0).expect("put");
    let e = join(&repo, "s", 4).expect_err("three are missing");
    assert!(e.kind() == ErrorKind::User && e.to_string().contains("ranks 0, 2, 3 of 4"), "{e}");
    assert_eq!(tip(&repo), None);
    (0..4).filter(|r| *r != 1).for_each(|rank| drop(put(&repo, "s", rank, 0).expect("put")));
    let e = join(&repo, "s", 3).expect_err("rank 3 would be left out");
    assert!(e.to_string().contains("rank 3 has put"), "{e}");
    assert_holds(&repo, &join(&repo, "s", 4).expect("join").id, 4, 0);
}

#[test]
fn a_rank_that_starts_again_replaces_what_it_put() {
    let (_, repo) = fresh();
    put(&repo, "s", 0, 0).expect("put");
    put(&repo, "s", 1, 1).expect("put");
    // A finisher looked meanwhile.
    join(&repo, "s", 3).expect_err("rank 2 is missing");
    put(&repo, "s", 0, 1).expect("put again");
    put(&repo, "s", 2, 1).expect("put");
    assert_holds(&repo, &join(&repo, "s", 3).expect("join").id, 3, 1);
}

#[test]
fn a_late_rank_is_refused_and_leaves_only_garbage() {
    let (_, repo) = fresh();
    put_all(&repo, 2, 0);
    let done = join(&repo, "s", 2).expect("join");
    for rank in [1, 2] {
        let e = put(&repo, "s", rank, 4).expect_err("late");
        assert!(e.kind() == ErrorKind::User && e.to_string().contains("too late"), "{e}");
        assert!(e.to_string().contains(&done.id.short()), "{e}");
    }
    assert_eq!(join(&repo, "s", 2).expect("again").id, done.id);
    let listed = mdl_repo::sessions(&repo).expect("sessions");
    assert_eq!((listed[0].ranks.as_slice(), listed[0].commit), ([0, 1].as_slice(), Some(done.id)));
    mdl_repo::gc(&repo, &GcOptions::default(), &Silent).expect("gc");
    assert_eq!(sessions(&repo), 1, "within its time of grace a reply can still be asked for");
    mdl_repo::gc(&repo, &NOW, &Silent).expect("gc");
    assert_eq!(sessions(&repo), 0);
    assert_holds(&repo, &done.id, 2, 0);
    assert_sound(&repo, "late");
}

#[test]
fn ranks_that_disagree_about_a_file_are_refused() {
    let (_, repo) = fresh();
    put(&repo, "s", 0, 0).expect("put");
    let mut other = shard_of("s", 1, 0);
    other.files[1] = memory("config.json", b"{\"other\": 1}");
    mdl_repo::put_shard(&repo, &other, &Silent).expect("put");
    let e = join(&repo, "s", 2).expect_err("two files of one name");
    assert!(e.to_string().contains("ranks 0 and 1") && e.to_string().contains("config.json"), "{e}");
    assert_eq!(tip(&repo), None);
    let mut below = shard_of("s", 1, 0);
    below.files[1] = memory("config.json/below", b"x");
    mdl_repo::put_shard(&repo, &below, &Silent).expect("put");
    let e = join(&repo, "s", 2).expect_err("a file and a directory");
    assert!(e.to_string().contains("config.json/below"), "{e}");
    put(&repo, "s", 1, 0).expect("put");
    join(&repo, "s", 2).expect("join");
}

#[test]
fn names_of_sessions_are_checked_and_kept_apart() {
    let (_, repo) = fresh();
    for bad in ["", "..", "a b", "a%2Fb", "-x", "a//b"] {
        let e = put(&repo, bad, 0, 0).expect_err(bad);
        assert!(e.to_string().contains("session"), "{e}");
    }
    for session in ["a", "a/0", "a/0/1"] {
        put(&repo, session, 0, 0).expect("put");
    }
    let names: Vec<String> = mdl_repo::sessions(&repo).expect("sessions").into_iter().map(|s| s.name).collect();
    assert_eq!(names, ["a", "a/0", "a/0/1"]);
    let nothing = ShardRequest { session: "a".to_owned(), ..ShardRequest::default() };
    assert_eq!(mdl_repo::put_shard(&repo, &nothing, &Silent).expect_err("no files").kind(), ErrorKind::User);
}

#[test]
fn what_was_collected_is_missed_before_anything_is_committed() {
    let (_, repo) = fresh();
    let before = commit(&repo, "before");
    put_all(&repo, 2, 0);
    mdl_repo::gc(&repo, &NOW, &Silent).expect("gc");
    assert_eq!(join(&repo, "s", 2).expect_err("swept").kind(), ErrorKind::NotFound);
    // The packs alone: the session goes on, longer than its first shards are kept.
    put_all(&repo, 2, 0);
    for key in repo.storage().keys(&Prefix::fixed("packs/")).expect("packs") {
        repo.storage().delete(&key).expect("delete");
    }
    let e = join(&repo, "s", 2).expect_err("gone");
    assert!(e.kind() == ErrorKind::NotFound && e.to_string().contains("of rank 0"), "{e}");
    assert_eq!(tip(&repo), Some(before));
}

#[test]
fn a_branch_that_moved_meanwhile_is_followed_by_the_next_try() {
    let (_, repo) = fresh();
    let first = commit(&repo, "first");
    put_all(&repo, 2, 0);
    let second = commit(&repo, "second");
    let expecting = |expects| JoinRequest {
        session: "s".to_owned(),
        ranks: 2,
        commit: CommitRequest {
            message: "joined".to_owned(),
            expects: Some(Some(expects)),
            ..CommitRequest::default()
        },
    };
    let e = mdl_repo::join_shards(&repo, &expecting(first), &Silent).expect_err("moved");
    assert_eq!((e.kind(), tip(&repo)), (ErrorKind::Conflict, Some(second)));
    let done = mdl_repo::join_shards(&repo, &expecting(second), &Silent).expect("join");
    assert_eq!((done.parent, tip(&repo)), (Some(second), Some(done.id)));
}

#[test]
fn a_branch_that_cannot_be_made_does_not_end_the_session() {
    let (_, repo) = fresh();
    put_all(&repo, 2, 0);
    commit(&repo, "main");
    let onto = |branch: &str| JoinRequest {
        session: "s".to_owned(),
        ranks: 2,
        commit: CommitRequest {
            message: "joined".to_owned(),
            branch: Some(branch.to_owned()),
            ..CommitRequest::default()
        },
    };
    let e = mdl_repo::join_shards(&repo, &onto("main/below"), &Silent).expect_err("main is in the way");
    assert_eq!(e.kind(), ErrorKind::User, "{e}");
    assert_eq!(mdl_repo::join_shards(&repo, &onto("side"), &Silent).expect("join").branch.as_deref(), Some("side"));
    assert_sound(&repo, "another branch");
}

#[test]
fn a_version_that_was_reset_away_is_not_brought_back() {
    let (_, repo) = fresh();
    let before = commit(&repo, "before");
    put_all(&repo, 2, 0);
    let done = join(&repo, "s", 2).expect("join").id;
    mdl_repo::move_ref(&repo, "refs/heads/main", Some(done), Some(before), None, "reset").expect("reset");
    assert_eq!(join(&repo, "s", 2).expect("again").id, done);
    assert_eq!(tip(&repo), Some(before));
}
