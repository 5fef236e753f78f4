//! Runs what keeps a repository small and sound: collections, checks, prunings taken back.

use crate::model::{
    check::{Check, fail},
    expect::Expect,
    reference::{Known, Place},
    steps::{Collect, Trouble},
    world::World,
};
use mdl_objects::Id;
use mdl_repo::{CompactOptions, GcOptions, Progress, Repo};
use std::{collections::BTreeSet, time::Duration};

impl World {
    pub fn merge_to(&mut self, at: usize, to: Id, trouble: Trouble) -> Check {
        let expect = |known: &Known, place: &Place| match place.tip() {
            Some(from) if known.reaches(&from, &to) => Expect::done(place.clone()),
            Some(from) if !known.reaches(&to, &from) => Expect::Refused,
            _ if place.pruned.contains(&to) => Expect::Refused,
            _ => place.checkout(known, to, None, false).map(|p| p.advance(to)),
        };
        let verb = |repo: &Repo, p: &dyn Progress| mdl_repo::merge(repo, &to, "it", p).map(drop);
        self.act(at, trouble, false, &expect, verb).map(drop)
    }

    pub fn gc(&mut self, at: usize, how: Collect, trouble: Trouble) -> Check {
        let options = GcOptions {
            dry_run: false,
            prune_now: how == Collect::Now,
            grace: (how == Collect::NoGrace).then_some(Duration::ZERO),
        };
        let before = self.place(at).clone();
        let dir = self.real(at).dir.clone();
        let rig = self.rig(trouble, at, None, &dir);
        let result = mdl_repo::gc(&self.real(at).repo, &options, &rig.progress).map(drop);
        let beside = self.unrig(rig, trouble)?;
        let left = match how {
            Collect::Plain => before.clone(),
            _ => before.collected(&self.known, how == Collect::NoGrace),
        };
        let pruned = self.observe(at)?.pruned;
        if !left.pruned.is_subset(&pruned) || !pruned.is_subset(&before.pruned) {
            return fail(format!("gc left the marks {pruned:?} of {:?}", before.pruned));
        }
        let expect = |_: &Known, place: &Place| {
            let mut after = place.clone();
            after.pruned.clone_from(&pruned);
            (after.alive, after.own, after.fetched) = (left.alive.clone(), left.own.clone(), left.fetched.clone());
            (after.logged, after.shards) = (left.logged.clone(), left.shards.clone());
            Expect::done(after)
        };
        self.settle(at, false, &expect, &result, &beside).map(drop)
    }

    pub fn compact(&mut self, at: usize, trouble: Trouble) -> Check {
        let expect = |_: &Known, place: &Place| Expect::done(place.clone()).unless(!place.partial);
        let verb = |repo: &Repo, p: &dyn Progress| mdl_repo::compact(repo, &CompactOptions::default(), p).map(drop);
        self.act(at, trouble, false, &expect, verb).map(drop)
    }

    pub fn fsck(&mut self, at: usize, quick: bool, trouble: Trouble) -> Check {
        let mut problems = Vec::new();
        let verb = |repo: &Repo, p: &dyn Progress| {
            problems = mdl_repo::fsck(repo, quick, p)?.problems;
            Ok(())
        };
        let expect = |_: &Known, place: &Place| Expect::done(place.clone());
        self.act(at, trouble, false, &expect, verb)?;
        match problems.is_empty() || trouble != Trouble::None {
            true => Ok(()),
            false => fail(format!("fsck finds {problems:#?}")),
        }
    }

    pub fn undo(&mut self, at: usize, version: Option<usize>, trouble: Trouble) -> Check {
        let before = self.place(at).clone();
        let marks = mdl_repo::pruned(&self.real(at).repo).map_err(|e| e.to_string())?;
        let last = marks.iter().map(|(_, mark)| mark.time_ms).max();
        let all: Vec<Id> = before.pruned.iter().copied().collect();
        let one = version.and_then(|n| n.checked_rem(all.len())).map(|n| vec![all[n]]);
        let wanted: BTreeSet<Id> = match &one {
            Some(ids) => ids.iter().copied().collect(),
            None => marks.iter().filter(|(_, m)| Some(m.time_ms) == last).map(|(id, _)| *id).collect(),
        };
        let mut back = BTreeSet::new();
        let dir = self.real(at).dir.clone();
        let rig = self.rig(trouble, at, None, &dir);
        let result = mdl_repo::undo_prune(&self.real(at).repo, one.as_deref()).map(|done| {
            back.extend(done.iter().map(|p| p.commit));
        });
        let beside = self.unrig(rig, trouble)?;
        let there: BTreeSet<Id> = wanted.intersection(&before.alive).copied().collect();
        if result.is_ok() && (!there.is_subset(&back) || !back.is_subset(&wanted)) {
            return fail(format!("undo took back {back:?}; there were {there:?} of {wanted:?}"));
        }
        let now = self.observe(at)?.pruned;
        let gone: BTreeSet<Id> = before.pruned.difference(&now).copied().collect();
        let expect = |_: &Known, place: &Place| {
            // What is said to be back is whole from now on.
            let mut after = place.clone();
            let back = if back.is_empty() { &gone } else { &back };
            after.pruned.retain(|id| !back.contains(id));
            after.alive.extend(back);
            match there.is_empty() {
                true if wanted.is_empty() => Expect::Refused,
                true => Expect::either(after),
                false => Expect::done(after),
            }
        };
        self.settle(at, false, &expect, &result, &beside).map(drop)
    }
}
