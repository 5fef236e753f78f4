//! Marks that others make up: none puts other contents in a version's place, or takes any from what is held here.

use super::{Exact, MAIN, Near, collect, holds, is_clean, open, run::Run, send};
use crate::support::{near, place};
use mdl_objects::{Commit, Id, Kind};
use mdl_remote::{
    Advertised, DirectPeer, Peer, ReadPart, Take,
    fetch::receive,
    push::{Push, push},
    sync::{Bundle, Piece, RefMove, TransferPlan, Want},
};
use mdl_repo::{Progress, PrunedMark, Result, Silent};
use std::collections::HashSet;

/// Passes on all but marks, of which it makes others.
pub struct Forger<F> {
    pub inner: DirectPeer,
    pub forge: F,
}

impl<F: Fn(&mut PrunedMark) + Sync> Forger<F> {
    fn forged(&self, pruned: &[(Id, PrunedMark)]) -> Vec<(Id, PrunedMark)> {
        let mut out = pruned.to_vec();
        out.iter_mut().for_each(|(_, mark)| (self.forge)(mark));
        out
    }
}

impl<F: Fn(&mut PrunedMark) + Send + Sync> Peer for Forger<F> {
    fn refs(&self) -> Result<Advertised> {
        self.inner.refs()
    }

    fn plan(&self, want: &Want, progress: &dyn Progress) -> Result<TransferPlan> {
        let mut plan = self.inner.plan(want, progress)?;
        plan.pruned = self.forged(&plan.pruned);
        TransferPlan::decode(&plan.encode()?)
    }

    fn plan_standalone(&self, tensors: &[Id], progress: &dyn Progress) -> Result<Option<TransferPlan>> {
        self.inner.plan_standalone(tensors, progress)
    }

    fn read(&self, pieces: &[Piece], take: &mut Take<'_>) -> Result<()> {
        self.inner.read(pieces, take)
    }

    fn missing(&self, ids: &[Id]) -> Result<HashSet<Id>> {
        self.inner.missing(ids)
    }

    fn known(&self, commits: &[Id]) -> Result<HashSet<Id>> {
        self.inner.known(commits)
    }

    fn bundle_bytes(&self) -> u64 {
        self.inner.bundle_bytes()
    }

    fn send(&self, bundles: &[Bundle], read: &ReadPart<'_>, progress: &dyn Progress) -> Result<u64> {
        self.inner.send(bundles, read, progress)
    }

    fn note_pruned(&self, pruned: &[(Id, PrunedMark)]) -> Result<()> {
        self.inner.note_pruned(&self.forged(pruned))
    }

    fn move_refs(&self, moves: &[RefMove], message: &str) -> Result<Vec<Result<()>>> {
        self.inner.move_refs(moves, message)
    }
}

fn run() -> Run {
    let mut run = Run::new("exact_latest = 1");
    run.on(3).collect();
    run
}

#[test]
fn another_tree_than_the_commits_own_stands_for_nothing() {
    let run = run();
    let odb = run.p.repo.odb();
    let newest = odb.commit(&run.all[2].id).expect("commit");
    let first = odb.commit(&run.all[0].id).expect("commit");
    let unknown = Id::from_content(Kind::Tree, b"nothing");
    // Another version's tree, another approximation, one that is nowhere, the exact one, and a blob.
    let others = [newest.tree, newest.approximation.expect("lossy"), unknown, first.tree, first.report.expect("one")];
    for tree in others {
        let forge = move |mark: &mut PrunedMark| mark.stand_in = Some(tree);
        let there = place();
        let forger = Forger { inner: near(&there), forge };
        let wish = Push { name: MAIN.to_owned(), new: Some(run.all[2].id), force: false, lease: None };
        let refused = push(&open(&run.p), &forger, &[wish], "push", &Silent);
        assert!(refused.is_err(), "what the first versions hold is not there: {refused:?}");

        let here = place();
        let forger = Forger { inner: near(&run.p), forge };
        let want = Want { tips: vec![run.all[2].id], ..Want::default() };
        assert!(receive(&here.repo, &forger, want, &Silent).is_err());
        for place in [&there, &here] {
            assert!(mdl_repo::pruned(&open(place)).expect("the record").is_empty());
            is_clean(&open(place));
            assert!(open(place).refs().list("refs/").expect("refs").is_empty());
            // The truth is taken in afterwards.
            send(&run.p, place, &[(MAIN, Some(run.all[2].id))]);
            collect(place);
            holds(place, &run.all, &[Near, Near, Exact]);
        }
    }
}

#[test]
fn an_aged_version_that_is_said_to_be_pruned_is_not_taken_for_whole() {
    let run = run();
    let there = place();
    let forger = Forger { inner: near(&there), forge: |mark: &mut PrunedMark| mark.stand_in = None };
    let wish = Push { name: MAIN.to_owned(), new: Some(run.all[2].id), force: false, lease: None };
    // Its approximation came all the same. Whatever becomes of the push, nothing is damaged, and what is held elsewhere
    // is as it was.
    let _ = push(&open(&run.p), &forger, &[wish], "push", &Silent);
    is_clean(&open(&there));
    collect(&there);
    is_clean(&open(&there));
    holds(&run.p, &run.all, &[Near, Near, Exact]);
}

#[test]
fn marks_cost_nothing_of_what_refs_reach() {
    let mut run = Run::new("exact_latest = 3");
    run.on(3);
    let odb = run.p.repo.odb();
    let commits: Vec<_> = run.all.iter().map(|v| odb.commit(&v.id).expect("commit")).collect();
    let mark = |stand_in| PrunedMark { time_ms: 1, rules: "forged".to_owned(), stand_in, ..PrunedMark::default() };
    for n in 0..3 {
        let forged = |c: &Commit| mark([c.approximation, Some(c.tree), None][n]);
        let marks: Vec<_> = run.all.iter().zip(&commits).map(|(v, c)| (v.id, forged(c))).collect();
        near(&run.p).note_pruned(&marks).expect("noted");
        assert!(mdl_repo::pruned(&open(&run.p)).expect("the record").is_empty());
        collect(&run.p);
        holds(&run.p, &run.all, &[Exact, Exact, Exact]);
    }
}

#[test]
fn a_mark_for_what_is_here_without_a_ref_is_taken_only_if_something_lacks() {
    let run = run();
    let there = place();
    send(&run.p, &there, &[("refs/heads/a", Some(run.all[2].id))]);
    send(&run.p, &there, &[("refs/heads/a", None)]);
    let commit = run.p.repo.odb().commit(&run.all[2].id).expect("commit");
    let mark =
        PrunedMark { time_ms: 1, rules: "forged".to_owned(), stand_in: commit.approximation, ..PrunedMark::default() };
    near(&there).note_pruned(&[(run.all[2].id, mark)]).expect("noted");
    let record = mdl_repo::pruned(&open(&there)).expect("the record");
    assert!(record.aged(&run.all[2].id).is_none(), "it is all here");
    send(&run.p, &there, &[(MAIN, Some(run.all[2].id))]);
    holds(&there, &run.all, &[Near, Near, Exact]);
}
