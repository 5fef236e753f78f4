//! History in pages: together they are the whole history, whatever the commits' clocks said.

use crate::support::{add_object, bare_commit, fresh};
use mdl_objects::{Commit, Id, Kind};
use mdl_repo::{ErrorKind, Listed, PageBounds, Repo, Result, WriteTransaction};
use proptest::{collection::vec, prelude::*};
use std::collections::HashSet;

fn repo() -> Repo {
    fresh().1
}

/// Commits with these times and parents (places before their own).
fn graph(repo: &Repo, nodes: &[(i64, Vec<usize>)]) -> Vec<Id> {
    graph_saying(repo, nodes, 0)
}

/// The same with messages that are so many bytes longer.
fn graph_saying(repo: &Repo, nodes: &[(i64, Vec<usize>)], more: usize) -> Vec<Id> {
    let transaction = WriteTransaction::begin(repo).expect("lock");
    let mut pack = transaction.pack([]).expect("pack");
    let mut ids: Vec<Id> = Vec::new();
    for (n, (time_ms, parents)) in nodes.iter().enumerate() {
        let mut parents: Vec<Id> = parents.iter().filter(|p| **p < n).map(|p| ids[*p]).collect();
        parents.dedup();
        let message = format!("number {n}{}", "x".repeat(more));
        let commit = Commit { parents, message, ..bare_commit(Id::from_content(Kind::Tree, b"none"), *time_ms) };
        ids.push(add_object(&mut pack, Kind::Commit, &commit.encode()));
    }
    transaction.publish(pack).expect("published");
    ids
}

/// More than any page here says.
const MUCH: usize = 1 << 30;

type Page = (Vec<Listed>, Option<Id>);

/// A page of all commits.
fn a_page(repo: &Repo, starts: &[Id], after: Option<&Id>, (commits, bytes): (usize, usize)) -> Result<Page> {
    let bounds = PageBounds { commits, bytes, looked_at: usize::MAX };
    let page = mdl_repo::log_page(repo, starts, after, bounds, &mut |_| Ok(true))?;
    Ok((page.listed, page.next))
}

fn pages(repo: &Repo, starts: &[Id], limit: usize, bytes: usize) -> Vec<Id> {
    let (mut out, mut after) = (Vec::new(), None);
    loop {
        let (page, next) = a_page(repo, starts, after.as_ref(), (limit, bytes)).expect("page");
        assert!(page.len() <= limit);
        let last = page.last().map(|listed| listed.step.id);
        assert!(next.is_none() || next == last);
        let said: usize = page.iter().map(|listed| listed.step.commit.said()).sum();
        assert!(said <= bytes || page.len() == 1, "{said} bytes of {}", page.len());
        if bytes == MUCH {
            assert_eq!(next.is_some(), page.len() == limit && next == last);
        }
        out.extend(page.iter().map(|listed| listed.step.id));
        match next {
            Some(id) => after = Some(id),
            None => return out,
        }
    }
}

proptest! {
    #[test]
    fn pages_are_the_history(
        nodes in vec((0..4i64, vec(0..30usize, 0..3)), 1..30),
        starts in vec(0..30usize, 1..4),
        limit in 1..9usize,
    ) {
        let repo = repo();
        let ids = graph(&repo, &nodes);
        let starts: Vec<Id> = starts.iter().map(|s| ids[s % ids.len()]).collect();
        let all: Vec<Id> = mdl_repo::history(&repo, &starts).expect("history").map(|s| s.expect("step").id).collect();
        let paged = pages(&repo, &starts, limit, MUCH);
        // Commits here say some forty bytes each.
        prop_assert_eq!(&pages(&repo, &starts, limit, 100), &all);
        prop_assert_eq!(&pages(&repo, &starts, limit, 0), &all);
        prop_assert_eq!(&paged, &all);
        prop_assert_eq!(paged.iter().collect::<HashSet<_>>().len(), paged.len());
        let backwards: Vec<Id> = starts.iter().rev().copied().collect();
        prop_assert_eq!(pages(&repo, &backwards, limit, MUCH), all);
    }
}

proptest! {
    #[test]
    fn pages_of_what_passes_are_what_passes(
        nodes in vec((0..4i64, vec(0..30usize, 0..3)), 1..30),
        (commits, looked_at) in (1..5usize, 1..9usize),
        chosen in vec(any::<bool>(), 30),
    ) {
        let repo = repo();
        let ids = graph(&repo, &nodes);
        let passing: HashSet<Id> = ids.iter().zip(&chosen).filter(|(_, c)| **c).map(|(id, _)| *id).collect();
        let starts = [ids[ids.len() - 1], ids[0]];
        let all = mdl_repo::history(&repo, &starts).expect("history").map(|s| s.expect("step").id);
        let wanted: Vec<Id> = all.filter(|id| passing.contains(id)).collect();
        let bounds = PageBounds { commits, bytes: MUCH, looked_at };
        let (mut found, mut after) = (Vec::new(), None);
        loop {
            let mut looks = 0;
            let page = mdl_repo::log_page(&repo, &starts, after.as_ref(), bounds, &mut |step| {
                looks += 1;
                Ok(passing.contains(&step.id))
            }).expect("page");
            prop_assert!(page.listed.len() <= commits && looks <= looked_at);
            found.extend(page.listed.iter().map(|listed| listed.step.id));
            match page.next {
                Some(id) => after = Some(id),
                None => break,
            }
        }
        prop_assert_eq!(found, wanted);
    }
}

#[test]
fn the_ends_of_a_history() {
    let repo = repo();
    let ids = graph(&repo, &[(1, vec![]), (1, vec![0]), (0, vec![1]), (9, vec![])]);
    let tip = [ids[2]];
    let (page, next) = a_page(&repo, &tip, None, (0, MUCH)).expect("page");
    assert_eq!((page.len(), next), (0, None));
    let (page, next) = a_page(&repo, &tip, Some(&ids[0]), (5, MUCH)).expect("page");
    assert_eq!((page.len(), next), (0, None));
    let (page, next) = a_page(&repo, &[], None, (5, MUCH)).expect("page");
    assert_eq!((page.len(), next), (0, None));
    let strange = a_page(&repo, &tip, Some(&ids[3]), (5, MUCH)).expect_err("not in this history");
    assert_eq!(strange.kind(), ErrorKind::NotFound);
}

#[test]
fn of_a_commit_that_says_too_much_a_page_has_the_beginning_and_the_commit_itself_all() {
    let repo = repo();
    let line: Vec<_> = (0..4usize).map(|n| (n as i64, n.checked_sub(1).into_iter().collect())).collect();
    let ids = graph_saying(&repo, &line, 8 << 20);
    let tip = [ids[3]];
    let (page, next) = a_page(&repo, &tip, None, (10, MUCH)).expect("page");
    assert_eq!((page.len(), next), (4, None));
    for (listed, id) in page.iter().zip(ids.iter().rev()) {
        assert!(listed.cut && listed.step.id == *id && listed.step.commit.said() < 64 << 10);
        let whole = repo.odb().commit(id).expect("commit");
        assert!(whole.message.starts_with(&listed.step.commit.message) && whole.message.len() > 8 << 20);
    }
    // What walks sees all of it.
    let walked = mdl_repo::history(&repo, &tip).expect("history").map(|s| s.expect("step").commit.message.len());
    assert!(walked.min() > Some(8 << 20));
    assert_eq!(pages(&repo, &tip, 10, 20 << 10), ids.iter().rev().copied().collect::<Vec<_>>());
}
