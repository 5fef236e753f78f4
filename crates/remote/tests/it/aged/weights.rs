//! Transfers of versions that lost their optimizer state: what is left of them, and the proof that it is theirs.

use super::{
    MAIN, clone_of, collect,
    hostile::Forger,
    is_clean, open,
    partial::{lazy, shallow},
    pull,
    run::{FILE, NOW, Run, fidelity},
    send,
};
use crate::support::{Place, near, place};
use mdl_objects::Id;
use mdl_remote::{
    Peer,
    fetch::receive,
    push::{Push, push},
    sync::Want,
};
use mdl_repo::{
    CheckoutOptions, CommitRequest, Content, Fidelity, GcOptions, LeftOut, Level, LossyRequest, NewFile, PruneOptions,
    PrunedMark, Repo, Retention, Silent,
};
use std::{collections::BTreeMap, sync::Arc};
use tempfile::TempDir;

const OPTIMIZER: &str = "state/optimizer.pkl";

/// Commits so many versions more of a run, with a file of optimizer state; under its policy or without one.
fn on(run: &mut Run, n: usize, lossy: bool) {
    for _ in 0..n {
        let mut request = run.request(CommitRequest::default());
        let content = Content::Memory(Arc::new(format!("state of step {}", run.step).into_bytes()));
        let file = NewFile { rel: OPTIMIZER.to_owned(), executable: true, content };
        request.files.as_mut().expect("files").push(file);
        let id = if lossy {
            let policy = mdl_repo::policy(&run.p.repo, "ages").expect("a policy");
            let direction = mdl_repo::Direction::LowerIsBetter;
            let mut lossy = LossyRequest { policy, evaluator: None, direction, grads: None, since: None };
            mdl_repo::commit_lossy(&run.p.repo, &request, &mut lossy, &Silent).expect("commit").id
        } else {
            mdl_repo::commit(&run.p.repo, &request, &Silent).expect("commit").id
        };
        let near = super::run::judged(&run.p.repo, &id);
        run.all.push(super::run::Version { id, exact: run.training.bytes(), near, bounds: None });
        run.next();
    }
}

fn to_weights(place: &Place, keep: u64) -> usize {
    let options = PruneOptions { dry_run: false, to: Level::Weights };
    mdl_repo::prune(&open(place), None, &Retention::LatestN { n: keep }, &options).expect("prune").pruned.len()
}

/// Four versions: of the first two the optimizer state is collected, of the third it is to go.
fn run(lossy: bool) -> Run {
    let mut run = Run::new("exact_latest = 9");
    on(&mut run, 3, lossy);
    assert_eq!(to_weights(&run.p, 1), 2);
    collect(&run.p);
    on(&mut run, 1, lossy);
    assert_eq!(to_weights(&run.p, 1), 1);
    run
}

fn files(repo: &Repo, id: &Id) -> BTreeMap<&'static str, Vec<u8>> {
    let out = TempDir::new().expect("temp dir");
    mdl_repo::checkout_to(repo, id, out.path(), &CheckoutOptions::default(), &Silent).expect("checkout");
    let there = [FILE, OPTIMIZER].into_iter().filter(|path| out.path().join(path).exists());
    there.map(|path| (path, std::fs::read(out.path().join(path)).expect("file"))).collect()
}

/// Checks that the first `n` versions have the weights that last and nothing else, and the others all.
fn has_weights_only(repo: &Repo, run: &Run, n: usize) {
    for (i, version) in run.all.iter().enumerate() {
        let (files, is_less) = (files(repo, &version.id), i < n);
        assert_eq!(fidelity(repo, &version.id), if is_less { Fidelity::Weights } else { Fidelity::Exact }, "{i}");
        assert!(files[FILE] == *if is_less { &version.near } else { &version.exact }, "version {i}");
        assert_eq!(files.contains_key(OPTIMIZER), !is_less, "version {i}");
    }
    is_clean(repo);
}

#[test]
fn clones_and_pushes_have_what_lasts_and_can_prove_it() {
    for lossy in [false, true] {
        let run = run(lossy);
        has_weights_only(&open(&run.p), &run, 2);
        let clone = clone_of(&run.p);
        let pushed = place();
        send(&run.p, &pushed, &[(MAIN, Some(run.all[3].id))]);
        // What was not seen whole is passed on all the same.
        let second = clone_of(&clone);
        for place in [&clone, &pushed, &second] {
            has_weights_only(&open(place), &run, 3);
            let record = mdl_repo::pruned(&open(place)).expect("the record");
            assert_eq!(record.weights(&run.all[0].id).expect("a mark").without.len(), 1);
            collect(place);
            has_weights_only(&open(place), &run, 3);
            let undone = mdl_repo::undo_prune(&open(place), Some(&[run.all[0].id]));
            assert!(undone.expect_err("gone").to_string().contains("optimizer state"));
        }
        has_weights_only(&open(&run.p), &run, 2);
        // Both go on.
        let mut run = run;
        on(&mut run, 1, lossy);
        pull(&clone, &run.p);
        collect(&clone);
        has_weights_only(&open(&clone), &run, 3);
    }
}

#[test]
fn what_is_here_stays_when_others_let_it_go() {
    for lossy in [false, true] {
        let mut run = Run::new("exact_latest = 9");
        on(&mut run, 3, lossy);
        let clone = clone_of(&run.p);
        assert_eq!(to_weights(&run.p, 1), 2);
        collect(&run.p);
        on(&mut run, 1, lossy);
        pull(&clone, &run.p);
        collect(&clone);
        has_weights_only(&open(&clone), &run, 0);
        // A true mark for what is here without a ref costs nothing either.
        let record = mdl_repo::pruned(&open(&run.p)).expect("the record");
        let there = place();
        send(&clone, &there, &[("refs/heads/a", Some(run.all[3].id))]);
        send(&clone, &there, &[("refs/heads/a", None)]);
        let mark = record.weights(&run.all[0].id).expect("a mark").clone();
        near(&there).note_pruned(&[(run.all[0].id, mark)]).expect("noted");
        assert!(mdl_repo::pruned(&open(&there)).expect("the record").is_empty());
    }
}

#[test]
fn a_mark_with_a_foreign_tree_is_refused_wherever_it_arrives() {
    let run = run(false);
    let record = mdl_repo::pruned(&open(&run.p)).expect("the record");
    let other = record.weights(&run.all[1].id).expect("a mark").clone();
    let newest = open(&run.p).odb().commit(&run.all[3].id).expect("commit").tree;
    let tree = other.stand_in;
    let more = LeftOut { manifest: false, id: newest, size: 1, executable: false };
    type Forge = Box<dyn Fn(&mut PrunedMark) + Send + Sync>;
    let forgeries: Vec<(&str, Forge)> = vec![
        ("another version's", Box::new(move |m| m.stand_in = tree)),
        ("a whole other version", Box::new(move |m| m.stand_in = Some(newest))),
        ("without a proof", Box::new(|m| m.without.clear())),
        ("another version's proof", Box::new(move |m| m.without = other.without.clone())),
        ("a file more on the list", Box::new(move |m| m.without.extend([("x".to_owned(), more.clone())]))),
        ("another mode", Box::new(|m| m.without.values_mut().for_each(|f| f.executable = false))),
        ("another path", Box::new(|m| m.without = m.without.values().map(|f| ("x".to_owned(), f.clone())).collect())),
    ];
    for (what, forge) in forgeries {
        let forge = Arc::new(forge);
        let there = place();
        let forger = Forger {
            inner: near(&there),
            forge: {
                let f = forge.clone();
                move |m: &mut PrunedMark| f(m)
            },
        };
        let wish = Push { name: MAIN.to_owned(), new: Some(run.all[3].id), force: false, lease: None };
        assert!(push(&open(&run.p), &forger, &[wish], "push", &Silent).is_err(), "{what}");
        let here = place();
        let forger = Forger { inner: near(&run.p), forge: move |m: &mut PrunedMark| forge(m) };
        let want = Want { tips: vec![run.all[3].id], ..Want::default() };
        assert!(receive(&here.repo, &forger, want, &Silent).is_err(), "{what}");
        for place in [&there, &here] {
            let record = mdl_repo::pruned(&open(place)).expect("the record");
            assert!(record.weights(&run.all[0].id).is_none() && record.aged(&run.all[0].id).is_none(), "{what}");
            is_clean(&open(place));
            assert!(open(place).refs().list("refs/").expect("refs").is_empty());
            // The truth is taken in afterwards.
            send(&run.p, place, &[(MAIN, Some(run.all[3].id))]);
            has_weights_only(&open(place), &run, 3);
        }
    }
}

#[test]
fn a_partial_clone_fetches_what_is_left() {
    for lossy in [false, true] {
        let run = run(lossy);
        let clone = shallow(&run.p, run.all[3].id);
        is_clean(&open(&clone));
        assert_eq!(fidelity(&lazy(&clone), &run.all[0].id), Fidelity::Weights, "before it is fetched");
        for version in &run.all[..2] {
            let files = files(&lazy(&clone), &version.id);
            assert!(files[FILE] == version.near && files.len() == 1);
        }
        is_clean(&open(&clone));
        let unforced = GcOptions { prune_now: false, ..NOW };
        mdl_repo::gc(&open(&clone), &unforced, &Silent).expect("gc");
        is_clean(&open(&clone));
    }
}
