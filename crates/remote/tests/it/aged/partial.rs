//! Partial clones of histories whose versions aged: what they lack is fetched as it stands where it is.

use super::{
    Exact, Left, MAIN, Near, collect, gives, goes_on, is_clean, open, pull,
    run::{Run, fidelity, read},
    send,
};
use crate::support::{Place, engine, near, place};
use mdl_objects::Id;
use mdl_remote::{completed, fetch::receive, sync::Want};
use mdl_repo::{CommitRequest, ErrorKind, Fidelity, Remote, Repo, Silent};

/// A clone of the newest generation only.
pub fn shallow(from: &Place, tip: Id) -> Place {
    let mut to = place();
    let want = Want { tips: vec![tip], depth: Some(1), ..Want::default() };
    receive(&to.repo, &near(from), want, &Silent).expect("received");
    let url = from.dir.path().display().to_string();
    let remote = Remote { url, partial: true, depth: Some(1), only: Vec::new(), branch: None };
    to.repo.set_remote("origin", Some(&remote)).expect("remote");
    mdl_repo::move_ref(&to.repo, MAIN, None, Some(tip), None, "clone").expect("moved");
    to
}

pub fn lazy(place: &Place) -> Repo {
    completed(open(place), &engine())
}

#[test]
fn a_partial_clone_fetches_approximations_where_exact_contents_are_gone() {
    let mut run = Run::new("exact_latest = 1");
    run.on(3).collect();
    run.on(2);
    let clone = shallow(&run.p, run.all[4].id);
    is_clean(&open(&clone));
    gives(&open(&clone), &run.all[4], Exact, "without a promisor");
    for n in [0usize, 1] {
        gives(&lazy(&clone), &run.all[n], Near, &format!("version {n}"));
    }
    is_clean(&open(&clone));
    // Of what has aged there, and is still exact, either comes.
    for n in [2usize, 3] {
        let repo = lazy(&clone);
        let file = read(&repo, &run.all[n].id).expect("read");
        let left = if file == run.all[n].exact { Exact } else { Near };
        gives(&repo, &run.all[n], left, &format!("version {n}"));
    }
    collect(&run.p);
    let left = [Near, Near, Near, Near, Exact];
    collect(&clone);
    for (n, left) in left.into_iter().enumerate() {
        if n < 2 || n == 4 {
            gives(&lazy(&clone), &run.all[n], left, &format!("version {n}"));
        }
        read(&lazy(&clone), &run.all[n].id).expect("read");
    }
    is_clean(&open(&clone));
    run.on(2).collect();
    let all: Vec<Left> = [Near; 6].into_iter().chain([Exact]).collect();
    super::holds(&run.p, &run.all, &all);
}

#[test]
fn a_partial_clone_goes_on_from_an_aged_version() {
    let mut run = Run::new("exact_latest = 1");
    run.on(3).collect();
    let clone = shallow(&run.p, run.all[2].id);
    let repo = lazy(&clone);
    assert_eq!(fidelity(&repo, &run.all[1].id), Fidelity::Approximate, "before it is fetched");
    mdl_repo::create_branch(&repo, "side", &run.all[1].id, false).expect("branch");
    let mut side = goes_on(&run, clone, "exact_latest = 1");
    side.p.repo = repo;
    for _ in 0..2 {
        side.commit(CommitRequest { branch: Some("side".to_owned()), ..CommitRequest::default() });
    }
    let commit = side.p.repo.odb().commit(&side.all[3].id).expect("commit");
    assert_eq!(commit.parents, [run.all[1].id]);
    collect(&side.p);
    for (n, left) in [(1usize, Near), (2, Exact), (3, Near), (4, Exact)] {
        gives(&lazy(&side.p), &side.all[n], left, &format!("version {n}"));
    }
    is_clean(&open(&side.p));
}

#[test]
fn a_partial_clone_from_before_its_versions_aged_learns_it_by_fetching() {
    let mut run = Run::new("exact_latest = 3");
    run.on(3);
    let clone = shallow(&run.p, run.all[2].id);
    run.on(3).collect();
    gives(&lazy(&clone), &run.all[2], Exact, "it has it");
    // What it was told of is there no more.
    let error = read(&lazy(&clone), &run.all[1].id).expect_err("gone");
    assert_eq!(error.kind(), ErrorKind::NotFound, "{error}");
    is_clean(&open(&clone));
    // With the first its branch moves on, with the second the others leave the window.
    pull(&clone, &run.p);
    run.on(1).collect();
    pull(&clone, &run.p);
    for n in 0..7usize {
        let left = if n < 3 { Near } else { Exact };
        if n != 2 {
            gives(&lazy(&clone), &run.all[n], left, &format!("version {n}"));
        }
    }
    is_clean(&open(&clone));
}

#[test]
fn a_whole_clone_of_a_partial_one_is_refused_or_whole() {
    let mut run = Run::new("exact_latest = 1");
    run.on(3).collect();
    let clone = shallow(&run.p, run.all[2].id);
    let there = place();
    // With its promisor it sends all, fetched as it goes.
    let wish = mdl_remote::push::Push { name: MAIN.to_owned(), new: Some(run.all[2].id), force: false, lease: None };
    let done = mdl_remote::push::push(&lazy(&clone), &near(&there), &[wish], "push", &Silent).expect("push");
    assert!(done.refs.iter().all(|(_, r)| r.is_ok()), "{:?}", done.refs);
    super::holds(&there, &run.all, &[Near, Near, Exact]);
    collect(&there);
    super::holds(&there, &run.all, &[Near, Near, Exact]);
    send(&there, &place(), &[(MAIN, Some(run.all[2].id))]);
}
