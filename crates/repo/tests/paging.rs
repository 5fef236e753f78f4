//! History in pages: together they are the history, whatever the clocks said. Neighbours: `mdl-repo` from outside. It must not know how
//! a walk goes on.

mod support;

use mdl_codec::CpuEngine;
use mdl_objects::{Commit, Id, Kind, Signature};
use mdl_repo::{
    ErrorKind, Repo,
    pack::{NewObject, PackWriter},
    storage::MemoryStorage,
};
use proptest::{collection::vec, prelude::*};
use std::{collections::HashSet, sync::Arc};

fn repo() -> Repo {
    Repo::init_storage(Arc::new(MemoryStorage::new()), "main", Arc::new(CpuEngine::new())).expect("init")
}

/// Commits with these times and parents (places before their own).
fn graph(repo: &Repo, nodes: &[(i64, Vec<usize>)]) -> Vec<Id> {
    let mut pack = PackWriter::new(repo.storage()).expect("pack");
    let mut ids: Vec<Id> = Vec::new();
    for (n, (time_ms, parents)) in nodes.iter().enumerate() {
        let mut parents: Vec<Id> = parents.iter().filter(|p| **p < n).map(|p| ids[*p]).collect();
        parents.dedup();
        let commit = Commit {
            tree: Id::of(Kind::Tree, b"none"),
            parents,
            author: Signature {
                name: "A".to_owned(),
                email: String::new(),
                time_ms: *time_ms,
                utc_offset_min: 0,
            },
            message: format!("number {n}"),
            step: None,
            epoch: None,
            metrics: Default::default(),
            meta: Default::default(),
            summary: Default::default(),
            report: None,
            resumed_from: None,
            quality: None,
            side: Vec::new(),
            resume: None,
            unknown: Vec::new(),
        };
        let bytes = commit.encode();
        let object = NewObject {
            id: Id::of(Kind::Commit, &bytes),
            kind: Kind::Commit,
            depth: 0,
            base: None,
            grand: None,
            logical: bytes.len() as u64,
        };
        ids.push(object.id);
        pack.add(object, &[&[0], bytes.as_slice()].concat()).expect("add");
    }
    repo.odb()
        .note_pack(pack.finish(&repo.write_lock().expect("lock")).expect("finish"))
        .expect("note");
    ids
}

fn pages(repo: &Repo, starts: &[Id], limit: usize) -> Vec<Id> {
    let (mut out, mut after) = (Vec::new(), None);
    loop {
        let (page, next) = repo.log_page(starts, after.as_ref(), limit).expect("page");
        assert!(page.len() <= limit);
        assert_eq!(next.is_some(), page.len() == limit && next == page.last().map(|s| s.id));
        out.extend(page.iter().map(|s| s.id));
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
        let all: Vec<Id> = repo.history(&starts).expect("history").map(|s| s.expect("step").id).collect();
        let paged = pages(&repo, &starts, limit);
        prop_assert_eq!(&paged, &all);
        prop_assert_eq!(paged.iter().collect::<HashSet<_>>().len(), paged.len());
        let backwards: Vec<Id> = starts.iter().rev().copied().collect();
        prop_assert_eq!(pages(&repo, &backwards, limit), all);
    }
}

#[test]
fn the_ends_of_a_history() {
    let repo = repo();
    let ids = graph(&repo, &[(1, vec![]), (1, vec![0]), (0, vec![1]), (9, vec![])]);
    let tip = [ids[2]];
    let (page, next) = repo.log_page(&tip, None, 0).expect("page");
    assert_eq!((page.len(), next), (0, None));
    let (page, next) = repo.log_page(&tip, Some(&ids[0]), 5).expect("page");
    assert_eq!((page.len(), next), (0, None));
    let (page, next) = repo.log_page(&[], None, 5).expect("page");
    assert_eq!((page.len(), next), (0, None));
    let strange = repo.log_page(&tip, Some(&ids[3]), 5).expect_err("not in this history");
    assert_eq!(strange.kind(), ErrorKind::NotFound);
}
