//! Rebase, cherry-pick and revert: what becomes of files and weights, stops, and the way back.

use crate::support::{Noise, Place, place, safetensors};
use mdl_objects::Id;
use mdl_repo::{
    CommitRequest, ErrorKind, GcOptions, GoOn, Head, Operation, Outcome, Reason, ReplayDone, ReplayOptions, ReplayStop,
    RepoError, Silent, TensorRule, abort, cherry_pick, create_branch, go_on_with, in_progress, rebase, resolve, revert,
};
use std::{collections::BTreeMap, fs};

const MODEL: &str = "model.safetensors";
const CONFIG: &str = "config.json";

fn options(rule: TensorRule) -> ReplayOptions {
    ReplayOptions::new(rule)
}

fn model(a: &[f32], b: &[f32]) -> Vec<u8> {
    safetensors(&[("a", a), ("b", b)])
}

fn head(p: &Place) -> Id {
    p.repo.refs().head_commit().expect("head").expect("a commit")
}

fn switch(p: &Place, branch: &str) {
    let tip = resolve(&p.repo, branch).expect("tip");
    let head = Head::Branch(branch.to_owned());
    mdl_repo::checkout(&p.repo, &tip, &head, &Default::default(), &Silent).expect("switch");
}

fn done(outcome: mdl_repo::Result<Outcome>) -> ReplayDone {
    match outcome.expect("an outcome") {
        Outcome::Done(done) => done,
        other => unreachable!("{other:?}"),
    }
}

fn stop(outcome: mdl_repo::Result<Outcome>) -> ReplayStop {
    match outcome.expect("an outcome") {
        Outcome::Stopped(stop) => stop,
        other => unreachable!("{other:?}"),
    }
}

/// All files of the work tree by name.
fn tree(p: &Place) -> BTreeMap<String, Vec<u8>> {
    let list = mdl_repo::walk(p.path(), false).expect("walk");
    list.into_iter().map(|f| (f.rel, fs::read(f.path).expect("read"))).collect()
}

fn messages(p: &Place) -> Vec<String> {
    let all = mdl_repo::history(&p.repo, &[head(p)]).expect("history");
    all.map(|step| step.expect("step").commit.message).collect()
}

/// A base with two versions on `main` (weights and notes), and two on `theirs`: `config` says what they have there.
fn parted(config: Option<&str>) -> Place {
    let p = place();
    p.write(MODEL, &model(&[1.0, 2.0], &[3.0]));
    p.write(CONFIG, b"{}");
    p.commit("base");
    create_branch(&p.repo, "theirs", &head(&p), false).expect("branch");
    for (n, text) in ["one", "two"].iter().enumerate() {
        let n = n as f32;
        p.write(MODEL, &model(&[1.5 + n, 2.0], &[3.0]));
        p.write("notes.txt", text.as_bytes());
        let request = CommitRequest {
            message: (*text).to_owned(),
            step: Some(100 + n as u64),
            metrics: BTreeMap::from([("loss".to_owned(), f64::from(n))]),
            ..CommitRequest::default()
        };
        mdl_repo::commit(&p.repo, &request, &Silent).expect("commit");
    }
    switch(&p, "theirs");
    p.write(MODEL, &model(&[1.0, 2.0], &[4.0]));
    p.write("readme.md", b"theirs");
    if let Some(config) = config {
        p.write(CONFIG, config.as_bytes());
    }
    p.commit("theirs");
    switch(&p, "main");
    p
}

fn upstream(p: &Place) -> Id {
    resolve(&p.repo, "theirs").expect("theirs")
}

#[test]
fn a_rebase_keeps_snapshots_and_takes_what_only_the_other_side_changed() {
    let p = parted(None);
    let (old, theirs) = (head(&p), upstream(&p));
    let result = done(rebase(&p.repo, &theirs, None, &options(TensorRule::Snapshot), &Silent));
    assert_eq!((result.from, result.replayed.len()), (old, 2));
    assert_eq!(messages(&p), ["two", "one", "theirs", "base"]);
    let files = tree(&p);
    assert!(files[MODEL] == model(&[2.5, 2.0], &[3.0]), "the snapshot's own weights");
    assert_eq!((&files["notes.txt"][..], &files["readme.md"][..]), (&b"two"[..], &b"theirs"[..]));
    let (before, after) = (p.repo.odb().commit(&old).expect("old"), p.repo.odb().commit(&result.to).expect("new"));
    assert_eq!((after.author, after.step, after.metrics), (before.author, before.step, before.metrics));
    assert_eq!(mdl_repo::status(&p.repo, &Silent).expect("status"), []);
    assert!(in_progress(&p.repo).expect("read").is_none());
    assert!(p.repo.refs().list("refs/sequencer/").expect("refs").is_empty());
    let again = rebase(&p.repo, &theirs, None, &options(TensorRule::Snapshot), &Silent).expect("again");
    assert!(matches!(again, Outcome::UpToDate));
    assert!(p.file_at("main@{1}", MODEL) == model(&[2.5, 2.0], &[3.0]), "the reflog has the old one");
}

#[test]
fn a_version_that_comes_out_the_same_keeps_its_tree_and_its_quality() {
    let p = place();
    p.write(MODEL, &model(&[1.0], &[1.0]));
    p.commit("base");
    create_branch(&p.repo, "theirs", &head(&p), false).expect("branch");
    p.write(MODEL, &model(&[2.0], &[1.0]));
    let own = p.commit("own");
    switch(&p, "theirs");
    p.write(MODEL, &model(&[1.0], &[9.0]));
    p.commit("theirs");
    switch(&p, "main");
    let result = done(rebase(&p.repo, &upstream(&p), None, &options(TensorRule::Snapshot), &Silent));
    let (old, new) = (p.repo.odb().commit(&own.id).expect("old"), p.repo.odb().commit(&result.to).expect("new"));
    assert_eq!(new.tree, old.tree);
    assert_eq!((new.report, new.summary, new.resume), (old.report, old.summary, old.resume));
    assert_eq!(new.parents, [upstream(&p)]);
}

#[test]
fn a_rebase_by_updates_adds_what_both_sides_learned() {
    let p = parted(None);
    let result = done(rebase(&p.repo, &upstream(&p), None, &options(TensorRule::Update), &Silent));
    assert!(p.read(MODEL) == model(&[2.5, 2.0], &[4.0]));
    let commit = p.repo.odb().commit(&result.to).expect("commit");
    assert_eq!((commit.step, commit.metrics.len()), (Some(101), 0), "nobody measured these weights");
}

#[test]
fn what_both_sides_changed_alike_is_left_out() {
    let p = parted(None);
    let theirs = upstream(&p);
    done(cherry_pick(&p.repo, &[theirs], &options(TensorRule::Update), &Silent));
    let result = done(rebase(&p.repo, &theirs, None, &options(TensorRule::Update), &Silent));
    assert_eq!(result.replayed.iter().filter(|v| v.to.is_none()).count(), 1);
    assert_eq!(messages(&p), ["two", "one", "theirs", "base"]);
}

#[test]
fn a_pick_changes_weights_by_as_much_and_a_revert_gives_the_bytes_back() {
    let p = parted(None);
    let (before, theirs) = (tree(&p), upstream(&p));
    done(cherry_pick(&p.repo, &[theirs], &options(TensorRule::Update), &Silent));
    assert!(p.read(MODEL) == model(&[2.5, 2.0], &[4.0]));
    assert_eq!(p.read("readme.md"), b"theirs");
    let picked = head(&p);
    done(revert(&p.repo, &[picked], &options(TensorRule::Exact), &Silent));
    assert!(tree(&p) == before);
    let again = revert(&p.repo, &[picked], &options(TensorRule::Exact), &Silent).expect("again");
    assert!(matches!(again, Outcome::UpToDate), "it is taken back already");
    p.write(MODEL, &model(&[3.5, 2.0], &[3.0]));
    p.commit("later");
    let second = resolve(&p.repo, "HEAD~3").expect("two");
    done(revert(&p.repo, &[second], &options(TensorRule::Update), &Silent));
    // What was learned since is kept: 3.5 - (2.5 - 1.5).
    assert!(p.read(MODEL) == model(&[2.5, 2.0], &[3.0]), "{:?}", p.read(MODEL));
    assert_eq!(p.read("notes.txt"), b"one");
}

#[test]
fn an_exact_revert_names_what_was_changed_since() {
    let p = place();
    for n in 0..3 {
        p.write(MODEL, &model(&[n as f32], &[n as f32]));
        p.write(CONFIG, format!("{n}").as_bytes());
        p.commit(&format!("v{n}"));
    }
    let (before, at) = (tree(&p), head(&p));
    let middle = resolve(&p.repo, "HEAD~1").expect("v1");
    match revert(&p.repo, &[middle], &options(TensorRule::Exact), &Silent).expect_err("refused") {
        RepoError::NotExact { names } => {
            assert_eq!(names, ["config.json", "model.safetensors: a", "model.safetensors: b"]);
        }
        other => panic!("{other:?}"),
    }
    assert_eq!((tree(&p), head(&p)), (before, at));
    assert!(in_progress(&p.repo).expect("read").is_none(), "nothing is left of it");
}

#[test]
fn many_reverts_come_back_to_the_very_bytes() {
    let p = place();
    let mut noise = Noise(5);
    let mut trees = Vec::new();
    for n in 0..6 {
        p.write(MODEL, &model(&noise.weights(4000), &noise.weights(10)));
        p.write(CONFIG, format!("{n}").as_bytes());
        p.commit(&format!("v{n}"));
        trees.push(tree(&p));
    }
    let mut all = mdl_repo::range(&p.repo, &resolve(&p.repo, "HEAD~5").expect("v0"), &head(&p)).expect("range");
    all.reverse();
    let result = done(revert(&p.repo, &all, &options(TensorRule::Exact), &Silent));
    assert_eq!(result.replayed.len(), 5);
    assert!(tree(&p) == trees[0]);
}

#[test]
fn both_changed_a_file_without_tensors() {
    for (how, wanted) in [("put", "mine"), ("ours", "theirs"), ("theirs", "own")] {
        let p = parted(Some("theirs"));
        p.write(CONFIG, b"own");
        p.commit("own config");
        p.write("scratch.txt", b"in no version");
        let stopped = stop(rebase(&p.repo, &upstream(&p), None, &options(TensorRule::Snapshot), &Silent));
        assert_eq!((stopped.done, stopped.left), (2, 1));
        assert_eq!((stopped.conflicts[0].path.as_str(), stopped.conflicts[0].reason), (CONFIG, Reason::BothChanged));
        assert_eq!((p.read(CONFIG), p.read("readme.md")), (b"theirs".to_vec(), b"theirs".to_vec()));
        let waiting = go_on_with(&p.repo, Operation::Rebase, &GoOn::default(), &Silent);
        assert_eq!(stop(waiting).conflicts.len(), 1, "nothing is decided yet");
        let glob = vec!["*.json".to_owned()];
        let mut answer = GoOn::default();
        match how {
            "put" => p.write(CONFIG, b"mine"),
            "ours" => answer.ours = glob,
            _ => answer.theirs = glob,
        }
        done(go_on_with(&p.repo, Operation::Rebase, &answer, &Silent));
        assert_eq!(p.read(CONFIG), wanted.as_bytes(), "{how}");
        assert_eq!(mdl_repo::status(&p.repo, &Silent).expect("status").len(), 1, "scratch.txt alone");
        let expected = if how == "ours" { "two" } else { "own config" };
        assert_eq!(messages(&p)[0], expected, "one whose change came to nothing is left out");
    }
}

#[test]
fn a_stop_goes_back_to_what_was_before_and_loses_no_file() {
    let p = parted(Some("theirs"));
    p.write(CONFIG, b"own");
    p.commit("own config");
    let (before, at) = (tree(&p), head(&p));
    stop(rebase(&p.repo, &upstream(&p), None, &options(TensorRule::Snapshot), &Silent));
    p.write(CONFIG, b"half of an answer");
    p.write("made meanwhile.txt", b"new");
    p.write("readme.md", b"edited");
    // What only the stop keeps is not collected.
    let waiting = in_progress(&p.repo).expect("read").and_then(|r| r.stopped).expect("it waits");
    let now = GcOptions { grace: Some(std::time::Duration::ZERO), ..GcOptions::default() };
    mdl_repo::gc(&p.repo, &now, &Silent).expect("gc");
    assert!(mdl_repo::files(&p.repo, &waiting.partial).is_ok());
    let back = abort(&p.repo, Operation::Rebase, &Silent).expect("abort");
    assert_eq!((head(&p), back.commit, back.moved_to), (at, at, None));
    let after = tree(&p);
    assert!(before.iter().all(|(rel, bytes)| after[rel] == *bytes));
    assert_eq!(after["made meanwhile.txt"], b"new");
    assert_eq!(after["config.json.kept-1"], b"half of an answer");
    assert_eq!(after["readme.md"], b"edited", "a file that the version does not have is in nobody's way");
    assert!(matches!(abort(&p.repo, Operation::Rebase, &Silent), Err(RepoError::NotInProgress { .. })));
}

#[test]
fn a_version_can_be_skipped() {
    let p = parted(Some("theirs"));
    p.write(CONFIG, b"own");
    p.commit("own config");
    p.write("last.txt", b"last");
    p.commit("last");
    stop(rebase(&p.repo, &upstream(&p), None, &options(TensorRule::Snapshot), &Silent));
    p.write(CONFIG, b"half of an answer");
    done(go_on_with(&p.repo, Operation::Rebase, &GoOn { skip: true, ..GoOn::default() }, &Silent));
    assert_eq!(messages(&p), ["last", "two", "one", "theirs", "base"]);
    assert_eq!((p.read(CONFIG), p.read("last.txt")), (b"theirs".to_vec(), b"last".to_vec()));
}

#[test]
fn other_shapes_and_integers_stop_a_pick() {
    let p = place();
    p.write(MODEL, &model(&[1.0], &[1.0]));
    p.commit("base");
    create_branch(&p.repo, "theirs", &head(&p), false).expect("branch");
    p.write(MODEL, &model(&[2.0], &[1.0]));
    p.commit("own");
    let own = head(&p);
    switch(&p, "theirs");
    p.write(MODEL, &model(&[1.0, 2.0], &[1.0]));
    p.commit("wider");
    let stopped = stop(cherry_pick(&p.repo, &[own], &options(TensorRule::Update), &Silent));
    assert_eq!(
        (stopped.conflicts[0].reason, &stopped.conflicts[0].tensors[..]),
        (Reason::Shapes, &["a".to_owned()][..])
    );
    let glob = vec![MODEL.to_owned()];
    done(go_on_with(&p.repo, Operation::CherryPick, &GoOn { theirs: glob, ..GoOn::default() }, &Silent));
    assert!(p.read(MODEL) == model(&[2.0], &[1.0]));
}

#[test]
fn nothing_else_moves_the_branch_meanwhile() {
    let p = parted(Some("theirs"));
    p.write(CONFIG, b"own");
    p.commit("own config");
    let at = head(&p);
    stop(rebase(&p.repo, &upstream(&p), None, &options(TensorRule::Snapshot), &Silent));
    let main = Head::Branch("main".to_owned());
    let refused: [RepoError; 6] = [
        p.try_commit("no").expect_err("commit"),
        mdl_repo::checkout(&p.repo, &at, &main, &Default::default(), &Silent).expect_err("checkout"),
        mdl_repo::reset(&p.repo, &at, true, &Silent).expect_err("reset"),
        mdl_repo::merge(&p.repo, &at, "x", &Silent).expect_err("merge"),
        revert(&p.repo, &[at], &options(TensorRule::Update), &Silent).expect_err("revert"),
        mdl_repo::rename_branch(&p.repo, "main", "other", &Silent).expect_err("rename"),
    ];
    for error in refused {
        assert!(matches!(error, RepoError::InProgress { operation: "rebase" }), "{error:?}");
    }
    let wrong = go_on_with(&p.repo, Operation::Revert, &GoOn::default(), &Silent).expect_err("another's");
    assert!(matches!(wrong, RepoError::InProgress { .. }));
    mdl_repo::forget(&p.repo, &Silent).expect("forgotten");
    mdl_repo::reset(&p.repo, &at, true, &Silent).expect("reset");
    assert_eq!(mdl_repo::status(&p.repo, &Silent).expect("status"), [], "what was put there is known, and went");
}

#[test]
fn a_branch_that_others_move_meanwhile_stays_theirs() {
    let p = parted(Some("theirs"));
    p.write(CONFIG, b"own");
    p.commit("own config");
    let at = head(&p);
    stop(rebase(&p.repo, &upstream(&p), None, &options(TensorRule::Snapshot), &Silent));
    let other = mdl_repo::Repo::open(p.path(), crate::support::engine()).expect("open").from_elsewhere();
    let request = CommitRequest {
        files: Some(vec![crate::support::memory("pushed.txt", "x")]),
        message: "pushed".to_owned(),
        branch: Some("main".to_owned()),
        ..CommitRequest::default()
    };
    let pushed = mdl_repo::commit(&other, &request, &Silent).expect("pushed").id;
    p.repo.odb().refresh();
    let answer = GoOn { theirs: vec![CONFIG.to_owned()], ..GoOn::default() };
    let error = go_on_with(&p.repo, Operation::Rebase, &answer, &Silent).expect_err("moved");
    assert_eq!(error.kind(), ErrorKind::Conflict);
    let back = abort(&p.repo, Operation::Rebase, &Silent).expect("abort");
    assert_eq!((back.moved_to, head(&p)), (Some(pushed), pushed));
    assert_eq!(mdl_repo::work_tree_base(&p.repo).expect("base"), Some(at));
    assert_eq!(p.read(CONFIG), b"own");
}

#[test]
fn changes_in_the_work_tree_are_refused_and_nothing_begins() {
    let p = parted(None);
    p.write(CONFIG, b"changed");
    let error = rebase(&p.repo, &upstream(&p), None, &options(TensorRule::Snapshot), &Silent).expect_err("dirty");
    assert!(matches!(error, RepoError::FilesInTheWay { .. }));
    p.write(CONFIG, b"{}");
    p.write("readme.md", b"in the way");
    let (before, at) = (tree(&p), head(&p));
    let error = rebase(&p.repo, &upstream(&p), None, &options(TensorRule::Snapshot), &Silent).expect_err("in the way");
    assert!(matches!(error, RepoError::FilesInTheWay { .. }));
    assert_eq!((tree(&p), head(&p)), (before, at));
    assert!(in_progress(&p.repo).expect("read").is_none());
}

#[test]
fn a_detached_head_is_replayed_and_put_back() {
    let p = parted(Some("theirs"));
    p.write(CONFIG, b"own");
    let at = p.commit("own config").id;
    mdl_repo::checkout(&p.repo, &at, &Head::Detached(at), &Default::default(), &Silent).expect("detach");
    stop(rebase(&p.repo, &upstream(&p), None, &options(TensorRule::Snapshot), &Silent));
    abort(&p.repo, Operation::Rebase, &Silent).expect("abort");
    assert_eq!(p.repo.refs().head().expect("head"), Head::Detached(at));
    let all = ReplayOptions { theirs: vec!["*".to_owned()], ..options(TensorRule::Snapshot) };
    let result = done(rebase(&p.repo, &upstream(&p), None, &all, &Silent));
    assert_eq!(p.repo.refs().head().expect("head"), Head::Detached(result.to));
    assert_eq!(resolve(&p.repo, "main").expect("main"), at);
}

#[test]
fn records_that_make_no_sense_are_refused_with_a_type() {
    let p = parted(Some("theirs"));
    p.write(CONFIG, b"own");
    p.commit("own config");
    stop(rebase(&p.repo, &upstream(&p), None, &options(TensorRule::Snapshot), &Silent));
    let path = p.path().join(".mdl/sequencer");
    let whole = fs::read(&path).expect("the record");
    let flipped = |at: usize| {
        let mut bytes = whole.clone();
        bytes[at] ^= 1;
        bytes
    };
    let mut bad: Vec<Vec<u8>> = vec![Vec::new(), b"mdl sequencer 9\n{}\nx\n".to_vec(), vec![0xff; 1000]];
    bad.extend((0..whole.len()).step_by(7).flat_map(|at| [flipped(at), whole[..at].to_vec()]));
    for bytes in bad {
        fs::write(&path, &bytes).expect("write");
        let error = in_progress(&p.repo).expect_err("makes no sense");
        assert!(matches!(error, RepoError::RecordUnreadable { .. }), "{error:?}");
        assert!(matches!(p.try_commit("no"), Err(RepoError::RecordUnreadable { .. })));
    }
    fs::write(&path, &whole).expect("write");
    assert!(in_progress(&p.repo).expect("whole").is_some());
    fs::write(&path, b"nonsense").expect("write");
    mdl_repo::forget(&p.repo, &Silent).expect("forgotten");
    assert!(in_progress(&p.repo).expect("none").is_none());
}

#[test]
fn versions_from_memory_are_replayed_without_a_work_tree_of_theirs() {
    let p = place();
    let commit = |branch: Option<&str>, model_: Vec<u8>, config: &str| {
        let files = vec![crate::support::memory(MODEL, model_), crate::support::memory(CONFIG, config)];
        let branch = branch.map(str::to_owned);
        let request =
            CommitRequest { files: Some(files), message: config.to_owned(), branch, ..CommitRequest::default() };
        mdl_repo::commit(&p.repo, &request, &Silent).expect("commit").id
    };
    commit(None, model(&[1.0], &[1.0]), "base");
    let theirs = commit(Some("theirs"), model(&[1.0], &[2.0]), "base");
    let own = commit(None, model(&[3.0], &[1.0]), "base");
    p.write("log.txt", b"a run's own");
    done(cherry_pick(&p.repo, &[theirs], &options(TensorRule::Update), &Silent));
    assert!(p.file_at("main", MODEL) == model(&[3.0], &[2.0]));
    assert_eq!(tree(&p).keys().collect::<Vec<_>>(), ["log.txt"], "no file was put there");
    done(revert(&p.repo, &[own], &options(TensorRule::Update), &Silent));
    assert!(p.file_at("main", MODEL) == model(&[1.0], &[2.0]));
    let other = commit(Some("theirs"), model(&[1.0], &[2.0]), "their config");
    let at = commit(None, model(&[9.0], &[2.0]), "own config");
    match cherry_pick(&p.repo, &[other], &options(TensorRule::Update), &Silent).expect_err("to be decided") {
        RepoError::Undecided { files } => assert_eq!(files, [CONFIG]),
        other => panic!("{other:?}"),
    }
    assert_eq!(head(&p), at);
    assert!(in_progress(&p.repo).expect("read").is_none());
}

type TextFiles = BTreeMap<String, Vec<u8>>;

fn write_all(p: &Place, files: &TextFiles) {
    for rel in tree(p).keys().filter(|rel| !files.contains_key(*rel)) {
        fs::remove_file(p.path().join(rel)).expect("removed");
    }
    files.iter().for_each(|(rel, bytes)| p.write(rel, bytes));
}

/// Some files come, change or go.
fn edited(noise: &mut Noise, files: &TextFiles) -> TextFiles {
    let mut files = files.clone();
    for _ in 0..=noise.next() % 3 {
        let rel = ["a.txt", "b.txt", "dir/c.txt", "dir/deep/d.txt", "e.json"][noise.next() as usize % 5];
        match noise.next() % 4 {
            0 => drop(files.remove(rel)),
            n => drop(files.insert(rel.to_owned(), format!("{} {n}", noise.next() % 5).into_bytes())),
        }
    }
    files.insert("always.txt".to_owned(), noise.next().to_le_bytes().to_vec());
    files
}

#[test]
fn random_histories_come_out_as_a_model_says_and_go_back_from_every_stop() {
    for seed in 0..6 {
        let (p, mut noise) = (place(), Noise(seed));
        let mut own = edited(&mut noise, &TextFiles::new());
        write_all(&p, &own);
        p.commit("base");
        create_branch(&p.repo, "theirs", &head(&p), false).expect("branch");
        let mut versions = vec![own.clone()];
        for n in 0..3 {
            own = edited(&mut noise, &own);
            write_all(&p, &own);
            p.commit(&format!("own {n}"));
            versions.push(own.clone());
        }
        switch(&p, "theirs");
        let mut model = edited(&mut noise, &versions[0]);
        write_all(&p, &model);
        p.commit("theirs");
        switch(&p, "main");
        let (before, at) = (tree(&p), head(&p));
        // Both sides always change one file, so that it stops.
        stop(rebase(&p.repo, &upstream(&p), None, &options(TensorRule::Snapshot), &Silent));
        p.write("the user's.txt", b"new");
        abort(&p.repo, Operation::Rebase, &Silent).expect("abort");
        fs::remove_file(p.path().join("the user's.txt")).expect("it is there");
        assert_eq!((tree(&p), head(&p)), (before, at), "seed {seed}");
        let all = ReplayOptions { theirs: vec!["**".to_owned()], ..options(TensorRule::Snapshot) };
        done(rebase(&p.repo, &upstream(&p), None, &all, &Silent));
        for pair in versions.windows(2) {
            let names = pair.iter().flat_map(TextFiles::keys);
            for rel in names.filter(|rel| pair[0].get(*rel) != pair[1].get(*rel)) {
                match pair[1].get(rel) {
                    Some(bytes) => drop(model.insert(rel.clone(), bytes.clone())),
                    None => drop(model.remove(rel)),
                }
            }
        }
        assert_eq!(tree(&p), model, "seed {seed}");
        assert_eq!(mdl_repo::status(&p.repo, &Silent).expect("status"), []);
    }
}
