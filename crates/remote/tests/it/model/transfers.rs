//! Runs what comes from another repository: clones, whole and partial, fetches, pulls; as the program's verbs do it.

use crate::model::{
    check::{Check, fail},
    expect::Expect,
    real::Real,
    reference::{Known, Place, branch as full, noted},
    rig::Beside,
    steps::{BRANCHES, Trouble},
    world::{HUB, PARTIAL, World},
};
use mdl_objects::Id;
use mdl_remote::{
    Advertised, DirectPeer, Peer,
    fetch::{note_refs, receive},
    sync::{Filter, RefMove, Want},
};
use mdl_repo::{CheckoutOptions, HEADS, Head, Progress, RefName, Remote, Repo, Result, TAGS};
use std::{collections::BTreeSet, fs};

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
            out.push(RefMove { expected, name: to, new: Some(*id), force });
        }
    }
    Ok(out)
}

fn fetch(repo: &Repo, peer: &dyn Peer, partial: bool, progress: &dyn Progress) -> Result<()> {
    let moves = wanted(repo, &peer.refs()?)?;
    let only = partial.then(|| Filter::new(&[ONLY.to_owned()])).transpose()?;
    let want = Want { tips: moves.iter().filter_map(|m| m.new).collect(), only, partial, ..Want::default() };
    if !want.tips.is_empty() {
        receive(repo, peer, want, progress)?;
    }
    let done = note_refs(repo, moves, partial, "fetch origin", progress)?;
    done.into_iter().try_for_each(|(_, outcome)| outcome)
}

/// What a fetch from one place makes of another, where these names stay away.
fn fetched(known: &Known, place: &Place, hub: &Place, stays: &BTreeSet<String>) -> Place {
    let mut after = place.clone();
    for (name, id) in hub.refs.iter().filter(|(name, _)| !stays.contains(*name)) {
        match name.strip_prefix(HEADS) {
            Some(branch) => drop(after.refs.insert(noted(branch), *id)),
            None => drop(after.refs.entry(name.clone()).or_insert(*id)),
        }
    }
    // What a name reaches is had, or was pruned: it does not come again.
    let had = known.reach(place.refs.values().copied());
    let came = &known.reach(after.refs.values().copied()) - &had;
    match place.partial {
        true => after.fetched.extend(came),
        false => after.alive.extend(came.iter().filter(|id| hub.alive.contains(*id) && !hub.pruned.contains(*id))),
    }
    after
}

impl World {
    pub fn hub(&self) -> Result<DirectPeer> {
        self.near(HUB)
    }

    fn near(&self, at: usize) -> Result<DirectPeer> {
        let real = self.real(at);
        Ok(DirectPeer::new(real.elsewhere()?, &real.store()))
    }

    /// Marks of others count for what is not here, and only for that.
    pub fn marks(&self, at: usize, before: &Place, source: &Place, after: &mut Place) -> Check {
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
                true => mdl_repo::clear_work_tree_base(repo),
                false => {
                    mdl_repo::checkout(repo, &tip, &head, &CheckoutOptions::default(), progress)?;
                }
            }
            Ok(())
        };
        let expect = |known: &Known, place: &Place| {
            let mut after = fetched(known, place, &hub, &BTreeSet::new()).set(&full("main"), Some(tip));
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
            // It has many steps: where a writer ends it, some of them are done.
            let cut = beside.wrote.is_some() && result.is_err();
            let beside = Beside { fault: beside.fault || cut, ..beside };
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
        // No tag comes to stand on a version that was pruned here: it is refused in words, the rest has moved by then.
        let known = &self.known;
        let refused = |name: &String, id: &Id| {
            name.starts_with(TAGS) && !before.refs.contains_key(name) && marked.pruned.contains(&known.peel(id))
        };
        let stays: BTreeSet<String> =
            hub.refs.iter().filter(|(n, id)| refused(n, id)).map(|(n, _)| n.clone()).collect();
        let told = matches!(&result, Err(e) if e.to_string().contains("was pruned"));
        if result.is_ok() && !stays.is_empty() {
            return fail(format!("{stays:?} are of pruned versions, and nobody was told"));
        }
        let expect = |known: &Known, place: &Place| {
            let mut after = fetched(known, place, &hub, &stays);
            after.pruned.clone_from(&marked.pruned);
            Expect::done(after)
        };
        let rest = match told && !stays.is_empty() && !beside.fault {
            true => Ok(()),
            false => result,
        };
        Ok(self.settle(at, false, &expect, &rest, &beside)? && stays.is_empty())
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
}
