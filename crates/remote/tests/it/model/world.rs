//! The repositories of a history on disk, the model beside each, and what is the same for every verb: trouble while it
//! runs, and whether what is there afterwards is what may be there.

use crate::model::{
    check::{Check, fail, restore},
    expect::Expect,
    files::{self, File, Files},
    judge::Judge,
    real::{Real, Setup},
    reference::{Known, Place, Version},
    rig::Beside,
    steps::Trouble,
    tally::Tally,
    writers::Map,
};
use mdl_objects::Id;
use mdl_repo::{ErrorKind, Progress, Repo, RepoError, Result};
use std::collections::{BTreeMap, BTreeSet};
use tempfile::TempDir;

/// The bare repository that the others push to and fetch from.
pub const HUB: usize = 3;
/// The partial clone.
pub const PARTIAL: usize = 2;

pub struct World {
    pub root: TempDir,
    pub setup: Setup,
    pub known: Known,
    pub places: [Option<(Place, Real)>; 4],
    /// The map of each place that is open, with the name of its file.
    pub maps: BTreeMap<usize, (usize, Map)>,
    /// What lies in the directory that versions are checked out to.
    pub out: Files,
    /// Counts what is to differ from try to try.
    pub serial: u64,
    pub tally: Tally,
    /// The verb of this step.
    pub verb: &'static str,
}

impl World {
    pub fn place(&self, at: usize) -> &Place {
        &self.slot(at).0
    }

    pub fn real(&self, at: usize) -> &Real {
        &self.slot(at).1
    }

    fn slot(&self, at: usize) -> &(Place, Real) {
        self.places[at].as_ref().expect("a place that is there")
    }

    pub fn put(&mut self, at: usize, place: Place) {
        if let Some(slot) = &mut self.places[at] {
            slot.0 = place;
        }
    }

    /// What a partial clone can read changes with the place that it asks.
    pub fn refresh_partial(&mut self) {
        let Some(hub) = self.places[HUB].as_ref().map(|h| h.0.alive.clone()) else {
            return;
        };
        if let Some((place, _)) = &mut self.places[PARTIAL] {
            place.alive = place.fetched.intersection(&hub).copied().collect();
            place.alive.extend(place.own.iter().copied());
        }
    }

    /// Runs a verb with trouble and compares what it leaves with what is expected.
    pub fn act(
        &mut self,
        at: usize,
        trouble: Trouble,
        forced: bool,
        expect: &dyn Fn(&Known, &Place) -> Expect,
        verb: impl FnOnce(&Repo, &dyn Progress) -> Result<()>,
    ) -> Check<bool> {
        let dir = self.real(at).dir.clone();
        let rig = self.rig(trouble, at, None, &dir);
        let result = verb(&self.real(at).repo, &rig.progress);
        let beside = self.unrig(rig, trouble)?;
        self.settle(at, forced, expect, &result, &beside)
    }

    /// Compares what is there now with what may be there, and takes it over. Returns whether the verb was done.
    pub fn settle(
        &mut self,
        at: usize,
        forced: bool,
        expect: &dyn Fn(&Known, &Place) -> Expect,
        result: &Result<()>,
        beside: &Beside,
    ) -> Check<bool> {
        let before = self.place(at).clone();
        let expected = expect(&self.known, &before);
        let (must, may) = (matches!(expected, Expect::Done(_)), !matches!(expected, Expect::Refused));
        let mut afters: Vec<Place> = expected.after().into_iter().collect();
        if let (Some((name, now)), Some(_)) = (&beside.wrote, &before.work) {
            // As if it had been written just before.
            let mut earlier = before.clone();
            let mut work = earlier.files();
            match now {
                Some(file) => drop(work.insert(name.clone(), file.clone())),
                None => drop(work.remove(name)),
            }
            earlier.work = Some(work);
            afters.extend(expect(&self.known, &earlier).after());
        }
        let stopped = matches!(result, Err(RepoError::Stopped { .. }));
        let troubled = beside.fault || stopped;
        let free = troubled || beside.wrote.is_some();
        let outcome = &mut self.tally.verbs.entry(self.verb).or_default();
        match result {
            Ok(()) => outcome[0] += 1,
            Err(_) if free => outcome[2] += 1,
            Err(_) => outcome[1] += 1,
        }
        match result {
            Ok(()) if !may && afters.is_empty() => return fail("it was done, and should have been refused"),
            Err(e) if must && !free => return fail(format!("it should have been done: {e}")),
            Err(e) if !free && matches!(e.kind(), ErrorKind::Io | ErrorKind::Corrupt) => {
                return fail(format!("the medium is blamed, and nothing is wrong with it: {e}"));
            }
            _ => {}
        }
        let now = self.observe(at)?;
        let judge = Judge {
            before: &before,
            afters: &afters,
            now: &now,
            done: result.is_ok(),
            troubled,
            wrote: beside.wrote.as_ref(),
            forced,
        };
        let place = judge.taken_over(&self.known).map_err(|e| match result {
            Ok(()) => e,
            Err(error) => format!("{e}\n  after the error: {error}"),
        })?;
        self.put(at, place);
        Ok(result.is_ok())
    }

    /// A repository as it is now; what is not to be seen is as the model has it.
    pub fn observe(&self, at: usize) -> Check<Place> {
        let (model, real) = self.slot(at);
        let mut now = model.clone();
        let said = |e: RepoError| format!("cannot be looked at: {e}");
        now.refs = real.repo.refs().list("refs/").map_err(said)?.into_iter().collect();
        now.refs = now.refs.into_iter().map(|(name, id)| (format!("refs/{name}"), id)).collect();
        now.head = real.repo.refs().head().map_err(said)?;
        now.pruned = mdl_repo::pruned(&real.repo).map_err(said)?.iter().map(|(id, _)| *id).collect();
        if model.work.is_some() {
            now.base = match mdl_repo::refuse_moved(&real.repo) {
                Err(RepoError::FilesOfAnother { base, .. }) => base,
                other => other.map(|()| now.tip()).map_err(said)?,
            };
            let has = |id: Id| real.repo.odb().has(&id).map_err(said);
            now.base_gone = !now.base.map_or(Ok(true), has)?;
            let files_of = mdl_repo::work_tree_base(&real.repo).map_err(said)?;
            if files_of != now.work_tree_base() {
                return fail(format!("files of {files_of:?} are noted as of {:?}", now.base));
            }
            let (work, odd) = files::read_all(&real.dir);
            if !odd.is_empty() {
                return fail(format!("left in the work tree: {odd:?}"));
            }
            now.work = Some(work);
        }
        Ok(now)
    }

    /// A version that came to be: it must hold one of these contents for each file, and follow this parent.
    pub fn learn(
        &mut self,
        at: usize,
        id: Id,
        parent: Option<Id>,
        files: &Files,
        also: Option<&(String, Option<File>)>,
    ) -> Check {
        let repo = &self.real(at).repo;
        let found = restore(repo, &id).map_err(|e| format!("the new version {} cannot be read: {e}", id.short()))?;
        let names: BTreeSet<&String> = found.keys().chain(files.keys()).collect();
        for name in names {
            let (is, was) = (found.get(name), files.get(name));
            let written = also.filter(|(n, _)| n == name).map(|(_, file)| file.as_ref());
            if is != was && written != Some(is) {
                return fail(format!("{name} of the new version is {is:?}, was {was:?}, meanwhile {written:?}"));
            }
        }
        let commit = repo.odb().commit(&id).map_err(|e| e.to_string())?;
        if commit.parents.first().copied() != parent {
            return fail(format!("the new version follows {:?}, not {parent:?}", commit.parents));
        }
        let step = commit.step;
        self.known.add(id, Version { parent, files: found, step });
        Ok(())
    }
}
