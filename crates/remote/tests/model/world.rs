//! The repositories of a history on disk, the model beside each, and what is the same for every verb: trouble while it runs, and
//! whether what is there afterwards is what may be there.

use crate::{
    check::{Check, fail, restore},
    faults::{Faulty, Hook, Interruption, Trigger},
    files::{self, File, Files, Map, NAMES, Write1},
    model::{Expect, Known, Place, Version},
    steps::Trouble,
};
use mdl_codec::{CpuEngine, Engine};
use mdl_objects::Id;
use mdl_remote::completed;
use mdl_repo::{DIR, ErrorKind, Head, Progress, Remote, Repo, RepoError, Result, storage::LocalStorage};
use std::{
    collections::{BTreeMap, BTreeSet},
    fs,
    path::{Path, PathBuf},
    sync::{Arc, LazyLock, Mutex},
};
use tempfile::TempDir;

/// The bare repository that the others push to and fetch from.
pub const HUB: usize = 3;
/// The partial clone.
pub const PARTIAL: usize = 2;

static ENGINE: LazyLock<Arc<dyn Engine>> = LazyLock::new(|| Arc::new(CpuEngine::new()));

pub fn engine() -> Arc<dyn Engine> {
    ENGINE.clone()
}

/// Where a history runs.
#[derive(Clone, Copy, Debug, Default)]
pub struct Setup {
    /// On a disk, where times tell of writes; else in memory.
    pub disk: bool,
    /// With an index, and so with states of files remembered.
    pub index: bool,
}

/// How often what was done, and how it ended.
#[derive(Clone, Debug, Default)]
pub struct Tally {
    pub steps: u64,
    /// By verb: done, refused, cut short by trouble.
    pub verbs: BTreeMap<&'static str, [u64; 3]>,
    pub faults: BTreeMap<String, u64>,
    pub writes: u64,
    pub restored: u64,
    pub checks: u64,
}

impl Tally {
    pub fn add(&mut self, other: &Tally) {
        self.steps += other.steps;
        for (verb, n) in &other.verbs {
            let sum = self.verbs.entry(verb).or_default();
            (0..3).for_each(|i| sum[i] += n[i]);
        }
        for (fault, n) in &other.faults {
            *self.faults.entry(fault.clone()).or_default() += n;
        }
        self.writes += other.writes;
        self.restored += other.restored;
        self.checks += other.checks;
    }
}

/// A repository on disk.
pub struct Real {
    pub dir: PathBuf,
    pub bare: bool,
    pub trigger: Trigger,
    pub repo: Repo,
    setup: Setup,
}

impl Real {
    pub fn make(dir: &Path, bare: bool, setup: Setup, origin: Option<&Remote>) -> Result<Real> {
        fs::create_dir_all(dir).map_err(RepoError::io("cannot make a directory"))?;
        let (mut made, _) = Repo::init(dir, bare, "main", engine())?;
        if let Some(remote) = origin {
            made.set_remote("origin", Some(remote))?;
        }
        made.odb().release_index();
        drop(made);
        Real::open(dir, bare, setup)
    }

    pub fn open(dir: &Path, bare: bool, setup: Setup) -> Result<Real> {
        let dir = fs::canonicalize(dir).map_err(RepoError::io("cannot open a directory"))?;
        let trigger = Trigger::default();
        Ok(Real {
            repo: open_repo(&dir, bare, setup, &trigger)?,
            dir,
            bare,
            trigger,
            setup,
        })
    }

    /// As another process finds it.
    pub fn reopen(&mut self) -> Result<()> {
        self.repo.odb().release_index();
        self.repo = open_repo(&self.dir, self.bare, self.setup, &self.trigger)?;
        Ok(())
    }

    /// A handle for those who come from elsewhere.
    pub fn elsewhere(&self) -> Result<Repo> {
        let setup = Setup::default();
        open_repo(&self.dir, self.bare, setup, &self.trigger).map(|repo| repo.from_elsewhere().without_index())
    }

    /// Where the repository itself is.
    pub fn store(&self) -> PathBuf {
        store(&self.dir, self.bare)
    }
}

fn store(dir: &Path, bare: bool) -> PathBuf {
    if bare { dir.to_owned() } else { dir.join(DIR) }
}

fn open_repo(dir: &Path, bare: bool, setup: Setup, trigger: &Trigger) -> Result<Repo> {
    let store = store(dir, bare);
    let storage = Faulty::new(LocalStorage::new(&store), &store, trigger.clone());
    let index = setup.index.then(|| store.join("index"));
    let work = (!bare).then(|| dir.to_owned());
    let repo = Repo::with_storage(Arc::new(storage), engine(), index, Some(store), work)?;
    Ok(completed(repo, &engine()))
}

/// What happened beside a verb.
#[derive(Default)]
pub struct Beside {
    /// Whether a fault happened, and whether the process is gone with it.
    pub fault: bool,
    pub dead: bool,
    /// What a program wrote meanwhile.
    pub wrote: Option<(String, Option<File>)>,
}

type Wrote = Arc<Mutex<Option<(String, Option<File>)>>>;

/// Trouble that has been prepared.
pub struct Rig {
    pub progress: Interruption,
    wrote: Wrote,
}

fn writer(dir: &Path, write: Write1, wrote: &Wrote) -> Hook {
    let (dir, wrote) = (dir.to_owned(), wrote.clone());
    Box::new(move || {
        if files::write(&dir, &write) {
            let name = NAMES[write.name];
            let found = Some((name.to_owned(), files::read(&dir.join(name))));
            wrote.lock().map(|mut w| *w = found).unwrap_or_default();
        }
    })
}

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

    /// Prepares trouble for a verb of one place; `dir` is where a writer writes.
    pub fn rig(&mut self, trouble: Trouble, at: usize, other: Option<usize>, dir: &Path) -> Rig {
        let wrote = Wrote::default();
        let mut progress = Interruption::default();
        match trouble {
            Trouble::None => {}
            Trouble::Fault { fault, at: n, there } => {
                let whose = other.filter(|_| there).unwrap_or(at);
                self.real(whose).trigger.arm(fault, n);
            }
            Trouble::Writer {
                write,
                at: n,
                by_progress,
            } => {
                let hook = writer(dir, write, &wrote);
                match by_progress {
                    true => progress = Interruption::by_writer(hook, n),
                    false => self.real(at).trigger.arm_hook(hook, n),
                }
            }
            Trouble::Stop { at } => progress = Interruption::by_stop(at),
        }
        Rig { progress, wrote }
    }

    /// Ends the trouble; a process that is gone is followed by another.
    pub fn unrig(&mut self, rig: Rig, trouble: Trouble) -> Check<Beside> {
        let mut beside = Beside::default();
        for (_, real) in self.places.iter_mut().flatten() {
            let (fired, dead) = real.trigger.disarm();
            beside.fault |= fired;
            beside.dead |= dead;
            if dead {
                real.reopen()
                    .map_err(|e| format!("cannot be opened after a kill: {e}"))?;
            }
        }
        drop(rig.progress);
        beside.wrote = rig.wrote.lock().map(|mut w| w.take()).unwrap_or_default();
        if let (true, Trouble::Fault { fault, .. }) = (beside.fault, trouble) {
            *self.tally.faults.entry(format!("{fault:?}")).or_default() += 1;
        }
        if beside.wrote.is_some() {
            *self.tally.faults.entry("Writer".to_owned()).or_default() += 1;
        }
        Ok(beside)
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
        let (must, may) = (
            matches!(expected, Expect::Done(_)),
            !matches!(expected, Expect::Refused),
        );
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
        now.refs = now
            .refs
            .into_iter()
            .map(|(name, id)| (format!("refs/{name}"), id))
            .collect();
        now.head = real.repo.refs().head().map_err(said)?;
        now.pruned = real.repo.pruned().map_err(said)?.iter().map(|(id, _)| *id).collect();
        if model.work.is_some() {
            now.base = real.repo.files_of().map_err(said)?;
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
                return fail(format!(
                    "{name} of the new version is {is:?}, was {was:?}, meanwhile {written:?}"
                ));
            }
        }
        let commit = repo.odb().commit(&id).map_err(|e| e.to_string())?;
        if commit.parents.first().copied() != parent {
            return fail(format!("the new version follows {:?}, not {parent:?}", commit.parents));
        }
        let step = commit.step;
        self.known.add(
            id,
            Version {
                parent,
                files: found,
                step,
            },
        );
        Ok(())
    }
}

/// What was, what is, and what may be.
struct Judge<'a> {
    before: &'a Place,
    afters: &'a [Place],
    now: &'a Place,
    done: bool,
    troubled: bool,
    wrote: Option<&'a (String, Option<File>)>,
    forced: bool,
}

impl Judge<'_> {
    /// The place as it is now, if it may be so.
    fn taken_over(&self, known: &Known) -> Check<Place> {
        let Judge { before, now, .. } = self;
        let like = self.afters.iter().find(|a| a.refs == now.refs && a.head == now.head);
        let after = match (self.done, like) {
            (true, None) => {
                return fail(format!(
                    "refs are {:#?}\n  and should be {:#?}",
                    names(now),
                    self.afters.first().map(names)
                ));
            }
            (_, Some(after)) => after,
            (false, None) => self.afters.first().unwrap_or(before),
        };
        if !self.done {
            self.refs_are_old_or_new(after)?;
        }
        self.work_is_right(after)?;
        self.rest_is_right(after)?;
        let mut out = (*now).clone();
        let mut held = known.reach(now.refs.values().copied());
        if let Head::Detached(id) = now.head {
            held.extend(known.reach([id]));
        }
        let mix = |b: &BTreeSet<Id>, a: &BTreeSet<Id>| -> BTreeSet<Id> {
            match self.done {
                true => a.clone(),
                false => a
                    .iter()
                    .filter(|id| b.contains(*id) || held.contains(*id))
                    .copied()
                    .collect(),
            }
        };
        out.alive = mix(&before.alive, &after.alive);
        out.own = mix(&before.own, &after.own);
        out.fetched = mix(&before.fetched, &after.fetched);
        out.shards = after.shards.clone();
        out.logged = before.logged.intersection(&after.logged).copied().collect();
        let changed = |name: &String| before.refs.get(name) != now.refs.get(name);
        for name in before.refs.keys().chain(now.refs.keys()).filter(|name| changed(name)) {
            let ends = [before.refs.get(name), now.refs.get(name)];
            out.logged.extend(ends.into_iter().flatten().map(|id| known.peel(id)));
        }
        if !self.troubled && before.tip() != now.tip() {
            out.logged.extend([before.tip(), now.tip()].into_iter().flatten());
        }
        Ok(out)
    }

    fn refs_are_old_or_new(&self, after: &Place) -> Check {
        let Judge { before, now, .. } = self;
        let all: BTreeSet<&String> = [before, now, &after].iter().flat_map(|p| p.refs.keys()).collect();
        for name in all {
            let (was, is, to_be) = (before.refs.get(name), now.refs.get(name), after.refs.get(name));
            if is != was && !(self.troubled && is == to_be) {
                return fail(format!("{name} moved from {was:?} to {is:?}, and the verb failed"));
            }
        }
        if now.head != before.head && !(self.troubled && now.head == after.head) {
            return fail(format!(
                "HEAD moved from {:?} to {:?}, and the verb failed",
                before.head, now.head
            ));
        }
        Ok(())
    }

    fn work_is_right(&self, after: &Place) -> Check {
        let (was, is, to_be) = (self.before.files(), self.now.files(), after.files());
        let all: BTreeSet<&String> = [&was, &is, &to_be].iter().flat_map(|f| f.keys()).collect();
        let base = self.before.base.is_some().then_some(());
        for name in all {
            let (w, i, t) = (was.get(name), is.get(name), to_be.get(name));
            let written = self.wrote.filter(|(n, _)| n == name).map(|(_, file)| file.as_ref());
            let right = match (written, self.done) {
                // What a program wrote stays, unless that was in a version, or was given up.
                (Some(v), _) => {
                    let replaceable = self.forced || v.is_none() || base.is_some() && v == w;
                    i == v || replaceable && (i == t || i == w)
                }
                (None, true) => i == t,
                (None, false) => i == w || (self.troubled || self.wrote.is_some()) && i == t,
            };
            if !right {
                return fail(format!(
                    "{name} is {i:?}; it was {w:?}, is to be {t:?}, and meanwhile was written as {written:?}"
                ));
            }
        }
        Ok(())
    }

    fn rest_is_right(&self, after: &Place) -> Check {
        let Judge { before, now, .. } = self;
        let quiet = !self.troubled && self.wrote.is_none();
        let bases = [before.base, after.base, now.tip()];
        if now.base != if self.done { after.base } else { before.base } && (quiet || !bases.contains(&now.base)) {
            return fail(format!(
                "the files are said to be of {:?}: {:?} before, {:?} after",
                now.base, before.base, after.base
            ));
        }
        let right = match self.done {
            true => now.pruned == after.pruned,
            false if self.troubled => {
                before
                    .pruned
                    .intersection(&after.pruned)
                    .all(|id| now.pruned.contains(id))
                    && now
                        .pruned
                        .iter()
                        .all(|id| before.pruned.contains(id) || after.pruned.contains(id))
            }
            false => now.pruned == before.pruned,
        };
        match right {
            true => Ok(()),
            false => fail(format!(
                "pruned are {:?}; before {:?}, after {:?}",
                now.pruned, before.pruned, after.pruned
            )),
        }
    }
}

fn names(place: &Place) -> (Vec<(String, String)>, Head) {
    let refs = place.refs.iter().map(|(name, id)| (name.clone(), id.short()));
    (refs.collect(), place.head.clone())
}
