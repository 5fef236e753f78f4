//! Sharded commits: many ranks at once, ranks that die, are late or start again, finishers that die or come twice.

use crate::support::{Noise, engine, safetensors};
use mdl_objects::Id;
use mdl_repo::{
    CommitRequest, Committed, Content, ErrorKind, GcOptions, JoinRequest, NewFile, Progress, RefName, Repo, Result,
    Shard, ShardRequest, Silent,
    storage::{Fault, FaultStorage, Key, LocalStorage, MemoryStorage, Prefix, Storage},
};
use std::{sync::Arc, thread};
use tempfile::TempDir;

const NOW: GcOptions = GcOptions { dry_run: false, prune_now: true, grace: None };

fn open(storage: impl Storage + 'static) -> Repo {
    Repo::with_storage(Arc::new(storage), engine(), None, None, None).expect("open")
}

fn fresh() -> (MemoryStorage, Repo) {
    let storage = MemoryStorage::new();
    let repo = Repo::init_storage(Arc::new(storage.clone()), "main", engine()).expect("init");
    (storage, repo)
}

fn duplicate(from: &MemoryStorage) -> MemoryStorage {
    let to = MemoryStorage::new();
    for stored in from.list(&Prefix::ALL).expect("list") {
        let value = from.get(&stored.key).expect("get").expect("value");
        to.put(&stored.key, &value).expect("put");
    }
    to
}

fn memory(rel: &str, bytes: Vec<u8>) -> NewFile {
    NewFile { rel: rel.to_owned(), executable: false, content: Content::Memory(Arc::new(bytes)) }
}

/// The bytes of a rank's file at a step: weights that drift.
fn content(rank: u32, step: u32) -> Vec<u8> {
    let mut w = Noise(u64::from(rank) + 1).weights(600);
    let mut drift = Noise(u64::from(rank) + 100);
    (0..step).for_each(|_| w.iter_mut().for_each(|x| *x += drift.weight() * 1e-4));
    safetensors(&[("w", &w), ("frozen", &Noise(7).weights(200))])
}

fn name(rank: u32) -> String {
    format!("model-{rank:05}.safetensors")
}

fn shard_of(session: &str, rank: u32, step: u32) -> ShardRequest {
    ShardRequest {
        session: session.to_owned(),
        rank,
        files: vec![memory(&name(rank), content(rank, step)), memory("config.json", b"{}".to_vec())],
        ..ShardRequest::default()
    }
}

fn put(repo: &Repo, session: &str, rank: u32, step: u32) -> Result<Shard> {
    mdl_repo::put_shard(repo, &shard_of(session, rank, step), &Silent)
}

fn joining(session: &str, ranks: u32) -> JoinRequest {
    JoinRequest {
        session: session.to_owned(),
        ranks,
        commit: CommitRequest { message: "joined".to_owned(), step: Some(5), ..CommitRequest::default() },
    }
}

fn join(repo: &Repo, session: &str, ranks: u32) -> Result<Committed> {
    mdl_repo::join_shards(repo, &joining(session, ranks), &Silent)
}

fn commit(repo: &Repo, text: &str) -> Id {
    let request = CommitRequest {
        files: Some(vec![memory("x", text.as_bytes().to_vec())]),
        message: text.to_owned(),
        ..CommitRequest::default()
    };
    mdl_repo::commit(repo, &request, &Silent).expect("commit").id
}

fn tip(repo: &Repo) -> Option<Id> {
    repo.refs().get(&RefName::branch("main").expect("a name")).expect("ref")
}

fn assert_sound(repo: &Repo, label: &str) {
    assert_eq!(mdl_repo::fsck(repo, false, &Silent).expect("fsck").problems, [], "{label}");
}

/// Checks that a commit holds what these ranks had at a step, byte for byte.
fn assert_holds(repo: &Repo, id: &Id, ranks: u32, step: u32) {
    let files = repo.odb().files(&repo.odb().commit(id).expect("commit").tree).expect("files");
    assert_eq!(files.len(), ranks as usize + 1);
    for rank in 0..ranks {
        let read = repo.odb().read_range(&files[&name(rank)], 0, u64::MAX).expect("read");
        assert!(read == content(rank, step), "rank {rank}");
    }
}

fn sessions(repo: &Repo) -> usize {
    mdl_repo::sessions(repo).expect("sessions").len()
}

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
        (0..3).for_each(|rank| drop(put(&repo, "s", rank, 0).expect("put")));
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
        (0..2).for_each(|rank| drop(put(&repo, "s", rank, 0).expect("put")));
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
    (0..2).for_each(|rank| drop(put(&repo, "s", rank, 0).expect("put")));
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
    (0..2).for_each(|rank| drop(put(&repo, "s", rank, 0).expect("put")));
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
    other.files[1] = memory("config.json", b"{\"other\": 1}".to_vec());
    mdl_repo::put_shard(&repo, &other, &Silent).expect("put");
    let e = join(&repo, "s", 2).expect_err("two files of one name");
    assert!(e.to_string().contains("ranks 0 and 1") && e.to_string().contains("config.json"), "{e}");
    assert_eq!(tip(&repo), None);
    let mut below = shard_of("s", 1, 0);
    below.files[1] = memory("config.json/below", b"x".to_vec());
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
    (0..2).for_each(|rank| drop(put(&repo, "s", rank, 0).expect("put")));
    mdl_repo::gc(&repo, &NOW, &Silent).expect("gc");
    assert_eq!(join(&repo, "s", 2).expect_err("swept").kind(), ErrorKind::NotFound);
    // The packs alone: the session goes on, longer than its first shards are kept.
    (0..2).for_each(|rank| drop(put(&repo, "s", rank, 0).expect("put")));
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
    (0..2).for_each(|rank| drop(put(&repo, "s", rank, 0).expect("put")));
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
    (0..2).for_each(|rank| drop(put(&repo, "s", rank, 0).expect("put")));
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

type Operation<'a> = dyn Fn(&Repo) -> Result<()> + 'a;

/// Lets an operation die, or fail, at every change it makes; `check` is told what is left and how it ended, then the
/// operation is done again, and at last what it left is collected.
fn sweep(scene: &MemoryStorage, operation: &Operation<'_>, check: &dyn Fn(&Repo, bool), end: &dyn Fn(&Repo, &str)) {
    let counted = FaultStorage::new(Arc::new(duplicate(scene)), None);
    operation(&open(counted.clone())).expect("works without a fault");
    let kinds: [fn(u64) -> Fault; 5] = [Fault::Kill, Fault::Tear, Fault::Fail, Fault::LoseReply, Fault::Full];
    for (fault, at) in kinds.iter().flat_map(|f| (1..=counted.changes()).map(move |at| (f(at), at))) {
        let survivor = duplicate(scene);
        let outcome = operation(&open(FaultStorage::new(Arc::new(survivor.clone()), Some(fault))));
        let label = format!("{fault:?} ({at} of {}): {outcome:?}", counted.changes());
        let repo = open(survivor.clone());
        assert_sound(&repo, &label);
        check(&repo, outcome.is_ok());
        // What the dead left goes, and nothing else.
        let collected = open(duplicate(&survivor));
        let before = tip(&collected);
        mdl_repo::gc(&collected, &NOW, &Silent).expect(&label);
        assert_sound(&collected, &label);
        assert_eq!((tip(&collected), sessions(&collected)), (before, 0), "{label}");
        operation(&repo).expect(&label);
        end(&repo, &label);
        assert_sound(&repo, &label);
        let (kept, bytes) = (tip(&repo), |repo: &Repo| -> u64 {
            let packs = repo.storage().list(&Prefix::fixed("packs/")).expect("packs");
            packs.iter().map(|p| p.size).sum()
        });
        mdl_repo::gc(&repo, &NOW, &Silent).expect(&label);
        assert_eq!((tip(&repo), sessions(&repo)), (kept, 0), "{label}");
        let held = bytes(&repo);
        mdl_repo::gc(&repo, &NOW, &Silent).expect(&label);
        assert_eq!(bytes(&repo), held, "nothing is left to be freed: {label}");
        assert_sound(&repo, &label);
    }
}

#[test]
fn a_rank_that_dies_anywhere_has_put_or_has_not() {
    let (storage, repo) = fresh();
    let before = commit(&repo, "before");
    put(&repo, "s", 0, 0).expect("put");
    // A finisher has looked: the rank has to make it look again.
    join(&repo, "s", 2).expect_err("rank 1 is missing");
    sweep(
        &storage,
        &|repo| put(repo, "s", 1, 0).map(drop),
        &|repo, done| {
            assert_eq!(tip(repo), Some(before));
            let ranks = mdl_repo::sessions(repo).expect("sessions").remove(0).ranks;
            assert!(ranks == [0, 1] || !done && ranks == [0], "{ranks:?}");
        },
        &|repo, label| {
            let done = join(repo, "s", 2).expect(label);
            assert_holds(repo, &done.id, 2, 0);
        },
    );
}

#[test]
fn a_finisher_that_dies_anywhere_has_committed_all_or_nothing() {
    for first in [true, false] {
        let (storage, repo) = fresh();
        let before = first.then(|| commit(&repo, "before"));
        (0..3).for_each(|rank| drop(put(&repo, "s", rank, 0).expect("put")));
        sweep(
            &storage,
            &|repo| join(repo, "s", 3).map(drop),
            &|repo, done| match tip(repo) {
                Some(id) if Some(id) != before => assert_holds(repo, &id, 3, 0),
                at => assert!(at == before && !done),
            },
            &|repo, label| {
                let id = tip(repo).expect("a tip");
                assert_holds(repo, &id, 3, 0);
                assert_eq!(repo.odb().commit(&id).expect("commit").parents, Vec::from_iter(before), "{label}");
                assert_eq!(join(repo, "s", 3).expect("again").id, id, "{label}");
                assert_eq!(tip(repo), Some(id), "{label}");
            },
        );
    }
}

#[test]
fn what_a_dead_finisher_decided_is_finished_or_given_up() {
    let (storage, repo) = fresh();
    commit(&repo, "before");
    (0..2).for_each(|rank| drop(put(&repo, "s", rank, 0).expect("put")));
    let counted = FaultStorage::new(Arc::new(duplicate(&storage)), None);
    join(&open(counted.clone()), "s", 2).expect("join");
    let mut seen = Vec::new();
    for at in 1..=counted.changes() {
        let survivor = duplicate(&storage);
        let died = join(&open(FaultStorage::new(Arc::new(survivor.clone()), Some(Fault::Kill(at)))), "s", 2);
        let repo = open(survivor);
        let decided = mdl_repo::sessions(&repo).expect("sessions")[0].commit;
        let moved = decided.is_some() && tip(&repo) == decided;
        // Another writer's version comes before the next finisher.
        let other = commit(&repo, "other");
        let done = join(&repo, "s", 2).expect("finished");
        if moved {
            assert_eq!((Some(done.id), tip(&repo)), (decided, Some(other)), "{at}: {died:?}");
        } else {
            assert_eq!((done.parent, tip(&repo)), (Some(other), Some(done.id)), "{at}: {died:?}");
            assert_ne!(Some(done.id), decided);
        }
        assert_eq!(join(&repo, "s", 2).expect("again").id, done.id);
        assert_sound(&repo, "given up");
        seen.push((decided.is_some(), moved));
    }
    for all in [(false, false), (true, false), (true, true)] {
        assert!(seen.contains(&all), "{seen:?}");
    }
}

#[test]
fn a_version_that_was_reset_away_is_not_brought_back() {
    let (_, repo) = fresh();
    let before = commit(&repo, "before");
    (0..2).for_each(|rank| drop(put(&repo, "s", rank, 0).expect("put")));
    let done = join(&repo, "s", 2).expect("join").id;
    mdl_repo::move_ref(&repo, "refs/heads/main", Some(done), Some(before), None, "reset").expect("reset");
    assert_eq!(join(&repo, "s", 2).expect("again").id, done);
    assert_eq!(tip(&repo), Some(before));
}

#[test]
fn records_that_are_damaged_are_told_from_none() {
    let (storage, repo) = fresh();
    (0..2).for_each(|rank| drop(put(&repo, "s", rank, 0).expect("put")));
    let mut bytes = storage.get(&Key::fixed("shards/s/1")).expect("get").expect("record");
    let middle = bytes.len() / 2;
    bytes[middle] ^= 1;
    storage.put(&Key::fixed("shards/s/1"), &bytes).expect("put");
    assert_eq!(join(&repo, "s", 2).expect_err("damaged").kind(), ErrorKind::Corrupt);
    storage.put(&Key::fixed("shards/s/1"), b"mdl shard 2\n{}\nx\n").expect("put");
    assert_eq!(join(&repo, "s", 2).expect_err("newer").kind(), ErrorKind::User);
    put(&repo, "s", 1, 0).expect("put again");
    join(&repo, "s", 2).expect("join");
}
