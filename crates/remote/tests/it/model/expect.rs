//! Each verb as a change of the model: what a checkout, a pruning and a collection are to do, and what is refused.

use crate::model::reference::{Known, Place, branch, collide};
use mdl_objects::Id;
use mdl_repo::{HEADS, Head};
use std::collections::BTreeSet;

/// What a verb is to do.
pub enum Expect {
    /// This.
    Done(Box<Place>),
    /// Nothing: it is refused.
    Refused,
    /// Either.
    Either(Box<Place>),
}

impl Expect {
    pub fn done(place: Place) -> Expect {
        Expect::Done(Box::new(place))
    }

    pub fn either(place: Place) -> Expect {
        Expect::Either(Box::new(place))
    }

    /// The same, where it is not sure that what is needed is there.
    pub fn unless(self, sure: bool) -> Expect {
        match self {
            Expect::Done(place) if !sure => Expect::Either(place),
            other => other,
        }
    }

    pub fn after(self) -> Option<Place> {
        match self {
            Expect::Done(place) | Expect::Either(place) => Some(*place),
            Expect::Refused => None,
        }
    }

    pub fn map(self, f: impl FnOnce(Place) -> Place) -> Expect {
        match self {
            Expect::Done(p) => Expect::done(f(*p)),
            Expect::Either(p) => Expect::either(f(*p)),
            Expect::Refused => Expect::Refused,
        }
    }
}

impl Place {
    /// The work tree becomes a version, of which `only` is wanted; none of what is in no version is lost unless forced.
    pub fn checkout(&self, known: &Known, to: Id, only: Option<&str>, force: bool) -> Expect {
        let target = known.files(&to);
        let current = self.work_tree_base().map(|id| known.files(&id)).unwrap_or_default();
        let before = self.files();
        let mut work = before.clone();
        let (mut clash, mut any) = (false, only.is_none());
        // A glob without a directory is one in any directory.
        let wanted = |rel: &str, only: &str| rel == only || !only.contains('/') && rel.ends_with(&format!("/{only}"));
        for (rel, new) in target.iter().filter(|(rel, _)| only.is_none_or(|only| wanted(rel, only))) {
            any = true;
            let found = before.get(rel);
            let lost = found.is_some_and(|found| found != new && current.get(rel) != Some(found));
            clash |= lost && !force;
            work.insert(rel.clone(), new.clone());
        }
        if only.is_none() {
            for (rel, old) in current.iter().filter(|(rel, _)| !target.contains_key(*rel)) {
                let Some(found) = before.get(rel) else { continue };
                clash |= found != old && !force;
                work.remove(rel);
            }
        }
        if clash || !any {
            return Expect::Refused;
        }
        let all = before.keys().chain(target.keys());
        // A directory where a file is to be, or the other way round, is told in words: refused as a rule.
        let sure = !collide(all)
            && self.can_read(known, &to)
            && self.work_tree_base().is_none_or(|b| self.can_read(known, &b));
        let mut after = self.clone();
        after.work = Some(work);
        Expect::done(after).unless(sure)
    }

    /// Whether a version must be readable here, as far as is known here.
    pub fn can_read(&self, known: &Known, id: &Id) -> bool {
        known.versions.contains_key(id) && self.alive.contains(id)
    }

    /// HEAD goes to a version, as `mdl checkout` and `mdl switch` have it.
    pub fn go(&self, known: &Known, to: Id, head: &Head, force: bool) -> Expect {
        let land = |mut place: Place| {
            place.head = head.clone();
            place.base = Some(to);
            place
        };
        let here = !force && self.work_tree_base() == Some(to) && self.tip() == Some(to);
        if here && self.changes(known).iter().any(|(_, what)| *what == "modified") {
            // What the files are noted to be of stays as it is.
            let mut after = self.clone();
            after.head = head.clone();
            return Expect::done(after).unless(self.can_read(known, &to));
        }
        self.checkout(known, to, None, force).map(land)
    }

    /// Differences of the work tree to the version that it is of.
    pub fn changes(&self, known: &Known) -> Vec<(String, &'static str)> {
        let old = self.work_tree_base().map(|id| known.files(&id)).unwrap_or_default();
        let work = self.files();
        let mut out = Vec::new();
        for (rel, file) in &work {
            match old.get(rel) {
                None => out.push((rel.clone(), "added")),
                Some(was) if was != file => out.push((rel.clone(), "modified")),
                Some(_) => {}
            }
        }
        let gone = old.keys().filter(|rel| !work.contains_key(*rel));
        out.extend(gone.map(|rel| (rel.clone(), "deleted")));
        out.sort();
        out
    }

    /// Versions that a pruning lets go of.
    pub fn prunable(&self, known: &Known, of: Option<&str>, latest: u64, every: Option<u64>) -> BTreeSet<Id> {
        let mut kept = self.named(known);
        let mut looked = BTreeSet::new();
        for (name, tip) in self.refs.iter().filter(|(name, _)| name.starts_with(HEADS)) {
            let own: Vec<Id> = known.chain(*tip).into_iter().filter(|id| !self.pruned.contains(id)).collect();
            if of.is_some_and(|of| branch(of) != *name) {
                kept.extend(own);
                continue;
            }
            looked.extend(own.iter().copied());
            kept.extend(own.iter().take(latest as usize));
            let steps: Vec<(Id, Option<u64>)> = own.iter().map(|id| (*id, known.versions[id].step)).collect();
            if let Some(n) = every {
                // Where nothing has a step, the rule can tell nothing.
                let undecided = steps.iter().all(|(_, step)| step.is_none());
                let fits = |step: &Option<u64>| undecided || step.is_some_and(|s| s.is_multiple_of(n));
                kept.extend(steps.iter().filter(|(_, step)| fits(step)).map(|(id, _)| *id));
            }
        }
        looked.difference(&kept).copied().collect()
    }

    /// What a collection without a time of grace leaves.
    pub fn collected(&self, known: &Known, reflog: bool) -> Place {
        let mut after = self.clone();
        let named = self.named(known);
        let firm = known.reach(self.refs.values().copied().chain(self.detached()));
        let logged = known.reach(self.logged.iter().copied());
        let stays = |id: &Id| firm.contains(id) || reflog && logged.contains(id);
        let lost = |id: &Id| self.pruned.contains(id) && !named.contains(id);
        for set in [&mut after.alive, &mut after.own, &mut after.fetched] {
            set.retain(|id| stays(id) && !lost(id));
        }
        after.pruned.retain(stays);
        if !reflog {
            // Moves that name what goes, go too.
            after.logged.clear();
        }
        after.shards.values_mut().for_each(|s| s.doomed = true);
        after
    }
}
