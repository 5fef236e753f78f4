//! Notes on versions: what goes by them, what keeps and checks them, and many writers at once.

use crate::support::{Place, engine, place};
use mdl_objects::Id;
use mdl_repo::{
    CompactOptions, ErrorKind, GcOptions, NOTES, NoteValue, RefName, Repo, Silent, VersionNotes, compact, fsck, gc,
    merge_notes, note_value, notes, remove_notes, resolve, set_notes, shown_notes,
};
use std::{collections::BTreeMap, sync::Barrier, thread};

fn values(pairs: &[(&str, &str)]) -> BTreeMap<String, Option<NoteValue>> {
    pairs.iter().map(|(key, value)| ((*key).to_owned(), Some(note_value(value)))).collect()
}

fn set(repo: &Repo, id: &Id, pairs: &[(&str, &str)]) -> mdl_repo::Result<bool> {
    set_notes(repo, id, &values(pairs), None)
}

fn shown(notes: &VersionNotes, id: &Id) -> Vec<String> {
    notes.on(id).map(|(key, _, value)| format!("{key}={value}")).collect()
}

fn versions(place: &Place, n: usize) -> Vec<Id> {
    (0..n)
        .map(|i| {
            place.write("model.bin", format!("version {i}").as_bytes());
            place.commit(&format!("number {i}")).id
        })
        .collect()
}

#[test]
fn what_is_noted_counts_for_the_best_and_can_be_changed_and_removed() {
    let mut place = place();
    let ids = versions(&place, 3);
    assert!(set(&place.repo, &ids[0], &[("acc", "0.5"), ("run", "https://example.org/1")]).expect("set"));
    assert!(set(&place.repo, &ids[1], &[("acc", "0.9")]).expect("set"));
    assert!(!set(&place.repo, &ids[1], &[("acc", "0.9")]).expect("the same again"));
    place.reopen();
    assert_eq!(resolve(&place.repo, "main@best(acc)").expect("best"), ids[1]);
    set(&place.repo, &ids[1], &[("acc", "0.1")]).expect("set");
    assert_eq!(resolve(&place.repo, "main@best(acc)").expect("best"), ids[0]);
    let all = notes(&place.repo).expect("notes");
    assert_eq!(shown(&all, &ids[0]), ["acc=0.5", "run=https://example.org/1"]);
    let commit = all.annotated(&ids[0], place.repo.odb().commit(&ids[0]).expect("commit"));
    assert_eq!((commit.metrics["acc"], commit.meta["run"].as_str()), (0.5, "https://example.org/1"));
    assert!(remove_notes(&place.repo, &ids[0], &["acc".to_owned()]).expect("removed"));
    assert!(!remove_notes(&place.repo, &ids[0], &["acc".to_owned()]).expect("nothing there"));
    assert_eq!(shown(&notes(&place.repo).expect("notes"), &ids[0]), ["run=https://example.org/1"]);
    assert_eq!(resolve(&place.repo, "main@best(acc)").expect("best"), ids[1]);
    // The versions are what they were.
    assert_eq!(resolve(&place.repo, "main").expect("main"), ids[2]);
    let error = set(&place.repo, &Id::from_content(mdl_objects::Kind::Commit, b"no"), &[("a", "1")]);
    assert_eq!(error.expect_err("no version").kind(), ErrorKind::NotFound);
    for key in ["", "a b\n", "a=b"] {
        assert_eq!(set(&place.repo, &ids[0], &[(key, "1")]).expect_err(key).kind(), ErrorKind::Usage);
    }
}

#[test]
fn collections_and_compactions_keep_them_and_checks_find_their_damage() {
    let place = place();
    let ids = versions(&place, 4);
    for (i, id) in ids.iter().enumerate() {
        set(&place.repo, id, &[("acc", &format!("0.{i}")), ("why", "evaluated later")]).expect("set");
    }
    let before = notes(&place.repo).expect("notes");
    let all = GcOptions { prune_now: true, ..GcOptions::default() };
    gc(&place.repo, &all, &Silent).expect("gc");
    compact(&place.repo, &CompactOptions::default(), &Silent).expect("compact");
    gc(&place.repo, &all, &Silent).expect("gc");
    let repo = Repo::open(place.path(), engine()).expect("open");
    assert_eq!(notes(&repo).expect("notes"), before);
    let report = fsck(&repo, false, &Silent).expect("fsck");
    assert!(report.problems.is_empty(), "{:?}", report.problems);
    // The ref points at nothing: listings go on, readers of notes and a check say so.
    let key = place.path().join(".mdl").join(NOTES);
    let whole = std::fs::read(&key).expect("ref");
    std::fs::write(&key, format!("{}\n", "0".repeat(64))).expect("write");
    assert_eq!(shown_notes(&repo).expect("nothing to show"), VersionNotes::default());
    notes(&repo).expect_err("damaged");
    assert!(!fsck(&repo, false, &Silent).expect("fsck").problems.is_empty());
    // A version is no notes.
    std::fs::write(&key, format!("{}\n", ids[3])).expect("write");
    assert_eq!(notes(&repo).expect_err("no notes").kind(), ErrorKind::Corrupt);
    std::fs::write(&key, whole).expect("write");
    assert_eq!(notes(&repo).expect("notes"), before);
}

#[test]
fn many_writers_at_once_lose_nothing() {
    let place = place();
    let ids = versions(&place, 3);
    let (writers, each) = (6, 5);
    let barrier = Barrier::new(writers);
    thread::scope(|scope| {
        for w in 0..writers {
            let (barrier, ids, path) = (&barrier, &ids, place.path());
            scope.spawn(move || {
                let repo = Repo::open(path, engine()).expect("open").without_index();
                barrier.wait();
                for i in 0..each {
                    let key = format!("w{w}/{i}");
                    set(&repo, &ids[i % 3], &[(&key, "1.5"), ("last", &w.to_string())]).expect("noted");
                }
            });
        }
    });
    let all = notes(&Repo::open(place.path(), engine()).expect("open")).expect("notes");
    let count: usize = ids.iter().map(|id| all.on(id).filter(|(key, ..)| key.starts_with('w')).count()).sum();
    assert_eq!(count, writers * each);
}

#[test]
fn a_merge_of_what_is_there_already_moves_nothing() {
    let place = place();
    let ids = versions(&place, 1);
    set(&place.repo, &ids[0], &[("acc", "nan"), ("inf", "inf")]).expect("set");
    let name = RefName::parse(NOTES).expect("name");
    let at = place.repo.refs().get(&name).expect("ref").expect("there");
    assert_eq!(merge_notes(&place.repo, &at).expect("merged"), at);
    set(&place.repo, &ids[0], &[("acc", "1")]).expect("set");
    let now = place.repo.refs().get(&name).expect("ref").expect("there");
    assert_eq!(merge_notes(&place.repo, &at).expect("older ones change nothing"), now);
    assert_eq!(place.repo.refs().reflog(&name).expect("log").len(), 2);
}
