//! Versions go down the ladder: exact, approximate, without optimizer state, gone; and up again only by an undo.

use super::run::{FILE, NOW, Run, fidelity, is_clean};
use crate::support::{Noise, Place, memory, place};
use mdl_objects::{Id, Resume};
use mdl_repo::{
    CheckoutOptions, CommitRequest, Direction, Fidelity, GcOptions, Level, LossyRequest, NewFile, PruneOptions,
    PruneReport, Repo, RepoError, Retention, Silent, Standing, pruned, storage::Key,
};
use std::{
    collections::BTreeMap,
    time::{Duration, SystemTime},
};
use tempfile::TempDir;

pub const OPTIMIZER: &str = "state/optimizer.safetensors";
const CONFIG: &str = "config.json";
/// Once marks are old enough.
const GRACE_OVER: GcOptions = GcOptions { dry_run: false, prune_now: false, grace: Some(Duration::ZERO) };
/// Before they are.
const IN_GRACE: GcOptions = GcOptions { dry_run: false, prune_now: false, grace: Some(Duration::from_secs(3600)) };

/// A safetensors file of noise.
pub fn tensors(seed: u64, names: &[&str]) -> Vec<u8> {
    const N: usize = 6000;
    let mut noise = Noise(seed);
    let (mut header, mut data) = (serde_json::Map::new(), Vec::new());
    for name in names {
        let start = data.len();
        data.extend((0..N).flat_map(|_| noise.weight().to_le_bytes()));
        let entry = serde_json::json!({"dtype": "F32", "shape": [N], "data_offsets": [start, data.len()]});
        header.insert((*name).to_owned(), entry);
    }
    let header = serde_json::to_vec(&header).expect("json");
    [&(header.len() as u64).to_le_bytes()[..], &header, &data].concat()
}

pub fn moments(seed: u64) -> NewFile {
    memory(OPTIMIZER, tensors(seed, &["state.0.exp_avg", "state.0.exp_avg_sq"]))
}

/// A version of these files, without a policy.
pub fn plain(repo: &Repo, step: u64, files: Vec<NewFile>) -> Id {
    let request = CommitRequest { files: Some(files), step: Some(step), ..CommitRequest::default() };
    mdl_repo::commit(repo, &request, &Silent).expect("commit").id
}

fn weights(step: u64) -> NewFile {
    memory(FILE, tensors(100 + step, &["layers.0.weight"]))
}

/// Three versions with weights and moments, without a policy.
pub fn lossless(repo: &Repo) -> Vec<Id> {
    (0..3).map(|i| plain(repo, i, vec![weights(i), moments(i), memory(CONFIG, format!("{i}"))])).collect()
}

/// So many versions more with weights and moments, under the run's policy.
pub fn on(run: &mut Run, n: usize) {
    for _ in 0..n {
        let policy = mdl_repo::policy(&run.p.repo, "ages").expect("a policy");
        let mut lossy =
            LossyRequest { policy, evaluator: None, direction: Direction::LowerIsBetter, grads: None, since: None };
        let mut request = run.request(CommitRequest::default());
        request.files.as_mut().expect("files").push(moments(run.step));
        let done = mdl_repo::commit_lossy(&run.p.repo, &request, &mut lossy, &Silent).expect("commit");
        let (id, exact, near) = (done.id, run.training.bytes(), super::run::judged(&run.p.repo, &done.id));
        run.all.push(super::run::Version { id, exact, near, bounds: None });
        run.next();
    }
}

pub fn prune_to(repo: &Repo, keep: u64, to: Level) -> PruneReport {
    let rules = Retention::LatestN { n: keep };
    mdl_repo::prune(repo, None, &rules, &PruneOptions { dry_run: false, to }).expect("prune")
}

pub fn gc(repo: &Repo, options: &GcOptions) -> mdl_repo::maintenance::GcReport {
    mdl_repo::gc(repo, options, &Silent).expect("gc")
}

/// What a checkout of a version gives.
pub fn checkout(repo: &Repo, id: &Id) -> mdl_repo::Result<BTreeMap<String, Vec<u8>>> {
    let out = TempDir::new().expect("temp dir");
    mdl_repo::checkout_to(repo, id, out.path(), &CheckoutOptions::default(), &Silent)?;
    let paths = [FILE, OPTIMIZER, CONFIG].into_iter().filter(|path| out.path().join(path).exists());
    Ok(paths.map(|path| (path.to_owned(), std::fs::read(out.path().join(path)).expect("file"))).collect())
}

fn names(repo: &Repo, id: &Id) -> Vec<String> {
    checkout(repo, id).expect("checkout").into_keys().collect()
}

fn header(repo: &Repo) -> String {
    let bytes = repo.storage().get(&Key::fixed("pruned")).expect("get").expect("a record");
    String::from_utf8(bytes).expect("text").lines().next().expect("a line").to_owned()
}

fn resume(repo: &Repo, id: &Id) -> Option<Resume> {
    let commit = repo.odb().commit(id).expect("commit");
    pruned::resume(&commit, &mdl_repo::standing_tree(repo, id, &commit).expect("tree"))
}

#[test]
fn a_lossless_version_loses_its_optimizer_state_and_keeps_its_weights() {
    let Place { repo, dir: _dir } = place();
    let all = lossless(&repo);
    let before: Vec<_> = all.iter().map(|id| checkout(&repo, id).expect("checkout")).collect();
    assert_eq!(before[0].len(), 3);
    let report = prune_to(&repo, 1, Level::Weights);
    assert_eq!((report.pruned.len(), report.kept.len(), report.to), (2, 1, Level::Weights));
    assert_eq!((report.no_approximation, report.no_state, report.mixed), (0, 0, 0));
    // Two moments of 24,000 bytes of noise each, twice.
    assert!(report.freed_bytes > 60_000, "{}", report.freed_bytes);
    assert_eq!(header(&repo), "mdl pruned 3");
    // A mark alone changes nothing.
    for (id, files) in all.iter().zip(&before) {
        assert_eq!(&checkout(&repo, id).expect("checkout"), files);
        assert_eq!(fidelity(&repo, id), Fidelity::Exact);
    }
    is_clean(&repo);
    assert_eq!(gc(&repo, &IN_GRACE).aged, 0);
    assert_eq!(mdl_repo::undo_prune(&repo, None).expect("undone").len(), 2);
    assert_eq!(gc(&repo, &NOW).aged, 0);
    assert_eq!(checkout(&repo, &all[0]).expect("checkout"), before[0]);

    let report = prune_to(&repo, 1, Level::Weights);
    assert_eq!(prune_to(&repo, 1, Level::Weights).pruned, [], "those that have no more than that stay");
    let done = gc(&repo, &GRACE_OVER);
    assert_eq!((done.bytes_freed, done.aged, done.pruned), (report.freed_bytes, 2, 0));
    for (n, (id, files)) in all.iter().zip(&before).enumerate() {
        let mut left = files.clone();
        if n < 2 {
            left.remove(OPTIMIZER).expect("was there");
        }
        assert_eq!(checkout(&repo, id).expect("checkout"), left, "version {n}");
        let want =
            if n < 2 { (Fidelity::Weights, Resume::WeightsOnly) } else { (Fidelity::Exact, Resume::Approximate) };
        assert_eq!((fidelity(&repo, id), resume(&repo, id)), (want.0, Some(want.1)), "version {n}");
    }
    let commit = repo.odb().commit(&all[0]).expect("commit");
    match mdl_repo::standing(&repo, &all[0], &commit).expect("standing") {
        Standing::StandIn(tree, mark) => {
            assert_eq!((Some(tree), mark.rules.as_str()), (mark.stand_in, "latest 1"));
            assert_eq!(mark.without.keys().collect::<Vec<_>>(), [OPTIMIZER]);
        }
        other => panic!("{other:?}"),
    }
    is_clean(&repo);
    let error = mdl_repo::undo_prune(&repo, Some(&all[..1])).expect_err("collected");
    assert!(error.to_string().contains("optimizer state"), "{error}");
    mdl_repo::compact(&repo, &Default::default(), &Silent).expect("compact");
    mdl_repo::stats(&repo, &Silent).expect("stats");
    gc(&repo, &NOW);
    assert_eq!(names(&repo, &all[1]), [CONFIG, FILE]);
    is_clean(&repo);
}

#[test]
fn a_version_goes_down_step_by_step_and_up_by_an_undo_only() {
    let mut run = Run::new("exact_latest = 1");
    on(&mut run, 3);
    let (repo, first) = (&run.p.repo, run.all[0].id);
    let state = |what: &str| {
        is_clean(repo);
        let file = checkout(repo, &first).map(|files| (files.get(FILE).cloned(), files.contains_key(OPTIMIZER)));
        match file {
            Ok((Some(file), has_state)) => (fidelity(repo, &first), file == run.all[0].near, has_state),
            Err(RepoError::Pruned { .. }) => (fidelity(repo, &first), false, false),
            other => panic!("{what}: {other:?}"),
        }
    };
    assert_eq!(state("aged"), (Fidelity::Exact, false, true));
    gc(repo, &NOW);
    assert_eq!(state("collected"), (Fidelity::Approximate, true, true));
    assert_eq!(prune_to(repo, 1, Level::Approximate).pruned, [], "they are");

    assert_eq!(prune_to(repo, 1, Level::Weights).pruned.len(), 2);
    // What it has now is not taken before the time of grace is over.
    gc(repo, &IN_GRACE);
    assert_eq!(state("in grace"), (Fidelity::Approximate, true, true));
    assert_eq!(mdl_repo::undo_prune(repo, Some(&[first])).expect("undone").len(), 1);
    gc(repo, &NOW);
    assert_eq!(state("undone"), (Fidelity::Approximate, true, true));
    assert_eq!(fidelity(repo, &run.all[1].id), Fidelity::Weights);

    assert_eq!(prune_to(repo, 1, Level::Weights).pruned.len(), 1);
    gc(repo, &GRACE_OVER);
    assert_eq!(state("weights"), (Fidelity::Weights, true, false));
    for to in [Level::Approximate, Level::Weights] {
        assert_eq!(prune_to(repo, 1, to).pruned, [], "never up");
    }
    assert_eq!(prune_to(repo, 1, Level::Gone).pruned.len(), 2);
    assert_eq!(mdl_repo::undo_prune(repo, None).expect("undone").len(), 2);
    gc(repo, &NOW);
    assert_eq!(state("undone once more"), (Fidelity::Weights, true, false));
    assert_eq!(prune_to(repo, 1, Level::Gone).pruned.len(), 2);
    gc(repo, &GRACE_OVER);
    assert_eq!(state("gone"), (Fidelity::Gone, false, false));
    assert!(matches!(mdl_repo::undo_prune(repo, Some(&[first])), Err(RepoError::Pruned { .. })));
    run.all[2].gives(repo, true, "the newest");
}

#[test]
fn an_exact_version_that_has_an_approximation_is_left_with_the_approximations_weights() {
    let mut run = Run::new("exact_latest = 3");
    on(&mut run, 3);
    let repo = &run.p.repo;
    let report = prune_to(repo, 1, Level::Weights);
    assert_eq!(report.pruned.len(), 2);
    let done = gc(repo, &GRACE_OVER);
    assert_eq!(done.bytes_freed, report.freed_bytes);
    for version in &run.all[..2] {
        let files = checkout(repo, &version.id).expect("checkout");
        assert!(files[FILE] == version.near && files.len() == 1);
        assert_eq!(fidelity(repo, &version.id), Fidelity::Weights);
    }
    is_clean(repo);
    // A run goes on, on top of what is left.
    on(&mut run, 2);
    gc(&run.p.repo, &NOW);
    is_clean(&run.p.repo);
    run.all[4].gives(&run.p.repo, true, "the newest");
}

#[test]
fn versions_age_whatever_the_window_is_if_they_have_an_approximation() {
    let mut run = Run::new("exact_latest = 9");
    let without = plain(&run.p.repo, 100, vec![weights(9), moments(9)]);
    run.on(3);
    let repo = &run.p.repo;
    assert!(run.aged().is_empty());
    let report = prune_to(repo, 1, Level::Approximate);
    assert_eq!((report.pruned.len(), report.no_approximation), (2, 1));
    assert_eq!((run.aged(), header(repo).as_str()), (vec![0, 1], "mdl pruned 2"));
    run.are_exact(&[0, 1, 2]);
    // Undone like a pruning, without a name.
    assert_eq!(mdl_repo::undo_prune(repo, None).expect("undone").len(), 2);
    assert!(run.aged().is_empty());
    let report = prune_to(repo, 1, Level::Approximate);
    assert_eq!(gc(repo, &GRACE_OVER).bytes_freed, report.freed_bytes);
    run.are_exact(&[2]);
    assert_eq!(fidelity(repo, &without), Fidelity::Exact);
}

#[test]
fn what_ages_by_a_policy_is_no_pruning_that_a_bare_undo_takes_back() {
    let mut run = Run::new("exact_latest = 1");
    on(&mut run, 2);
    prune_to(&run.p.repo, 1, Level::Weights);
    on(&mut run, 1);
    assert_eq!(run.aged(), [0, 1]);
    let back = mdl_repo::undo_prune(&run.p.repo, None).expect("undone");
    assert_eq!(back.iter().map(|v| v.commit).collect::<Vec<_>>(), [run.all[0].id]);
    assert_eq!(run.aged(), [0, 1]);
}

#[test]
fn a_file_with_weights_and_moments_stays_whole_and_is_counted() {
    let Place { repo, dir: _dir } = place();
    let mixed = |i| memory("last.safetensors", tensors(i, &["model.w", "optimizer.state.0.exp_avg"]));
    let only_mixed = plain(&repo, 0, vec![mixed(0)]);
    let both = plain(&repo, 1, vec![mixed(1), moments(11)]);
    let only_moments = plain(&repo, 2, vec![moments(12)]);
    let only_weights = plain(&repo, 3, vec![weights(3)]);
    lossless(&repo);
    let rules = Retention::LatestN { n: 3 };
    let report =
        mdl_repo::prune(&repo, None, &rules, &PruneOptions { dry_run: true, to: Level::Weights }).expect("dry");
    assert_eq!(report.pruned.iter().map(|v| v.commit).collect::<Vec<_>>(), [both]);
    assert_eq!((report.mixed, report.no_state), (2, 3));
    let of_level: Vec<_> = report.levels.iter().map(|l| (l.to, l.versions)).collect();
    assert_eq!(of_level, [(Level::Gone, 4), (Level::Weights, 1), (Level::Approximate, 0)]);
    assert!(report.levels[0].freed_bytes > report.levels[1].freed_bytes);
    assert_eq!(report.levels[1].freed_bytes, report.freed_bytes);
    assert!(report.freed_bytes > 30_000 && report.levels[2].freed_bytes == 0);
    assert!(mdl_repo::pruned(&repo).expect("record").is_empty());

    assert_eq!(prune_to(&repo, 3, Level::Weights).freed_bytes, report.freed_bytes);
    gc(&repo, &NOW);
    is_clean(&repo);
    let files = |id: Id| {
        let tree = mdl_repo::standing_tree(&repo, &id, &repo.odb().commit(&id).expect("commit")).expect("tree");
        repo.odb().files(&tree).expect("files").into_keys().collect::<Vec<_>>()
    };
    for (id, paths) in [
        (only_mixed, vec!["last.safetensors"]),
        (both, vec!["last.safetensors"]),
        (only_moments, vec![OPTIMIZER]),
        (only_weights, vec![FILE]),
    ] {
        assert_eq!(files(id), paths);
    }
}

#[test]
fn a_name_keeps_the_optimizer_state_also_after_the_pruning() {
    let Place { repo, dir: _dir } = place();
    let all = lossless(&repo);
    mdl_repo::create_tag(&repo, "early", &all[0], None, false).expect("tag");
    assert_eq!(prune_to(&repo, 1, Level::Weights).pruned.len(), 1);
    mdl_repo::create_branch(&repo, "late", &all[1], false).expect("branch");
    assert!(mdl_repo::pruned(&repo).expect("record").is_empty(), "it is held");
    gc(&repo, &NOW);
    all.iter().for_each(|id| assert!(names(&repo, id).contains(&OPTIMIZER.to_owned())));
    // Of a version that has weights only, these are what a name keeps.
    mdl_repo::delete_branch(&repo, "late", true, &Silent).expect("deleted");
    assert_eq!(prune_to(&repo, 1, Level::Weights).pruned.len(), 1);
    gc(&repo, &NOW);
    mdl_repo::create_tag(&repo, "weights", &all[1], None, false).expect("tag");
    assert_eq!(prune_to(&repo, 1, Level::Gone).pruned, []);
    gc(&repo, &NOW);
    assert_eq!(names(&repo, &all[1]), [CONFIG, FILE]);
    is_clean(&repo);
}

#[test]
fn what_is_left_of_an_aged_version_that_is_named_is_its_approximation() {
    let mut run = Run::new("exact_latest = 1");
    on(&mut run, 3);
    gc(&run.p.repo, &NOW);
    prune_to(&run.p.repo, 1, Level::Weights);
    mdl_repo::create_tag(&run.p.repo, "t", &run.all[0].id, None, false).expect("tag");
    gc(&run.p.repo, &NOW);
    assert_eq!(fidelity(&run.p.repo, &run.all[0].id), Fidelity::Approximate);
    assert_eq!(names(&run.p.repo, &run.all[0].id), [FILE, OPTIMIZER]);
    assert_eq!(fidelity(&run.p.repo, &run.all[1].id), Fidelity::Weights);
    is_clean(&run.p.repo);
}

#[test]
fn what_is_to_stand_is_kept_for_as_long_as_it_waits() {
    for lossy in [false, true] {
        let mut run = Run::new("exact_latest = 1");
        let all: Vec<Id> = if lossy {
            on(&mut run, 3);
            gc(&run.p.repo, &NOW);
            run.all.iter().map(|v| v.id).collect()
        } else {
            lossless(&run.p.repo)
        };
        let before = checkout(&run.p.repo, &all[0]).expect("checkout");
        prune_to(&run.p.repo, 1, Level::Weights);
        // Its pack is older than the mark where the same was pruned and taken back before.
        let then = SystemTime::now() - Duration::from_secs(7200);
        for pack in std::fs::read_dir(run.p.path().join(".mdl/packs")).expect("packs") {
            let file = std::fs::File::options().write(true).open(pack.expect("a pack").path()).expect("open");
            file.set_modified(then).expect("set");
        }
        run.p.reopen();
        gc(&run.p.repo, &IN_GRACE);
        mdl_repo::compact(&run.p.repo, &Default::default(), &Silent).expect("compact");
        assert_eq!(checkout(&run.p.repo, &all[0]).expect("checkout"), before);
        is_clean(&run.p.repo);
        assert_eq!(gc(&run.p.repo, &GRACE_OVER).aged, 2);
        assert_eq!(fidelity(&run.p.repo, &all[0]), Fidelity::Weights);
        is_clean(&run.p.repo);
    }
}
