//! Runs what goes between repositories: clones, whole and partial, fetches, pulls, pushes; as the program's verbs do it.

use crate::{
    check::{Check, fail},
    model::{Expect, Known, Place, branch as full, noted, tag as full_tag},
    steps::{BRANCHES, TAGS, Trouble},
    world::{HUB, PARTIAL, Real, World},
};
use mdl_objects::Id;
use mdl_remote::{
    Advertised, Near, Peer,
    fetch::{note_refs, receive},
    push::{Push, push},
};
use mdl_repo::{
    CheckoutOptions, HEADS, Head, Progress, RefName, Remote, Repo, RepoError, Result, TAGS as TAG_PREFIX,
    sync::{Only, RefMove, Want},
};
use std::fs;

/// Of what a partial clone brings.
const ONLY: &str = "*.safetensors";

/// The refs there that are wanted, as they are noted here.
fn wanted(repo: &Repo, there: &Advertised) -> Result<Vec<RefMove>> {
    let mut out = Vec::new();
    for (name, id) in &there.refs {
        let (to, force) = match name.strip_prefix(HEADS) {
            Some(branch) => (noted(branch), true),
            None => (name.clone(), false),
        };
        let expected = repo.refs().get(&RefName::parse(&to)?)?;
        if expected != Some(*id) && (force || expected.is_none()) {
            out.push(RefMove {
                expected,
                name: to,
                new: Some(*id),
                force,
            });
        }
    }
    Ok(out)
}

fn fetch(repo: &Repo, peer: &dyn Peer, partial: bool, progress: &dyn Progress) -> Result<()> {
    let moves = wanted(repo, &peer.refs()?)?;
    let only = partial.then(|| Only::new(&[ONLY.to_owned()])).transpose()?;
    let want = Want {
        tips: moves.iter().filter_map(|m| m.new).collect(),
        only,
        partial,
        ..Want::default()
    };
    if !want.tips.is_empty() {
        receive(repo, peer, want, progress)?;
    }
    let done = note_refs(repo, moves, partial, "fetch origin", progress)?;
    done.into_iter().try_for_each(|(_, outcome)| outcome)
}

/// What a fetch from one place makes of another.
fn fetched(known: &Known, place: &Place, hub: &Place) -> Place {
    let mut after = place.clone();
    for (name, id) in &hub.refs {
        match name.strip_prefix(HEADS) {
            Some(branch) => drop(after.refs.insert(noted(branch), *id)),
            None => drop(after.refs.entry(name.clone()).or_insert(*id)),
        }
    }
    // What a name reaches is had, or was pruned: it does not come again.
    let had = known.reach(place.refs.values().copied());
    let came = &known.reach(hub.refs.values().copied()) - &had;
    match place.partial {
        true => after.fetched.extend(came),
        false => after.alive.extend(
            came.iter()
                .filter(|id| hub.alive.contains(*id) && !hub.pruned.contains(*id)),
        ),
    }
    after
}

impl World {
    fn hub(&self) -> Result<Near> {
        self.near(HUB)
    }

    fn near(&self, at: usize) -> Result<Near> {
        let real = self.real(at);
        Ok(Near::new(real.elsewhere()?, &real.store()))
    }

    /// Marks of others count for what is not here, and only for that.
    fn marks(&self, at: usize, before: &Place, source: &Place, after: &mut Place) -> Check {
        let now = self.observe(at)?;
        for id in now.pruned.difference(&before.pruned) {
            if !source.pruned.contains(id) || before.alive.contains(id) && !before.partial {
                return fail(format!("{} came to be marked as pruned", id.short()));
            }
        }
        after.pruned = now.pruned;
        Ok(())
    }

    pub fn clone(&mut self, partial: bool, trouble: Trouble) -> Check {
        let at = if partial { PARTIAL } else { 1 };
        let hub = self.place(HUB).clone();
        let Some(tip) = hub.refs.get(&full("main")).copied() else {
            return Ok(());
        };
        let dir = self.root.path().join(format!("clone{at}"));
        self.maps.remove(&at);
        self.places[at] = None;
        let _ = fs::remove_dir_all(&dir);
        let remote = Remote {
            url: self.root.path().join("hub").display().to_string(),
            partial,
            depth: None,
            only: partial.then(|| ONLY.to_owned()).into_iter().collect(),
            branch: None,
        };
        let real = Real::make(&dir, false, self.setup, Some(&remote)).map_err(|e| format!("clone: {e}"))?;
        self.places[at] = Some((Place::new(false, partial), real));
        let head = Head::Branch("main".to_owned());
        let fill = |repo: &Repo, peer: &dyn Peer, progress: &dyn Progress| -> Result<()> {
            fetch(repo, peer, partial, progress)?;
            let made = RefMove {
                expected: repo.refs().get(&RefName::branch("main")?)?,
                name: full("main"),
                new: Some(tip),
                force: false,
            };
            for (_, outcome) in note_refs(repo, vec![made], partial, "clone", progress)? {
                outcome?;
            }
            match partial {
                true => repo.files_are_of_none(),
                false => drop(repo.checkout(&tip, &head, &CheckoutOptions::default(), progress)?),
            }
            Ok(())
        };
        let expect = |known: &Known, place: &Place| {
            let mut after = fetched(known, place, &hub).set(&full("main"), Some(tip));
            if partial {
                after.base = None;
                return Expect::done(after);
            }
            after.work = Some(known.files(&tip));
            Expect::done(after).unless(hub.alive.contains(&tip))
        };
        // One that was cut off goes on when it is tried again.
        for trouble in [trouble, Trouble::None] {
            let rig = self.rig(trouble, at, Some(HUB), &dir);
            let peer = self.hub();
            let result = peer.and_then(|peer| fill(&self.real(at).repo, &peer, &rig.progress));
            let beside = self.unrig(rig, trouble)?;
            let before = self.place(at).clone();
            let mut marked = before.clone();
            self.marks(at, &before, &hub, &mut marked)?;
            let pruned = marked.pruned;
            let expect = |known: &Known, place: &Place| {
                expect(known, place).map(|mut p| {
                    p.pruned.clone_from(&pruned);
                    p
                })
            };
            // Meanwhile the files are of a version that the branch is not at yet: told by what HEAD was before.
            self.settle(at, false, &expect, &result, &beside)?;
            if result.is_ok() || beside.wrote.is_some() {
                break;
            }
        }
        Ok(())
    }

    pub fn fetch(&mut self, at: usize, trouble: Trouble) -> Check<bool> {
        let (hub, before) = (self.place(HUB).clone(), self.place(at).clone());
        let dir = self.real(at).dir.clone();
        let rig = self.rig(trouble, at, Some(HUB), &dir);
        let peer = self.hub();
        let result = peer.and_then(|peer| fetch(&self.real(at).repo, &peer, before.partial, &rig.progress));
        let beside = self.unrig(rig, trouble)?;
        let mut marked = before.clone();
        self.marks(at, &before, &hub, &mut marked)?;
        let expect = |known: &Known, place: &Place| {
            let mut after = fetched(known, place, &hub);
            after.pruned.clone_from(&marked.pruned);
            Expect::done(after)
        };
        self.settle(at, false, &expect, &result, &beside)
    }

    pub fn pull(&mut self, at: usize, branch: usize, trouble: Trouble) -> Check {
        if !self.fetch(at, trouble)? {
            return Ok(());
        }
        self.refresh_partial();
        let Some(to) = self.place(at).refs.get(&noted(BRANCHES[branch])).copied() else {
            return Ok(());
        };
        self.merge_to(at, to, trouble)
    }

    pub fn push(
        &mut self,
        at: usize,
        (branch, tag): (usize, Option<usize>),
        force: bool,
        delete: bool,
        trouble: Trouble,
    ) -> Check {
        let name = tag.map_or_else(|| full(BRANCHES[branch]), |t| full_tag(TAGS[t]));
        let (source, hub) = (self.place(at).clone(), self.place(HUB).clone());
        let new = source.refs.get(&name).copied();
        if new.is_none() && !delete {
            return Ok(());
        }
        let wish = Push {
            name: name.clone(),
            new: new.filter(|_| !delete),
            force,
            lease: None,
        };
        let dir = self.real(at).dir.clone();
        let rig = self.rig(trouble, at, Some(HUB), &dir);
        let done = self.hub().and_then(|peer| {
            push(
                &self.real(at).repo,
                &peer,
                std::slice::from_ref(&wish),
                "push",
                &rig.progress,
            )
        });
        // Noted here as well, whatever becomes of the note.
        let result = done.and_then(|pushed| pushed.refs.into_iter().try_for_each(|(_, outcome)| outcome));
        let moved = result.is_ok().then(|| name.strip_prefix(HEADS)).flatten();
        if let Some(branch) = moved {
            self.note(at, branch, wish.new, &rig.progress);
        }
        let beside = self.unrig(rig, trouble)?;
        let mut marked = hub.clone();
        self.marks(HUB, &hub, &source, &mut marked)?;
        let expect = |known: &Known, hub: &Place| {
            let old = hub.refs.get(&name).copied();
            let mut after = hub.clone();
            after.pruned.clone_from(&marked.pruned);
            let Some(new) = wish.new else {
                after.refs.remove(&name);
                let refused = hub.head_ref().as_deref() == Some(&name) && old.is_some();
                return if refused { Expect::Refused } else { Expect::done(after) };
            };
            let tag_stays = name.starts_with(TAG_PREFIX) && old.is_some();
            let forward = old.is_none_or(|old| known.reaches(&known.peel(&new), &known.peel(&old)));
            if old != Some(new) && !force && (tag_stays || !forward) {
                return Expect::Refused;
            }
            let sent = known.reach([new]);
            let has = |id: &Id| source.alive.contains(id);
            // A version that was pruned there, and comes to have a name again.
            let sure = sent.iter().all(has) && !hub.pruned.contains(&known.peel(&new));
            after.alive.extend(
                sent.iter()
                    .filter(|id| has(id) && !source.pruned.contains(*id) && !hub.pruned.contains(*id)),
            );
            after.refs.insert(name.clone(), new);
            Expect::done(after).unless(sure)
        };
        // A program that wrote did so in another place.
        let there = crate::world::Beside {
            fault: beside.fault,
            dead: beside.dead,
            wrote: None,
        };
        self.settle(HUB, false, &expect, &result, &there)?;
        let mut here = source;
        let now = self.observe(at)?;
        if let Some(branch) = moved {
            let is = now.refs.get(&noted(branch)).copied();
            let was = here.refs.get(&noted(branch)).copied();
            if is != wish.new && !(beside.fault && is == was) {
                return fail(format!("{branch} was pushed, and is noted as {is:?}"));
            }
            match is {
                Some(id) => drop(here.refs.insert(noted(branch), id)),
                None => drop(here.refs.remove(&noted(branch))),
            }
        }
        if let Some((name, file)) = &beside.wrote {
            let mut work = here.files();
            match file {
                Some(file) => drop(work.insert(name.clone(), file.clone())),
                None => drop(work.remove(name)),
            }
            here.work = Some(work);
        }
        match now.refs == here.refs && now.head == here.head && now.work == here.work && now.pruned == here.pruned {
            true => self.put(at, here),
            false => return fail("a push changed the repository that it came from"),
        }
        Ok(())
    }

    fn note(&self, at: usize, branch: &str, new: Option<Id>, progress: &dyn Progress) {
        let repo = &self.real(at).repo;
        let noted: Result<()> = RefName::parse(&noted(branch)).and_then(|name| {
            let made = RefMove {
                expected: repo.refs().get(&name)?,
                name: name.to_string(),
                new,
                force: true,
            };
            note_refs(repo, vec![made], true, "push", progress).map(drop)
        });
        let _: std::result::Result<(), RepoError> = noted;
    }
}
