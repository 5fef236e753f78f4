//! What dies half-way, is damaged, or runs beside a commit costs no version.

use super::run::{FILE, NOW, Run, Version, fidelity, is_clean, read};
use crate::support::engine;
use mdl_objects::{Id, Kind};
use mdl_repo::{
    CommitRequest, Direction, ErrorKind, Evaluator, Fidelity, Head, LossyRequest, PrunedMark, Repo, Silent,
    WriteTransaction, pruned, storage::Key,
};
use std::{
    path::Path,
    sync::atomic::{AtomicBool, Ordering},
    thread,
};

const RECORD: Key = Key::fixed("pruned");

fn record(run: &Run) -> Option<Vec<u8>> {
    run.p.repo.storage().get(&RECORD).expect("get")
}

fn put_back(run: &Run, bytes: Option<&[u8]>) {
    match bytes {
        Some(bytes) => run.p.repo.storage().put(&RECORD, bytes).expect("put"),
        None => run.p.repo.storage().delete(&RECORD).expect("delete"),
    }
}

#[test]
fn a_commit_that_dies_before_it_notes_who_aged_is_made_up_for_by_the_next() {
    let mut run = Run::new("exact_latest = 1");
    for dying in [1usize, 3] {
        // Twice in a row, too.
        for _ in 0..dying {
            let before = record(&run);
            run.on(1);
            put_back(&run, before.as_deref());
        }
        let n = run.all.len();
        run.collect();
        assert!(run.aged().len() < n.saturating_sub(1) || n == 1, "{:?}", run.aged());
        run.all[n - 1].gives(&run.p.repo, true, "the newest");
        run.on(1);
        assert_eq!(run.aged(), (0..n).collect::<Vec<_>>());
    }
    run.collect();
    run.are_exact(&[run.all.len() - 1]);
}

#[test]
fn a_lost_record_is_written_anew_by_the_next_commit() {
    let mut run = Run::new("exact_latest = 1");
    run.on(4).collect();
    put_back(&run, None);
    // Nothing says what stands for the first ones: they are missed, and nothing is collected.
    assert!(read(&run.p.repo, &run.all[0].id).is_err());
    assert_eq!(mdl_repo::gc(&run.p.repo, &NOW, &Silent).expect_err("damage").kind(), ErrorKind::Corrupt);
    run.all[3].gives(&run.p.repo, true, "the newest");
    run.on(1);
    run.collect();
    run.are_exact(&[4]);
}

/// Collects whenever a candidate is judged.
struct Collects(Repo, f64);

impl Evaluator for Collects {
    fn evaluate(&mut self, _: &Path) -> Option<f64> {
        mdl_repo::gc(&self.0, &NOW, &Silent).expect("gc");
        self.1 -= 1e-6;
        Some(self.1)
    }
}

fn other(run: &Run) -> Repo {
    Repo::open(run.p.path(), engine()).expect("open")
}

/// Commits while collections run.
fn beside(run: &mut Run, request: CommitRequest) -> Version {
    let mut judge = Collects(other(run), 2.0);
    let mut lossy = LossyRequest {
        policy: mdl_repo::policy(&run.p.repo, "lossy").expect("built in"),
        evaluator: Some(&mut judge),
        direction: Direction::LowerIsBetter,
        grads: None,
        since: None,
    };
    run.commit_with(request, &mut lossy)
}

#[test]
fn collections_run_while_candidates_are_judged() {
    let (mut run, mut quiet) = (Run::new("exact_latest = 1"), Run::new("exact_latest = 1"));
    for run in [&mut run, &mut quiet] {
        run.on(3);
        mdl_repo::attach(&run.p.repo, &Head::Detached(run.all[0].id), Some(run.all[0].id), &Silent)
            .expect("HEAD moves");
    }
    // The parent aged, and HEAD alone holds its exact contents; what was restored from nothing holds.
    let resumed_from = Some(run.all[1].id);
    let request = CommitRequest { branch: Some("side".to_owned()), resumed_from, ..CommitRequest::default() };
    let version = beside(&mut run, request);
    version.gives(&run.p.repo, true, "the newest");
    run.are_exact(&[0, 2, 3]);
    let on_top = CommitRequest { branch: Some("side".to_owned()), ..CommitRequest::default() };
    beside(&mut run, on_top);
    mdl_repo::attach(&run.p.repo, &Head::Detached(run.all[4].id), Some(run.all[4].id), &Silent).expect("HEAD moves");
    run.collect();
    run.are_exact(&[2, 4]);
    quiet.are_exact(&[0, 1, 2]);
}

#[test]
fn collections_run_beside_commits_all_the_time() {
    let mut run = Run::new("exact_latest = 1");
    run.on(1);
    let (repo, done) = (other(&run), AtomicBool::new(false));
    thread::scope(|s| {
        s.spawn(|| {
            while !done.load(Ordering::SeqCst) {
                mdl_repo::gc(&repo, &NOW, &Silent).expect("gc");
            }
        });
        for _ in 0..12 {
            run.on(1);
            let newest = run.all.len() - 1;
            run.all[newest].gives(&run.p.repo, true, "the newest");
        }
        done.store(true, Ordering::SeqCst);
    });
    run.collect();
    run.are_exact(&[12]);
}

#[test]
fn a_mark_whose_stand_in_is_not_there_costs_nothing() {
    let mut run = Run::new("exact_latest = 3");
    run.on(2);
    let nothing = Id::from_content(Kind::Tree, b"no such directory");
    {
        let transaction = WriteTransaction::begin(&run.p.repo).expect("transaction");
        let mark =
            PrunedMark { time_ms: 1, rules: "forged".to_owned(), stand_in: Some(nothing), ..PrunedMark::default() };
        pruned::change(&transaction, run.p.repo.storage(), |p| p.note(run.all[0].id, &mark)).expect("noted");
    }
    assert_eq!(run.aged(), [0]);
    run.are_exact(&[0, 1]);
    run.collect();
    run.are_exact(&[0, 1]);
    mdl_repo::compact(&run.p.repo, &Default::default(), &Silent).expect("compact");
    mdl_repo::stats(&run.p.repo, &Silent).expect("stats");
    run.on(1).collect();
    run.are_exact(&[0, 1, 2]);
}

/// Flips a bit of the stored exact contents of a version; returns the tensor's id.
fn damage(run: &Run, version: &Version) -> Id {
    let (odb, storage) = (run.p.repo.odb(), run.p.repo.storage());
    let files = odb.files(&odb.commit(&version.id).expect("commit").tree).expect("files");
    let manifest = odb.manifest(&files[FILE].id).expect("manifest");
    let id = manifest.tensors.iter().find(|t| t.name == "h.0.mlp.fc.weight").expect("there").id;
    let at = odb.locate(&id).expect("locate").expect("there");
    let key = at.pack.id.key();
    let mut bytes = storage.get(&key).expect("get").expect("pack");
    bytes[at.record.offset as usize + at.record.len as usize / 2] ^= 4;
    storage.put(&key, &bytes).expect("damage");
    id
}

#[test]
fn damaged_exact_contents_are_named_and_never_replaced_in_silence() {
    for aged in [false, true] {
        let mut run = Run::new("exact_latest = 1");
        run.on(3);
        let n = if aged { 1 } else { 2 };
        let tensor = damage(&run, &run.all[n]);
        run.p.reopen();
        run.p.drop_cache();
        let error = read(&run.p.repo, &run.all[n].id).expect_err("damaged");
        assert_eq!(error.kind(), ErrorKind::Corrupt, "{error}");
        assert_eq!(fidelity(&run.p.repo, &run.all[n].id), Fidelity::Exact);
        let report = mdl_repo::fsck(&run.p.repo, false, &Silent).expect("fsck");
        let problem = report.problems.iter().find(|p| p.what.contains(&tensor.short())).expect("named");
        let hit = problem.affected.iter().find(|a| a.commit == run.all[n].id).expect("the version is named");
        assert_eq!((hit.path.as_str(), hit.tensor.as_deref()), (FILE, Some("h.0.mlp.fc.weight")));
        assert!(problem.affected.iter().all(|a| a.commit == run.all[n].id), "no other one needs it: {problem:?}");
        // The approximations are whole, and the run goes on.
        for v in run.all.iter().filter(|v| v.id != run.all[n].id) {
            v.gives(&run.p.repo, true, "another version");
        }
        run.on(1);
        run.p.drop_cache();
        assert!(read(&run.p.repo, &run.all[n].id).is_err());
        // Once it may go, the approximation stands for it like for any other.
        run.collect();
        run.are_exact(&[3]);
    }
}

#[test]
fn the_record_forgets_versions_that_are_no_more() {
    let mut run = Run::new("exact_latest = 1");
    run.on(2);
    mdl_repo::create_branch(&run.p.repo, "side", &run.all[1].id, false).expect("branch");
    for _ in 0..3 {
        run.commit(CommitRequest { branch: Some("side".to_owned()), ..CommitRequest::default() });
    }
    assert_eq!(run.aged(), [0, 2, 3]);
    mdl_repo::delete_branch(&run.p.repo, "side", true, &Silent).expect("deleted");
    run.collect();
    assert_eq!(run.aged(), [0]);
    assert_eq!(run.collect().aged, 1);
    is_clean(&run.p.repo);
}
