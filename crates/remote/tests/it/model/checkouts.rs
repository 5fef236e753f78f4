//! Runs what makes the work tree, or another directory, a version: checkouts, switches, merges, resets.

use crate::model::{
    check::{Check, fail},
    expect::Expect,
    files::{self, File, Files},
    reference::{Known, Place, branch as full, collide},
    steps::{BRANCHES, Trouble},
    world::World,
};
use mdl_objects::Id;
use mdl_repo::{CheckoutOptions, Head, Progress, RefName, Repo, RepoError, Result};
use std::collections::BTreeSet;

/// `shared::move_head` of the program: where HEAD's version is the one that is wanted, changed files stay.
fn move_head(repo: &Repo, to: &Id, head: &Head, force: bool, progress: &dyn Progress) -> Result<()> {
    if !force && mdl_repo::work_tree_base(repo)? == Some(*to) && repo.refs().head_commit()? == Some(*to) {
        let changes = mdl_repo::status(repo, progress)?;
        if changes.iter().any(|(_, c)| c.name() == "modified") {
            return mdl_repo::attach(repo, head, Some(*to), progress);
        }
    }
    mdl_repo::checkout(repo, to, head, &options(None, force), progress).map(drop)
}

fn options(only: Option<&str>, force: bool) -> CheckoutOptions {
    CheckoutOptions { only: only.map(str::to_owned).into_iter().collect(), force, link: false }
}

impl World {
    pub fn checkout(&mut self, at: usize, version: usize, force: bool, trouble: Trouble) -> Check {
        let Some(to) = self.pick(at, version) else {
            return Ok(());
        };
        let head = Head::Detached(to);
        let expect = |known: &Known, place: &Place| place.go(known, to, &head, force);
        let verb = |repo: &Repo, p: &dyn Progress| move_head(repo, &to, &head, force, p);
        self.act(at, trouble, force, &expect, verb).map(drop)
    }

    pub fn checkout_only(
        &mut self,
        at: usize,
        (version, name): (usize, usize),
        force: bool,
        trouble: Trouble,
    ) -> Check {
        let Some(to) = self.pick(at, version) else {
            return Ok(());
        };
        let name = files::NAMES[name];
        let expect = |known: &Known, place: &Place| place.checkout(known, to, Some(name), force);
        let head = self.place(at).head.clone();
        let verb = |repo: &Repo, p: &dyn Progress| {
            mdl_repo::checkout(repo, &to, &head, &options(Some(name), force), p).map(drop)
        };
        self.act(at, trouble, force, &expect, verb).map(drop)
    }

    /// Into a directory with files of other versions, and of none.
    pub fn checkout_to(&mut self, at: usize, version: usize, force: bool, trouble: Trouble) -> Check {
        let Some(to) = self.pick(at, version) else {
            return Ok(());
        };
        let dir = self.root.path().join("out");
        let place = self.place(at);
        let target = self.known.files(&to);
        let held = self.known.reach(place.named(&self.known));
        let safe = |file: &File| {
            let mut all = held.iter().filter(|id| !place.pruned.contains(*id));
            all.any(|id| self.known.versions[id].files.values().any(|f| f.bytes == file.bytes))
        };
        let lost = |(rel, new): (&String, &File)| self.out.get(rel).is_some_and(|f| f != new && !safe(f));
        let refused = !force && target.iter().any(lost);
        let sure = place.can_read(&self.known, &to) && !files_collide(&self.out, &target) && !place.partial;
        let rig = self.rig(trouble, at, None, &dir);
        let result = mdl_repo::checkout_to(&self.real(at).repo, &to, &dir, &options(None, force), &rig.progress);
        let beside = self.unrig(rig, trouble)?;
        let (now, odd) = files::read_all(&dir);
        let was = std::mem::replace(&mut self.out, now.clone());
        let names: BTreeSet<&String> = was.keys().chain(now.keys()).chain(target.keys()).collect();
        let free = beside.fault || beside.wrote.is_some() || matches!(result, Err(RepoError::Stopped { .. }));
        for name in names {
            let (w, i) = (was.get(name), now.get(name));
            let t = target.get(name).or(w);
            let written = beside.wrote.as_ref().filter(|(n, _)| n == name).map(|(_, file)| file.as_ref());
            let right = match (&result, written) {
                (_, Some(v)) => i == v || i == t && (force || v.is_none() || v.is_some_and(|v| safe_in(self, at, v))),
                (Ok(_), None) => i == t,
                (Err(_), None) => i == w || free && i == t,
            };
            if !right || !odd.is_empty() {
                return fail(format!("{name} elsewhere is {i:?}; it was {w:?}, is to be {t:?}, {written:?}, {odd:?}"));
            }
        }
        let outcome = self.tally.verbs.entry(self.verb).or_default();
        outcome[usize::from(result.is_err()) * if free { 2 } else { 1 }] += 1;
        match result {
            Ok(_) if refused && sure && beside.wrote.is_none() => {
                fail("files elsewhere that are in no version were overwritten")
            }
            Err(e) if !refused && sure && !free => fail(format!("it should have been checked out elsewhere: {e}")),
            _ => Ok(()),
        }
    }

    pub fn switch(&mut self, at: usize, branch: usize, force: bool, trouble: Trouble) -> Check {
        let (name, place) = (BRANCHES[branch], self.place(at));
        let Some(to) = place.refs.get(&full(name)).copied() else {
            return Ok(());
        };
        let head = Head::Branch(name.to_owned());
        let expect = |known: &Known, place: &Place| place.go(known, to, &head, force);
        let verb = |repo: &Repo, p: &dyn Progress| move_head(repo, &to, &head, force, p);
        self.act(at, trouble, force, &expect, verb).map(drop)
    }

    pub fn switch_new(
        &mut self,
        at: usize,
        branch: usize,
        start: Option<usize>,
        force: bool,
        trouble: Trouble,
    ) -> Check {
        let (name, present) = (BRANCHES[branch], self.place(at).tip());
        let start = start.and_then(|n| self.pick(at, n)).or(present);
        let head = Head::Branch(name.to_owned());
        let expect = |known: &Known, place: &Place| {
            let made = |mut place: Place| {
                place.refs.extend(start.map(|id| (full(name), id)));
                place.head = head.clone();
                place
            };
            match start {
                _ if place.refs.contains_key(&full(name)) => Expect::Refused,
                None => Expect::done(made(place.clone())),
                Some(id) if place.pruned.contains(&id) => Expect::Refused,
                Some(_) if start == present => Expect::done(made(place.clone())),
                Some(id) => place.go(known, id, &head, force).map(made),
            }
        };
        let verb = |repo: &Repo, p: &dyn Progress| {
            let Some(start) = start else {
                return mdl_repo::attach(repo, &head, None, p);
            };
            if repo.refs().get(&RefName::branch(name)?)?.is_some() {
                return Err(RepoError::user("it exists", ""));
            }
            mdl_repo::create_branch(repo, name, &start, false)?;
            if Some(start) == present {
                return mdl_repo::attach(repo, &head, present, p);
            }
            move_head(repo, &start, &head, force, p).inspect_err(|_| {
                let _ = mdl_repo::delete_branch(repo, name, true, p);
            })
        };
        self.act(at, trouble, force, &expect, verb).map(drop)
    }

    pub fn merge(&mut self, at: usize, version: usize, trouble: Trouble) -> Check {
        let Some(to) = self.pick(at, version) else {
            return Ok(());
        };
        self.merge_to(at, to, trouble)
    }

    pub fn reset(&mut self, at: usize, version: usize, hard: bool, trouble: Trouble) -> Check {
        let Some(to) = self.pick(at, version) else {
            return Ok(());
        };
        let expect = |known: &Known, place: &Place| match place.tip() != Some(to) && place.pruned.contains(&to) {
            true => Expect::Refused,
            false if hard => place.checkout(known, to, None, true).map(|p| p.advance(to)),
            false => Expect::done(place.clone().advance(to)),
        };
        let verb = |repo: &Repo, p: &dyn Progress| mdl_repo::reset(repo, &to, hard, p).map(drop);
        self.act(at, trouble, hard, &expect, verb).map(drop)
    }
}

fn files_collide(a: &Files, b: &Files) -> bool {
    collide(a.keys().chain(b.keys()))
}

fn safe_in(world: &World, at: usize, file: &File) -> bool {
    let place = world.place(at);
    let held = world.known.reach(place.named(&world.known));
    held.iter().any(|id| world.known.versions[id].files.values().any(|f| f.bytes == file.bytes))
}
