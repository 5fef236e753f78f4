//! Runs the verbs of one repository: versions, names, the work tree.

use crate::{
    check::{Check, fail},
    files::{self, File, Files, Map, NAMES, Write1, content},
    model::{Expect, Known, Place, branch as full, tag as full_tag},
    steps::{BRANCHES, Source, TAGS, Trouble},
    world::World,
};
use mdl_objects::Id;
use mdl_repo::{
    CheckoutOptions, CommitRequest, Content, Head, NewFile, Progress, PruneOptions, Repo, RepoError, Result, Retention,
};
use std::{collections::BTreeSet, path::PathBuf, sync::Arc};

/// `shared::move_head` of the program: where HEAD's version is the one that is wanted, changed files stay.
fn move_head(repo: &Repo, to: &Id, head: &Head, force: bool, progress: &dyn Progress) -> Result<()> {
    if !force && repo.files_of()? == Some(*to) && repo.refs().head_commit()? == Some(*to) {
        let changes = repo.status(progress)?;
        if changes.iter().any(|(_, c)| c.name() == "modified") {
            return repo.attach(head, Some(*to), progress);
        }
    }
    repo.checkout(to, head, &options(None, force), progress).map(drop)
}

fn options(only: Option<&str>, force: bool) -> CheckoutOptions {
    CheckoutOptions {
        only: only.map(str::to_owned).into_iter().collect(),
        force,
    }
}

pub fn in_memory(files: &Files) -> Vec<NewFile> {
    let new = |(rel, file): (&String, &File)| NewFile {
        rel: rel.clone(),
        executable: file.exec,
        content: Content::Memory(file.bytes.clone()),
    };
    files.iter().map(new).collect()
}

pub fn some_files(seed: u64, names: &[&str]) -> Files {
    let file = |(i, name): (usize, &&str)| {
        let bytes = Arc::new(content(name, seed.rotate_left(i as u32)));
        ((*name).to_owned(), File { bytes, exec: false })
    };
    names.iter().enumerate().map(file).collect()
}

impl World {
    /// One of the versions that a place has.
    pub fn pick(&self, at: usize, n: usize) -> Option<Id> {
        let place = self.place(at);
        let here = |id: &&Id| place.alive.contains(*id) || place.pruned.contains(*id);
        let all: Vec<Id> = self.known.order.iter().filter(here).copied().collect();
        // The newer ones more often.
        let n = n.checked_rem(all.len()).map(|n| {
            if n % 3 == 0 {
                n
            } else {
                all.len() - 1 - n % all.len().min(8)
            }
        });
        n.map(|n| all[n])
    }

    pub fn write(&mut self, at: usize, w: &Write1) {
        if files::write(&self.real(at).dir, w) {
            self.tally.writes += 1;
            self.take_work(at);
        }
    }

    /// What writers did between verbs is what there is.
    fn take_work(&mut self, at: usize) {
        let mut place = self.place(at).clone();
        place.work = Some(files::read_all(&self.real(at).dir).0);
        self.put(at, place);
    }

    pub fn held_map(&mut self, at: usize, w: &Write1) {
        if !self.maps.get(&at).is_some_and(|(name, _)| *name == w.name) {
            let opened = Map::open(&self.real(at).dir.join(NAMES[w.name]));
            self.maps.remove(&at);
            self.maps.extend(opened.map(|map| (at, (w.name, map))));
        }
        if let Some((_, map)) = self.maps.get_mut(&at) {
            map.write(w.seed);
            self.tally.writes += 1;
        }
        self.take_work(at);
    }

    pub fn commit(&mut self, at: usize, source: Source, branch: Option<usize>, label: bool, trouble: Trouble) -> Check {
        let before = self.place(at).clone();
        let work = before.files();
        let dir = self.real(at).dir.clone();
        self.serial += 1;
        let mut request = CommitRequest {
            message: format!("version {}", self.serial),
            branch: branch.map(|b| BRANCHES[b].to_owned()),
            step: label.then_some(self.serial),
            allow_damaged: true,
            ..CommitRequest::default()
        };
        let below = |prefix: &str| -> Files {
            let inner = |(rel, file): (&String, &File)| Some((rel.strip_prefix(prefix)?.to_owned(), file.clone()));
            work.iter().filter_map(inner).collect()
        };
        let files = match source {
            Source::WorkTree => work.clone(),
            Source::Dir => below("sub/"),
            Source::OneFile => work
                .get_key_value("raw.bin")
                .map(|(k, f)| (k.clone(), f.clone()))
                .into_iter()
                .collect(),
            Source::Memory(seed) => some_files(seed, &NAMES[..4]),
        };
        let path = |rel: &str| -> Option<PathBuf> { Some(dir.join(rel)) };
        match source {
            Source::WorkTree => {}
            Source::Dir | Source::OneFile if files.is_empty() => return Ok(()),
            Source::Dir => request.source = path("sub"),
            Source::OneFile => request.source = path("raw.bin"),
            Source::Memory(_) => request.files = Some(in_memory(&files)),
        }
        let name = request.branch.clone().map(|b| full(&b)).or(before.head_ref());
        let tip = name
            .as_ref()
            .map_or(before.tip(), |name| before.refs.get(name).copied());
        let parent = tip.or(before.tip());
        let moves_head = request.branch.is_none() || name == before.head_ref();
        let rig = self.rig(trouble, at, None, &dir);
        let result = self.real(at).repo.commit(&request, &rig.progress).map(|done| done.id);
        let beside = self.unrig(rig, trouble)?;
        let now = self.observe(at)?;
        let at_now = name.as_ref().map_or(now.tip(), |name| now.refs.get(name).copied());
        let new = result.as_ref().ok().copied().or(at_now.filter(|_| at_now != tip));
        let wrote = beside.wrote.clone().and_then(|(name, file)| match source {
            Source::WorkTree => Some((name, file)),
            Source::Dir => Some((name.strip_prefix("sub/")?.to_owned(), file)),
            Source::OneFile => (name == "raw.bin").then_some((name, file)),
            Source::Memory(_) => None,
        });
        if let Some(id) = new {
            self.learn(at, id, parent, &files, wrote.as_ref())?;
        }
        let same = parent.is_some_and(|p| self.known.files(&p) == files) && !label;
        let of_another = source == Source::WorkTree && moves_head && before.base != before.tip();
        let expect = |_: &Known, place: &Place| {
            let Some(id) = new else {
                let refused = same || of_another || files.is_empty();
                return if refused {
                    Expect::Refused
                } else {
                    Expect::done(place.clone())
                };
            };
            let mut after = match &name {
                Some(name) => place.clone().set(name, Some(id)),
                None => place.clone().advance(id),
            };
            for set in [&mut after.alive, &mut after.own] {
                set.insert(id);
            }
            match (same || files.is_empty()) && wrote.is_none() || of_another {
                true => Expect::Refused,
                false => Expect::done(after).unless(!same && !files.is_empty()),
            }
        };
        self.settle(at, false, &expect, &result.map(drop), &beside).map(drop)
    }

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
        let name = NAMES[name];
        let expect = |known: &Known, place: &Place| place.checkout(known, to, Some(name), force);
        let head = self.place(at).head.clone();
        let verb = |repo: &Repo, p: &dyn Progress| repo.checkout(&to, &head, &options(Some(name), force), p).map(drop);
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
        let result = self
            .real(at)
            .repo
            .checkout_to(&to, &dir, &options(None, force), &rig.progress);
        let beside = self.unrig(rig, trouble)?;
        let (now, odd) = files::read_all(&dir);
        let was = std::mem::replace(&mut self.out, now.clone());
        let names: BTreeSet<&String> = was.keys().chain(now.keys()).chain(target.keys()).collect();
        let free = beside.fault || beside.wrote.is_some() || matches!(result, Err(RepoError::Stopped { .. }));
        for name in names {
            let (w, i) = (was.get(name), now.get(name));
            let t = target.get(name).or(w);
            let written = beside
                .wrote
                .as_ref()
                .filter(|(n, _)| n == name)
                .map(|(_, file)| file.as_ref());
            let right = match (&result, written) {
                (_, Some(v)) => i == v || i == t && (force || v.is_none() || v.is_some_and(|v| safe_in(self, at, v))),
                (Ok(_), None) => i == t,
                (Err(_), None) => i == w || free && i == t,
            };
            if !right || !odd.is_empty() {
                return fail(format!(
                    "{name} elsewhere is {i:?}; it was {w:?}, is to be {t:?}, {written:?}, {odd:?}"
                ));
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
                None => Expect::done(made(place.clone())),
                Some(_) if place.refs.contains_key(&full(name)) => Expect::Refused,
                Some(id) if place.pruned.contains(&id) => Expect::Refused,
                Some(_) if start == present => Expect::done(made(place.clone())),
                Some(id) => place.go(known, id, &head, force).map(made),
            }
        };
        let verb = |repo: &Repo, p: &dyn Progress| {
            let Some(start) = start else {
                return repo.attach(&head, None, p);
            };
            if repo.refs().get(&mdl_repo::RefName::branch(name)?)?.is_some() {
                return Err(RepoError::user("it exists", ""));
            }
            repo.create_branch(name, &start, false)?;
            if Some(start) == present {
                return repo.attach(&head, present, p);
            }
            move_head(repo, &start, &head, force, p).inspect_err(|_| {
                let _ = repo.delete_branch(name, true, p);
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
        let verb = |repo: &Repo, p: &dyn Progress| repo.reset(&to, hard, p).map(drop);
        self.act(at, trouble, hard, &expect, verb).map(drop)
    }

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
        let verb = |repo: &Repo, _: &dyn Progress| repo.create_branch(name, &to, force);
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
        let verb = |repo: &Repo, p: &dyn Progress| repo.delete_branch(name, force, p).map(drop);
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
                Some(id) => drop(after.refs.insert(full(to), id)),
            }
            if on_it {
                after.head = Head::Branch(to.to_owned());
            }
            Expect::done(after)
        };
        let verb = |repo: &Repo, p: &dyn Progress| repo.rename_branch(from, to, p);
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
        let result = self.real(at).repo.create_tag(name, &to, text.as_deref(), force);
        let beside = self.unrig(rig, trouble)?;
        let now = self.observe(at)?.refs.get(&full_tag(name)).copied();
        let new = now
            .filter(|_| now != was)
            .or(result.as_ref().ok().copied())
            .unwrap_or(to);
        if new != to && !self.known.versions.contains_key(&new) {
            let of = self
                .real(at)
                .repo
                .odb()
                .tag(&new)
                .map_err(|e| format!("the new tag cannot be read: {e}"))?;
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
        let verb = |repo: &Repo, _: &dyn Progress| repo.delete_tag(name).map(drop);
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
        let verb = |repo: &Repo, _: &dyn Progress| repo.prune(name, &rules, &PruneOptions::default()).map(drop);
        self.act(at, trouble, false, &expect, verb).map(drop)
    }
}

fn files_collide(a: &Files, b: &Files) -> bool {
    crate::model::collide(a.keys().chain(b.keys()))
}

fn safe_in(world: &World, at: usize, file: &File) -> bool {
    let place = world.place(at);
    let held = world.known.reach(place.named(&world.known));
    held.iter()
        .any(|id| world.known.versions[id].files.values().any(|f| f.bytes == file.bytes))
}
