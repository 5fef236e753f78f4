//! The record names no tree that is not a version's own, or readers pass it by; a pruning that dies half-way costs
//! nothing.

use super::{
    ladder::{OPTIMIZER, checkout, gc, lossless, prune_to},
    run::{FILE, NOW, fidelity, is_clean},
};
use crate::support::{Place, add_object, duplicate, fresh, open, place};
use mdl_objects::{Entry, Id, Kind, Tree};
use mdl_repo::{
    Fidelity, LeftOut, LeftOutFiles, Level, PruneOptions, PrunedMark, Repo, Retention, Silent, WriteTransaction,
    pruned,
    storage::{Fault, FaultStorage},
};
use std::sync::Arc;

/// Stores a directory of these entries.
fn tree(repo: &Repo, entries: Vec<Entry>) -> Id {
    let transaction = WriteTransaction::begin(repo).expect("transaction");
    let mut pack = transaction.pack([]).expect("pack");
    let id = add_object(&mut pack, Kind::Tree, &Tree { entries }.encode());
    transaction.publish(pack).expect("published");
    id
}

fn forge(repo: &Repo, commit: Id, tree: Id, without: &LeftOutFiles) {
    let rules = "forged".to_owned();
    let mark = PrunedMark { time_ms: 1, rules, stand_in: Some(tree), without: without.clone() };
    let transaction = WriteTransaction::begin(repo).expect("transaction");
    pruned::change(&transaction, repo.storage(), |p| p.note(commit, &mark)).expect("noted");
}

#[test]
fn a_tree_that_is_no_part_of_the_version_stands_for_nothing() {
    let Place { repo, dir: _dir } = place();
    let all = lossless(&repo);
    let before = checkout(&repo, &all[0]).expect("checkout");
    let root = repo.odb().tree(&repo.odb().commit(&all[0]).expect("commit").tree).expect("tree");
    let other = repo.odb().tree(&repo.odb().commit(&all[1]).expect("commit").tree).expect("tree");
    let files = repo.odb().files(&repo.odb().commit(&all[0]).expect("commit").tree).expect("files");
    let own = || -> Vec<Entry> { root.entries.iter().filter(|e| e.name != "state").cloned().collect() };
    let lost = || LeftOutFiles::from([(OPTIMIZER.to_owned(), LeftOut::from_entry(&files[OPTIMIZER]))]);
    let replaced = |name: &str| -> Vec<Entry> {
        own().into_iter().map(|e| if e.name == name { other.get(name).expect("there").clone() } else { e }).collect()
    };
    let foreign = other.get(FILE).expect("there").clone();
    // In place of the directory that the left-out file is in.
    let hidden = [own(), vec![Entry { name: "state".to_owned(), ..foreign.clone() }]].concat();
    // One more, which the list says was the version's.
    let beside = [own(), vec![Entry { name: "z".to_owned(), ..foreign.clone() }]].concat();
    let mut claims_more = lost();
    claims_more.insert("z".to_owned(), LeftOut::from_entry(&foreign));
    let mut renamed = own();
    renamed[0].name = "a".to_owned();
    let forgeries: [(&str, Vec<Entry>, LeftOutFiles); 8] = [
        ("another version's weights", replaced(FILE), lost()),
        ("a file that hides a directory", hidden, lost()),
        ("a file more", beside.clone(), lost()),
        ("a file more on the list", beside, claims_more.clone()),
        ("a list with a file more", own(), claims_more),
        ("a renamed file", renamed, lost()),
        ("nothing", Vec::new(), files.iter().map(|(p, e)| (p.clone(), LeftOut::from_entry(e))).collect()),
        ("all of it", root.entries.clone(), lost()),
    ];
    for (what, entries, without) in forgeries {
        let tree = tree(&repo, entries);
        forge(&repo, all[0], tree, &without);
        assert!(mdl_repo::pruned(&repo).expect("record").weights(&all[0]).is_some(), "{what}");
        let report = mdl_repo::fsck(&repo, false, &Silent).expect("fsck");
        assert!(report.problems.iter().any(|p| p.reason.contains(&tree.short())), "{what}: {:?}", report.problems);
        gc(&repo, &NOW);
        assert_eq!(checkout(&repo, &all[0]).expect(what), before, "{what}");
        assert_eq!(fidelity(&repo, &all[0]), Fidelity::Exact, "{what}");
        assert_eq!(mdl_repo::undo_prune(&repo, Some(&all[..1])).expect("undone").len(), 1);
    }
    is_clean(&repo);
}

#[test]
fn a_foreign_tree_is_not_given_in_place_of_contents_that_are_gone() {
    let Place { repo, dir: _dir } = place();
    let all = lossless(&repo);
    prune_to(&repo, 1, Level::Weights);
    gc(&repo, &NOW);
    let record = mdl_repo::pruned(&repo).expect("record");
    let (first, second) = (record.weights(&all[0]).expect("mark"), record.weights(&all[1]).expect("mark"));
    let (own, foreign) = (first.without.clone(), second.stand_in.expect("tree"));
    let transaction = WriteTransaction::begin(&repo).expect("transaction");
    pruned::change(&transaction, repo.storage(), |p| p.keep(|_, id| *id != all[0])).expect("forgotten");
    drop(transaction);
    forge(&repo, all[0], foreign, &own);
    checkout(&repo, &all[0]).expect_err("neither its own nor a part of it");
    assert_ne!(mdl_repo::fsck(&repo, false, &Silent).expect("fsck").problems, []);
    mdl_repo::gc(&repo, &NOW, &Silent).expect_err("damage");
}

#[test]
fn a_pruning_that_dies_between_the_pack_and_the_record_costs_nothing() {
    let (storage, repo) = fresh();
    let all = lossless(&repo);
    let before: Vec<_> = all.iter().map(|id| checkout(&repo, id).expect("checkout")).collect();
    let prune = |repo: &Repo| {
        let options = PruneOptions { dry_run: false, to: Level::Weights };
        mdl_repo::prune(repo, None, &Retention::LatestN { n: 1 }, &options)
    };
    let counted = FaultStorage::new(Arc::new(duplicate(&storage)), None);
    prune(&open(counted.clone())).expect("works without a fault");
    assert!(counted.changes() >= 2, "a pack and the record");
    let faults: [fn(u64) -> Fault; 5] = [Fault::Kill, Fault::Tear, Fault::Fail, Fault::LoseReply, Fault::Full];
    let (mut done, mut undone) = (0, 0);
    for (fault, at) in faults.iter().flat_map(|f| (1..=counted.changes()).map(move |at| (f, at))) {
        let survivor = duplicate(&storage);
        let outcome = prune(&open(FaultStorage::new(Arc::new(survivor.clone()), Some(fault(at)))));
        let what = format!("{:?} of {}: {outcome:?}", fault(at), counted.changes());
        let repo = open(survivor);
        is_clean(&repo);
        let is_noted = mdl_repo::pruned(&repo).expect("record").weights(&all[0]).is_some();
        assert!(is_noted || outcome.is_err(), "{what}");
        *if is_noted { &mut done } else { &mut undone } += 1;
        gc(&repo, &NOW);
        is_clean(&repo);
        for (n, files) in before.iter().enumerate() {
            let mut want = files.clone();
            if is_noted && n < 2 {
                want.remove(OPTIMIZER);
            }
            assert_eq!(checkout(&repo, &all[n]).expect(&what), want, "{what}, version {n}");
        }
        assert_eq!(prune(&repo).expect(&what).pruned.len(), if is_noted { 0 } else { 2 }, "{what}");
        gc(&repo, &NOW);
        assert_eq!(fidelity(&repo, &all[1]), Fidelity::Weights, "{what}");
        is_clean(&repo);
    }
    assert!(done > 0 && undone > 0, "{done} {undone}");
}

#[test]
fn a_collection_that_takes_optimizer_state_takes_all_of_it_or_none() {
    let (storage, repo) = fresh();
    let all = lossless(&repo);
    let before = checkout(&repo, &all[0]).expect("checkout");
    prune_to(&repo, 1, Level::Weights);
    let counted = FaultStorage::new(Arc::new(duplicate(&storage)), None);
    gc(&open(counted.clone()), &NOW);
    for at in 1..=counted.changes() {
        let survivor = duplicate(&storage);
        let _ =
            mdl_repo::gc(&open(FaultStorage::new(Arc::new(survivor.clone()), Some(Fault::Kill(at)))), &NOW, &Silent);
        let repo = open(survivor);
        for _ in 0..2 {
            is_clean(&repo);
            let files = checkout(&repo, &all[0]).expect("checkout");
            let want = match fidelity(&repo, &all[0]) {
                Fidelity::Exact => 3,
                Fidelity::Weights => 2,
                other => panic!("{other:?}"),
            };
            assert!(files.len() == want && files[FILE] == before[FILE], "kill at {at}");
            gc(&repo, &NOW);
        }
    }
}

#[test]
fn damage_in_what_is_left_stops_the_pruning() {
    let mut place = place();
    let all = lossless(&place.repo);
    let (odb, storage) = (place.repo.odb(), place.repo.storage());
    let files = odb.files(&odb.commit(&all[0]).expect("commit").tree).expect("files");
    let tensor = odb.manifest(&files[FILE].id).expect("manifest").tensors[0].id;
    let at = odb.locate(&tensor).expect("locate").expect("there");
    let key = at.pack.id.key();
    let mut bytes = storage.get(&key).expect("get").expect("pack");
    bytes[at.record.offset as usize + at.record.len as usize / 2] ^= 4;
    storage.put(&key, &bytes).expect("damage");
    place.reopen();
    let repo = &place.repo;
    mdl_repo::fsck(repo, false, &Silent).expect("fsck");
    let options = PruneOptions { dry_run: false, to: Level::Weights };
    let error = mdl_repo::prune(repo, None, &Retention::LatestN { n: 1 }, &options).expect_err("damaged");
    assert!(error.to_string().contains(&all[0].short()), "{error}");
    assert!(mdl_repo::pruned(repo).expect("record").is_empty());
}
