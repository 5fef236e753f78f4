//! Lossy commits: the version holds what was judged, searches go on from the record, nothing breaks on hostile tensors.

mod bounds;
mod in_memory;
pub mod model;
mod side_by_side;
mod yardsticks;

use self::model::{Distance, FILE, Model, NO_BOUNDS, NONE_EXACT, numbers, quality, request};
use crate::support::{self, Noise, place};
use mdl_repo::{
    CheckoutOptions, CommitRequest, Committed, Direction, Evaluator, FsckReport, LossyRequest, PlannedCommit, Policy,
    Quality, Repo, Silent,
};
use std::{collections::BTreeMap, fs, path::Path};

/// Always the same answer.
struct Says(Option<f64>);

impl Evaluator for Says {
    fn evaluate(&mut self, _: &Path) -> Option<f64> {
        self.0
    }
}

fn commit(repo: &Repo, policy: &str, step: u64, evaluator: Option<&mut dyn Evaluator>) -> Committed {
    let mut lossy = LossyRequest {
        policy: mdl_repo::policy(repo, policy).expect("a policy"),
        evaluator,
        direction: Direction::LowerIsBetter,
        grads: None,
        since: None,
    };
    mdl_repo::commit_lossy(repo, &request(step), &mut lossy, &Silent).expect("a commit")
}

fn clean(repo: &Repo) -> FsckReport {
    let report = mdl_repo::fsck(repo, false, &Silent).expect("fsck");
    assert!(report.problems.is_empty(), "{:?}", report.problems);
    report
}

#[test]
fn what_was_judged_is_what_is_committed_and_the_next_search_goes_on() {
    let p = place();
    let mut model = Model::new();
    let mut sizes = Vec::new();
    for step in 0..5 {
        p.write(FILE, &model.bytes());
        let mut judge = model.judge(step);
        let done = commit(&p.repo, "lossy", step, Some(&mut judge));
        let q = quality(&done);
        assert_ne!(q.family, "lossless");
        assert!(q.measured <= q.limit && q.measured > q.exact, "{q:?}");
        assert_eq!(p.file_at("main", FILE), model.bytes(), "what is new is exact");
        let stored = p.judged_at("main", FILE);
        assert_ne!(stored, model.bytes());
        assert!(judge.seen.iter().any(|(_, file)| *file == stored), "nobody saw what was committed");
        assert_eq!(judge.seen[0].1, model.bytes(), "the exact checkpoint is measured first");
        // The vector keeps every bit.
        let tail = 4 * 200;
        assert_eq!(stored[stored.len() - tail..], model.bytes()[stored.len() - tail..]);
        assert_eq!(judge.seen.len() as u32, q.evaluations + 1);
        if step > 1 {
            assert!(q.evaluations <= 8, "the knob sticks: {}", q.evaluations);
        }
        sizes.push(done.summary.stored_bytes - q.exact_bytes.expect("exact contents beside it"));
        let record = Quality::from_commit(&p.repo.odb().commit(&done.id).expect("commit")).expect("a record");
        assert_eq!(record.as_ref(), Some(q));
        let named = done.report.tensors.iter().find(|t| t.name == "wte.weight").expect("reported");
        assert!(named.max_abs.is_some_and(|e| e > 0.0) && named.rel_l2.is_some_and(|e| e > 0.0 && e < 1.0));
        model.train();
    }
    assert!(sizes[1..].iter().all(|s| s * 2 < sizes[0]), "deltas are small: {sizes:?}");
    clean(&p.repo);
    let left = fs::read_dir(p.path().join(".mdl/candidates")).expect("dir").count();
    assert_eq!(left, 0, "candidates are removed");
}

#[test]
fn a_copy_of_the_repository_goes_on_alike() {
    let p = place();
    let mut model = Model::new();
    for step in 0..3 {
        p.write(FILE, &model.bytes());
        commit(&p.repo, "lossy", step, Some(&mut model.judge(step)));
        model.train();
    }
    let copy = place();
    support::copy_dir(&p.path().join(".mdl"), &copy.path().join(".mdl"));
    let there = Repo::open(copy.path(), support::engine()).expect("a repository");
    let mut done = Vec::new();
    for (repo, place) in [(&p.repo, &p), (&there, &copy)] {
        place.write(FILE, &model.bytes());
        let d = commit(repo, "lossy", 3, Some(&mut model.judge(3)));
        done.push((quality(&d).clone(), repo.odb().commit(&d.id).expect("commit").tree));
    }
    assert_eq!(done[0], done[1]);
}

#[test]
fn a_checked_out_version_costs_nothing_to_commit_again() {
    let p = place();
    let mut model = Model::new();
    for step in 0..2 {
        p.write(FILE, &model.bytes());
        commit(&p.repo, "lossy", step, Some(&mut model.judge(step)));
        model.train();
    }
    let before = p.file_at("main", FILE);
    p.write(FILE, &before);
    let from = mdl_repo::resolve(&p.repo, "main").expect("main");
    let mut judge = Distance { exact: before.clone(), ..model.judge(2) };
    let mut lossy = LossyRequest {
        policy: mdl_repo::policy(&p.repo, "lossy").expect("policy"),
        evaluator: Some(&mut judge),
        direction: Direction::LowerIsBetter,
        grads: None,
        since: None,
    };
    let again = CommitRequest { resumed_from: Some(from), ..request(2) };
    let done = mdl_repo::commit_lossy(&p.repo, &again, &mut lossy, &Silent).expect("again");
    assert_eq!(p.file_at("main", FILE), before);
    assert!(done.summary.stored_bytes < 64 << 10, "{}", done.summary.stored_bytes);
    assert_eq!(done.summary.new_tensors, 0);
    assert_eq!(p.repo.odb().commit(&done.id).expect("commit").resumed_from, Some(from));
}

#[test]
fn offsets_are_drawn_anew_after_a_restore() {
    let p = place();
    let text = format!("try = [\"lattice\"]\n{NO_BOUNDS}{NONE_EXACT}");
    mdl_repo::set_policy(&p.repo, "lattice", &text).expect("a policy");
    let mut model = Model::new();
    p.write(FILE, &model.bytes());
    let first = commit(&p.repo, "lattice", 0, Some(&mut model.judge(0)));
    let restored = p.file_at("main", FILE);
    model.train();
    p.write(FILE, &model.bytes());
    let mut files = Vec::new();
    for resumed_from in [None, Some(first.id)] {
        let mut judge = model.judge(1);
        let mut lossy = LossyRequest {
            policy: mdl_repo::policy(&p.repo, "lattice").expect("policy"),
            evaluator: Some(&mut judge),
            direction: Direction::LowerIsBetter,
            grads: None,
            since: None,
        };
        let r = CommitRequest { resumed_from, branch: Some(format!("b{}", files.len())), ..request(1) };
        mdl_repo::commit_lossy(&p.repo, &r, &mut lossy, &Silent).expect("commit");
        files.push(p.file_at(&format!("b{}", files.len()), FILE));
    }
    let same = |a: &[u8]| numbers(a).iter().zip(numbers(&restored)).filter(|(a, b)| **a == *b).count();
    let (kept, redrawn) = (same(&files[0]), same(&files[1]));
    assert!(kept > 10 * redrawn.max(200), "on one lattice most levels stay: {kept} and {redrawn}");
}

#[test]
fn without_a_number_every_bit_stays() {
    let p = place();
    let mut model = Model::new();
    p.write(FILE, &model.bytes());
    let done = commit(&p.repo, "lossy", 0, None);
    assert_eq!(quality(&done).family, "lossless");
    assert!(quality(&done).warnings[0].contains("without an evaluator"), "{:?}", quality(&done).warnings);
    model.train();
    p.write(FILE, &model.bytes());
    let done = commit(&p.repo, "lossy", 1, Some(&mut Says(None)));
    assert!(quality(&done).warnings[0].contains("gave no number"));
    assert_eq!(p.file_at("main", FILE), model.bytes());
    // Nothing passes a gate that wants an improvement.
    struct Worse(bool);
    impl Evaluator for Worse {
        fn evaluate(&mut self, _: &Path) -> Option<f64> {
            let first = std::mem::take(&mut self.0);
            Some(if first { 1.0 } else { 1e9 })
        }
    }
    model.train();
    p.write(FILE, &model.bytes());
    let done = commit(&p.repo, "lossy", 2, Some(&mut Worse(true)));
    assert!(quality(&done).warnings[0].contains("nothing passed"), "{:?}", quality(&done).warnings);
    assert_eq!((quality(&done).family.as_str(), quality(&done).measured), ("lossless", Some(1.0)));
    assert_eq!(p.file_at("main", FILE), model.bytes());
}

#[test]
fn a_fixed_configuration_needs_no_number() {
    let p = place();
    let model = Model::new();
    p.write(FILE, &model.bytes());
    for (name, text) in [
        ("sixteen", "try = [\"bins\"]\n[fixed]\nfamily = \"bins\"\nbins = 16\n"),
        ("coarse", "try = [\"lattice\"]\n[fixed]\nfamily = \"lattice\"\nstep = -3.0\n"),
    ] {
        mdl_repo::set_policy(&p.repo, name, &format!("{text}{NO_BOUNDS}")).expect("a policy");
        let done = commit(&p.repo, name, 0, None);
        assert!(quality(&done).unevaluated() && quality(&done).rel_l2.is_some_and(|e| e > 0.0 && e < 0.2));
        assert_ne!(p.judged_at("main", FILE), model.bytes());
    }
    clean(&p.repo);
}

#[test]
fn a_plan_stores_nothing() {
    let p = place();
    let model = Model::new();
    p.write(FILE, &model.bytes());
    let mut judge = model.judge(0);
    let mut lossy = LossyRequest {
        policy: mdl_repo::policy(&p.repo, "paper").expect("policy"),
        evaluator: Some(&mut judge),
        direction: Direction::LowerIsBetter,
        grads: None,
        since: None,
    };
    let PlannedCommit { quality, trials, bound_costs } =
        mdl_repo::plan(&p.repo, &request(0), &mut lossy).expect("a plan");
    assert_eq!(bound_costs.iter().map(|c| c.bound).collect::<Vec<_>>(), ["weight"], "the others are none");
    assert_eq!(quality.family, "bins");
    let chosen = trials.iter().find(|t| t.configuration == quality.configuration).expect("the chosen one");
    assert!(chosen.passes && chosen.measured.is_some());
    assert!(trials.iter().filter(|t| t.passes).all(|t| t.bytes >= chosen.bytes), "{trials:?}");
    assert!(p.repo.refs().head_commit().expect("head").is_none());
}

#[test]
fn the_papers_policy_stays_in_the_neighbourhood() {
    let p = place();
    let mut model = Model::new();
    let mut last = 0;
    for step in 0..3 {
        p.write(FILE, &model.bytes());
        let done = commit(&p.repo, "paper", step, Some(&mut model.judge(step)));
        assert_eq!(quality(&done).family, "bins");
        let bins: u32 = quality(&done).configuration.split(' ').next().and_then(|n| n.parse().ok()).expect("bins");
        assert!(bins >= last, "never more aggressive than before");
        if step > 0 {
            assert!(quality(&done).evaluations <= 8);
        }
        last = bins;
        model.train();
    }
}

#[test]
fn hostile_tensors_are_committed() {
    let p = place();
    let mut noise = Noise(9);
    let mut outliers = noise.weights(8192);
    (outliers[5], outliers[4000]) = (3e38, -3e38);
    let mut broken = noise.weights(8192);
    (broken[1], broken[2]) = (f32::NAN, f32::INFINITY);
    let few: Vec<f32> = (0..8192).map(|i| (i % 3) as f32).collect();
    let tiny: Vec<f32> = (0..8192).map(|i| f32::from_bits(i as u32 % 7)).collect();
    let fine = noise.weights(8192);
    let tensors: BTreeMap<&str, Vec<f32>> = BTreeMap::from([
        ("a.constant.weight", vec![0.25; 8192]),
        ("b.zero.weight", vec![0.0; 8192]),
        ("c.one.weight", vec![1.0]),
        ("d.few.weight", few),
        ("e.outliers.weight", outliers),
        ("f.broken.weight", broken.clone()),
        ("g.tiny.weight", tiny),
        ("h.fine.weight", fine),
    ]);
    for policy in ["lattice", "bins", "paper"] {
        let text = mdl_repo::policy(&p.repo, policy).expect("built in").text;
        mdl_repo::set_policy(&p.repo, policy, &format!("{text}{NONE_EXACT}")).expect("a policy");
        for (version, cols) in [(0u64, 64u64), (1, 128)] {
            let shape = |v: &Vec<f32>| {
                if v.len() == 1 { vec![1, 1] } else { vec![v.len() as u64 / cols, cols] }
            };
            let shaped: Vec<_> = tensors.iter().map(|(n, v)| (*n, shape(v), v.as_slice())).collect();
            let shaped: Vec<_> = shaped.iter().map(|(n, s, v)| (*n, s.as_slice(), *v)).collect();
            let file = support::shaped(&shaped);
            p.write(FILE, &file);
            let mut says = Says(Some(1.0));
            let done = commit(&p.repo, policy, version, Some(&mut says));
            // Later the repository has it as it is, which is nothing to warn of.
            let warnings = &quality(&done).warnings;
            assert!(policy != "lattice" || warnings[0].starts_with("kept exact"), "{warnings:?}");
            let stored = numbers(&p.judged_at("main", FILE));
            let exact = numbers(&file);
            let nans = |v: &[f64]| v.iter().filter(|x| x.is_nan()).count();
            assert_eq!((nans(&stored), nans(&exact)), (1, 1), "{policy}: quantising never makes a NaN");
            let infinite = |v: &[f64]| v.iter().filter(|x| x.is_infinite()).count();
            assert_eq!(infinite(&stored), 1, "{policy}");
        }
    }
    clean(&p.repo);
}

#[test]
fn policies_have_a_history_and_survive_a_collection() {
    let p = place();
    p.write("x", b"y");
    p.commit("one");
    let text = |n: u32| format!("# version {n}\ntry = [\"bins\"]\n");
    for n in 0..3 {
        mdl_repo::set_policy(&p.repo, "mine", &text(n)).expect("set");
    }
    assert!(mdl_repo::set_policy(&p.repo, "mine", "try = [\"nothing\"]").is_err());
    assert!(
        mdl_repo::set_policy(&p.repo, "a/b", &text(0)).is_err()
            && mdl_repo::set_policy(&p.repo, "x.toml", &text(0)).is_err()
    );
    assert_eq!(mdl_repo::policy(&p.repo, "mine").expect("mine").text, text(2));
    assert_eq!(mdl_repo::policy(&p.repo, "mine@{2}").expect("older").text, text(0));
    assert!(mdl_repo::policy(&p.repo, "mine@{3}").is_err() && mdl_repo::policy(&p.repo, "nobody").is_err());
    let mut options = mdl_repo::GcOptions::default();
    mdl_repo::gc(&p.repo, &options, &Silent).expect("gc");
    assert_eq!(mdl_repo::policy(&p.repo, "mine@{1}").expect("kept").text, text(1));
    options.prune_now = true;
    mdl_repo::gc(&p.repo, &options, &Silent).expect("gc");
    assert_eq!(mdl_repo::policy(&p.repo, "mine").expect("kept").text, text(2));
    clean(&p.repo);
    // The repository's own version of a built-in one wins until it is removed.
    mdl_repo::set_policy(&p.repo, "lossy", &text(9)).expect("set");
    assert_eq!(mdl_repo::policy(&p.repo, "lossy").expect("own").text, text(9));
    mdl_repo::remove_policy(&p.repo, "lossy").expect("removed");
    assert_ne!(mdl_repo::policy(&p.repo, "lossy").expect("built in").text, text(9));
}

#[test]
fn a_policy_file_is_read_and_kept_with_the_commit() {
    let p = place();
    let model = Model::new();
    p.write(FILE, &model.bytes());
    let dir = tempfile::TempDir::new().expect("temp");
    let path = dir.path().join("mine.toml");
    let text = "try = [\"lattice\"] # a comment\n[[tensor]]\nmatch = \"wte.*\"\nexact = true\n";
    fs::write(&path, text).expect("write");
    let policy: Policy = mdl_repo::policy(&p.repo, path.to_str().expect("utf-8")).expect("a policy");
    assert_eq!(policy.name, "mine");
    let mut judge = model.judge(0);
    let mut lossy = LossyRequest {
        policy,
        evaluator: Some(&mut judge),
        direction: Direction::LowerIsBetter,
        grads: None,
        since: None,
    };
    let done = mdl_repo::commit_lossy(&p.repo, &request(0), &mut lossy, &Silent).expect("commit");
    let commit = p.repo.odb().commit(&done.id).expect("commit");
    let kept = p.repo.odb().read(&commit.side[0], mdl_objects::Kind::Blob).expect("the text");
    assert_eq!(kept, text.as_bytes());
    // What a rule keeps exact is exact.
    let out = tempfile::TempDir::new().expect("temp");
    mdl_repo::checkout_to(&p.repo, &done.id, out.path(), &CheckoutOptions::default(), &Silent).expect("checkout");
    assert_eq!(fs::read(out.path().join(FILE)).expect("read"), model.bytes());
    let stored = numbers(&p.judged_at("main", FILE));
    let exact = numbers(&model.bytes());
    assert_eq!(stored[..256 * 64], exact[..256 * 64]);
    assert_ne!(stored, exact);
}
