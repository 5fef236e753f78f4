//! Transfers of histories whose versions aged: what each side gives of them before and after it collects.

mod hostile;
mod partial;
mod rounds;
#[path = "../../../../repo/tests/it/aging/run.rs"]
mod run;
mod states;
mod weights;

use crate::support::{Place, engine, near, place};
use mdl_objects::Id;
use mdl_remote::{
    Peer,
    fetch::{note_refs, receive},
    push::{Push, Pushed, push},
    sync::{RefMove, Want},
};
use mdl_repo::{Fidelity, HEADS, REMOTES, Repo, Result, Silent};
use run::{NOW, Run, Version, fidelity, is_clean, read};

const MAIN: &str = "refs/heads/main";

/// What is left of a version.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Left {
    Exact,
    Near,
    Gone,
}
use Left::{Exact, Gone, Near};

/// Another handle: what this one has seen before a collection says nothing.
fn open(place: &Place) -> Repo {
    Repo::open(place.dir.path(), engine()).expect("open")
}

fn push_refs(from: &Place, to: &Place, refs: &[(&str, Option<Id>)]) -> Result<Pushed> {
    let wish =
        |(name, new): &(&str, Option<Id>)| Push { name: (*name).to_owned(), new: *new, force: false, lease: None };
    push(&open(from), &near(to), &refs.iter().map(wish).collect::<Vec<_>>(), "push", &Silent)
}

fn send(from: &Place, to: &Place, refs: &[(&str, Option<Id>)]) {
    let done = push_refs(from, to, refs).expect("push");
    assert!(done.refs.iter().all(|(_, r)| r.is_ok()), "{:?}", done.refs);
}

/// Fetches all branches and tags, and moves the branches of the same names along.
fn pull(to: &Place, from: &Place) {
    let repo = open(to);
    let refs = near(from).refs().expect("refs").refs;
    let want = Want { tips: refs.iter().map(|(_, id)| *id).collect(), ..Want::default() };
    receive(&repo, &near(from), want, &Silent).expect("received");
    let noted = |(name, id): &(String, Id)| {
        let name = name.strip_prefix(HEADS).map_or(name.clone(), |short| format!("{REMOTES}origin/{short}"));
        RefMove { expected: repo.refs().get_full(&name), name, new: Some(*id), force: true }
    };
    let moves: Vec<RefMove> = refs.iter().map(noted).filter(|m| m.expected != m.new).collect();
    let done = note_refs(&repo, moves, false, "fetch", &Silent).expect("noted");
    assert!(done.iter().all(|(_, r)| r.is_ok()), "{done:?}");
    for (name, id) in refs.iter().filter(|(name, _)| name.starts_with(HEADS)) {
        let here = repo.refs().get_full(name);
        if here != Some(*id) {
            mdl_repo::move_ref(&repo, name, here, Some(*id), None, "pull").expect("moved");
        }
    }
}

trait GetFull {
    fn get_full(&self, name: &str) -> Option<Id>;
}

impl GetFull for mdl_repo::Refs {
    fn get_full(&self, name: &str) -> Option<Id> {
        let all = self.list("refs/").expect("refs");
        all.into_iter().find(|(n, _)| format!("refs/{n}") == name).map(|(_, id)| id)
    }
}

fn clone_of(from: &Place) -> Place {
    let to = place();
    pull(&to, from);
    to
}

/// Goes on with a run in another repository.
fn goes_on(run: &Run, p: Place, keep: &str) -> Run {
    let other = Run { p, training: run.training.clone(), step: run.step, all: run.all.clone() };
    other.keep(keep);
    other
}

fn gives(repo: &Repo, version: &Version, left: Left, what: &str) {
    if left == Gone {
        assert_eq!(fidelity(repo, &version.id), Fidelity::Gone, "{what}");
        assert!(read(repo, &version.id).is_err(), "{what}");
    } else {
        version.gives(repo, left == Exact, what);
    }
}

/// Checks what a repository gives of versions, and that nothing is damaged.
fn holds(place: &Place, all: &[Version], left: &[Left]) {
    let repo = open(place);
    assert_eq!(all.len(), left.len());
    for (n, (version, left)) in all.iter().zip(left).enumerate() {
        gives(&repo, version, *left, &format!("version {n}"));
    }
    is_clean(&repo);
}

fn collect(place: &Place) {
    mdl_repo::gc(&open(place), &NOW, &Silent).expect("gc");
}
