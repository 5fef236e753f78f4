//! Runs what makes, moves and deletes names, and prunings.

use crate::model::{
    check::{Check, fail},
    expect::Expect,
    reference::{Known, Place, branch as full, tag as full_tag},
    steps::{BRANCHES, TAGS, Trouble},
    world::World,
};
use mdl_repo::{Head, Progress, PruneOptions, Repo, Retention};

impl World {
    pub fn branch(&mut self, at: usize, branch: usize, version: usize, force: bool, trouble: Trouble) -> Check {
        let Some(to) = self.pick(at, version) else {
            return Ok(());
        };
        let name = BRANCHES[branch];
        let expect = |_: &Known, place: &Place| {
            let there = place.refs.contains_key(&full(name));
            let on_it = place.head == Head::Branch(name.to_owned());
            match place.pruned.contains(&to) || there && !force || force && on_it {
                true => Expect::Refused,
                false => Expect::done(place.clone().set(&full(name), Some(to))),
            }
        };
        let verb = |repo: &Repo, _: &dyn Progress| mdl_repo::create_branch(repo, name, &to, force);
        self.act(at, trouble, false, &expect, verb).map(drop)
    }

    pub fn delete_branch(&mut self, at: usize, branch: usize, force: bool, trouble: Trouble) -> Check {
        let name = BRANCHES[branch];
        let expect = |known: &Known, place: &Place| {
            let Some(tip) = place.refs.get(&full(name)) else {
                return Expect::Refused;
            };
            let mut after = place.clone();
            after.refs.remove(&full(name));
            let reached = known.reach(after.named(known)).contains(tip);
            match place.head == Head::Branch(name.to_owned()) || !force && !reached {
                true => Expect::Refused,
                false => Expect::done(after),
            }
        };
        let verb = |repo: &Repo, p: &dyn Progress| mdl_repo::delete_branch(repo, name, force, p).map(drop);
        self.act(at, trouble, false, &expect, verb).map(drop)
    }

    pub fn rename_branch(&mut self, at: usize, (from, to): (usize, usize), trouble: Trouble) -> Check {
        let (from, to) = (BRANCHES[from], BRANCHES[to]);
        let expect = |_: &Known, place: &Place| {
            let on_it = place.head == Head::Branch(from.to_owned());
            let mut after = place.clone();
            match after.refs.remove(&full(from)) {
                _ if place.refs.contains_key(&full(to)) => return Expect::Refused,
                None if !on_it => return Expect::Refused,
                None => {}
                // HEAD may be on the new name, without a commit so far.
                Some(id) => after = after.set(&full(to), Some(id)),
            }
            if on_it {
                after.head = Head::Branch(to.to_owned());
            }
            Expect::done(after)
        };
        let verb = |repo: &Repo, p: &dyn Progress| mdl_repo::rename_branch(repo, from, to, p);
        self.act(at, trouble, false, &expect, verb).map(drop)
    }

    pub fn tag(
        &mut self,
        at: usize,
        (tag, version): (usize, usize),
        annotated: bool,
        force: bool,
        trouble: Trouble,
    ) -> Check {
        let Some(to) = self.pick(at, version) else {
            return Ok(());
        };
        let (name, dir) = (TAGS[tag], self.real(at).dir.clone());
        let was = self.place(at).refs.get(&full_tag(name)).copied();
        self.serial += 1;
        let text = annotated.then(|| format!("tag {}", self.serial));
        let rig = self.rig(trouble, at, None, &dir);
        let result = mdl_repo::create_tag(&self.real(at).repo, name, &to, text.as_deref(), force);
        let beside = self.unrig(rig, trouble)?;
        let now = self.observe(at)?.refs.get(&full_tag(name)).copied();
        let new = now.filter(|_| now != was).or(result.as_ref().ok().copied()).unwrap_or(to);
        if new != to && !self.known.versions.contains_key(&new) {
            let of = self.real(at).repo.odb().tag(&new).map_err(|e| format!("the new tag cannot be read: {e}"))?;
            if of.target != to {
                return fail(format!("the new tag is of {}, not {}", of.target, to));
            }
            self.known.tags.insert(new, to);
        }
        let expect = |_: &Known, place: &Place| {
            let there = place.refs.contains_key(&full_tag(name));
            match there && !force || place.pruned.contains(&to) {
                true => Expect::Refused,
                false => Expect::done(place.clone().set(&full_tag(name), Some(new))),
            }
        };
        self.settle(at, false, &expect, &result.map(drop), &beside).map(drop)
    }

    pub fn delete_tag(&mut self, at: usize, tag: usize, trouble: Trouble) -> Check {
        let name = TAGS[tag];
        let expect = |_: &Known, place: &Place| match place.refs.contains_key(&full_tag(name)) {
            false => Expect::Refused,
            true => Expect::done(place.clone().set(&full_tag(name), None)),
        };
        let verb = |repo: &Repo, _: &dyn Progress| mdl_repo::delete_tag(repo, name).map(drop);
        self.act(at, trouble, false, &expect, verb).map(drop)
    }

    pub fn prune(
        &mut self,
        at: usize,
        branch: Option<usize>,
        latest: u64,
        every: Option<u64>,
        trouble: Trouble,
    ) -> Check {
        let name = branch.map(|b| BRANCHES[b]);
        let expect = |known: &Known, place: &Place| {
            if name.is_some_and(|name| !place.refs.contains_key(&full(name))) {
                return Expect::Refused;
            }
            let mut after = place.clone();
            after.pruned.extend(place.prunable(known, name, latest, every));
            Expect::done(after)
        };
        let mut rules = vec![Retention::LatestN { n: latest }];
        rules.extend(every.map(|n| Retention::EveryNSteps { n }));
        let rules = Retention::Any { rules };
        let verb =
            |repo: &Repo, _: &dyn Progress| mdl_repo::prune(repo, name, &rules, &PruneOptions::default()).map(drop);
        self.act(at, trouble, false, &expect, verb).map(drop)
    }
}
