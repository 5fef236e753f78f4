//! Commits, names, collections and undoings in any order: what must hold after each.

use super::run::{Run, fidelity, is_clean, read};
use mdl_repo::{CommitRequest, Fidelity, PruneOptions, RepoError, Retention, Silent};
use proptest::prelude::*;
use std::collections::{BTreeMap, BTreeSet};

#[derive(Clone, Debug)]
enum Act {
    Commit(usize),
    Branch(usize, usize),
    Tag(usize),
    Untag(usize),
    Undo(usize),
    Prune,
    Compact,
    Collect,
}

fn act() -> impl Strategy<Value = Act> {
    prop_oneof![
        6 => (0usize..2).prop_map(Act::Commit),
        1 => (0usize..2, any::<prop::sample::Index>()).prop_map(|(b, i)| Act::Branch(b, i.index(64))),
        1 => (0usize..64).prop_map(Act::Tag),
        1 => (0usize..64).prop_map(Act::Untag),
        1 => (0usize..64).prop_map(Act::Undo),
        1 => Just(Act::Prune),
        1 => Just(Act::Compact),
        3 => Just(Act::Collect),
    ]
}

/// What must hold, kept by hand.
struct Reference {
    run: Run,
    window: usize,
    tips: BTreeMap<usize, usize>,
    parents: Vec<Option<usize>>,
    tags: BTreeSet<usize>,
    pruned: BTreeSet<usize>,
    /// Seen approximate.
    near: BTreeSet<usize>,
}

impl Reference {
    fn act(&mut self, act: &Act) {
        // What no name reaches a collection may have taken: it gets no name again.
        let (reached, _) = self.reached();
        let repo = &self.run.p.repo;
        let some = |n: usize| n % self.run.all.len();
        match *act {
            Act::Commit(branch) => {
                let request = CommitRequest { branch: Some(name(branch)), ..CommitRequest::default() };
                self.parents.push(self.tips.get(&branch).copied().or(self.tips.get(&0).copied()));
                self.run.commit(request);
                self.tips.insert(branch, self.run.all.len() - 1);
            }
            Act::Branch(branch, n) if branch > 0 && !self.run.all.is_empty() => {
                let n = some(n);
                if !reached.contains(&n) {
                    return;
                }
                let made = mdl_repo::create_branch(repo, &name(branch), &self.run.all[n].id, true);
                assert_eq!(made.is_ok(), !self.pruned.contains(&n), "version {n}: {made:?}");
                made.ok().and_then(|()| self.tips.insert(branch, n));
            }
            Act::Tag(n) if !self.run.all.is_empty() => {
                let n = some(n);
                if !reached.contains(&n) {
                    return;
                }
                let made = mdl_repo::create_tag(repo, &format!("t{n}"), &self.run.all[n].id, None, true);
                assert_eq!(made.is_ok(), !self.pruned.contains(&n), "version {n}: {made:?}");
                made.ok().map(|_| self.tags.insert(n));
            }
            Act::Untag(n) if !self.tags.is_empty() => {
                let n = *self.tags.iter().nth(n % self.tags.len()).expect("a tag");
                mdl_repo::delete_tag(repo, &format!("t{n}")).expect("untagged");
                self.tags.remove(&n);
            }
            Act::Undo(n) if !self.run.aged().is_empty() => {
                let aged = self.run.aged();
                let n = aged[n % aged.len()];
                let undone = mdl_repo::undo_prune(repo, Some(&[self.run.all[n].id])).is_ok();
                if !self.pruned.contains(&n) {
                    assert_eq!(undone, !self.near.contains(&n), "version {n}");
                } else if undone {
                    self.pruned.remove(&n);
                }
            }
            Act::Prune => {
                let rules = Retention::LatestN { n: 4 };
                let report = mdl_repo::prune(repo, None, &rules, &PruneOptions::default()).expect("prune");
                let number = |id| self.run.all.iter().position(|v| v.id == id).expect("a version");
                self.pruned.extend(report.pruned.iter().map(|p| number(p.commit)));
            }
            Act::Compact => drop(mdl_repo::compact(repo, &Default::default(), &Silent).expect("compact")),
            Act::Collect => drop(self.run.collect()),
            _ => {}
        }
    }

    /// Versions that a name or a window keeps exact, if they were when that began.
    fn reached(&self) -> (BTreeSet<usize>, BTreeSet<usize>) {
        let (mut all, mut newest) = (BTreeSet::new(), BTreeSet::new());
        for start in self.tips.values().chain(&self.tags) {
            let mut at = Some(*start);
            while let Some(n) = at {
                all.insert(n);
                at = self.parents[n];
            }
        }
        for tip in self.tips.values() {
            let mut at = Some(*tip);
            for _ in 0..self.window {
                newest.extend(at);
                at = at.and_then(|n| self.parents[n]);
            }
        }
        (all, newest)
    }

    fn check(&mut self, after: &Act) {
        let (reached, newest) = self.reached();
        let repo = &self.run.p.repo;
        for n in reached {
            let version = &self.run.all[n];
            let what = format!("{after:?}, version {n}");
            let file = match read(repo, &version.id) {
                Err(RepoError::Pruned { .. }) if self.pruned.contains(&n) => continue,
                file => file.expect(&what),
            };
            let exact = file == version.exact;
            assert!(exact || file == version.near, "{what}: neither exact nor as judged");
            let want = if exact { Fidelity::Exact } else { Fidelity::Approximate };
            assert_eq!(fidelity(repo, &version.id), want, "{what}");
            if !exact {
                let fresh = self.near.insert(n);
                assert!(!fresh || matches!(after, Act::Collect), "{what}: only a collection takes it");
                assert!(!fresh || !newest.contains(&n), "{what}: it was in a window");
                assert!(!fresh || !self.tags.contains(&n), "{what}: it has a tag");
            } else {
                assert!(!self.near.contains(&n), "{what}: what is gone does not come back");
            }
        }
        is_clean(repo);
    }
}

impl Reference {
    /// After one commit more on every branch and a collection nothing is exact that nothing keeps so.
    fn settle(&mut self) {
        for branch in self.tips.keys().copied().collect::<Vec<_>>() {
            self.act(&Act::Commit(branch));
        }
        self.act(&Act::Collect);
        self.check(&Act::Collect);
        let (_, newest) = self.reached();
        for tip in self.tips.values() {
            let mut at = Some(*tip);
            while let Some(n) = at {
                let kept = newest.contains(&n) || self.tags.contains(&n) || self.pruned.contains(&n);
                assert!(kept || self.near.contains(&n), "version {n} is exact, and nothing keeps it so");
                at = self.parents[n];
            }
        }
    }
}

fn name(branch: usize) -> String {
    if branch == 0 { "main".to_owned() } else { format!("b{branch}") }
}

proptest! {
    #![proptest_config(ProptestConfig {
        cases: 12, max_shrink_iters: 60, failure_persistence: None, ..ProptestConfig::default()
    })]
    #[test]
    fn every_version_gives_what_training_had_or_what_was_judged(
        window in 1usize..3,
        acts in prop::collection::vec(act(), 4..16),
    ) {
        let run = Run::new(&format!("exact_latest = {window}"));
        let (tips, parents, tags, pruned, near) = Default::default();
        let mut reference = Reference { run, window, tips, parents, tags, pruned, near };
        reference.act(&Act::Commit(0));
        for act in &acts {
            reference.act(act);
            reference.check(act);
        }
        reference.settle();
    }
}
