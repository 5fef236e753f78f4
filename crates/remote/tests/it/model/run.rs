//! Runs a history from its first step to its last, or to the first thing that is found.

use crate::model::{
    check::Check,
    files::Rng,
    real::{Real, Setup},
    reference::{Known, Place},
    steps::{Source, Step, Trouble, Verb},
    tally::Tally,
    world::{PARTIAL, World},
    writers::Write1,
};
use mdl_repo::Remote;
use std::{
    any::Any,
    collections::BTreeMap,
    fs,
    panic::{AssertUnwindSafe, catch_unwind},
    path::PathBuf,
    thread::sleep,
    time::Duration,
};
use tempfile::TempDir;

/// Steps between two looks at everything, unless `MDL_MODEL_EVERY` says otherwise.
const EVERY: usize = 60;
/// Longer than a file must be left alone for its state to be remembered.
const REST: Duration = Duration::from_millis(2100);

/// What was found, and at which step.
pub struct Failure {
    pub at: usize,
    pub what: String,
}

/// In memory where there is such a place, with and without an index; every fourth history on a disk.
pub fn setup_of(seed: u64) -> Setup {
    Setup { disk: seed % 4 == 3, index: seed % 2 == 1 }
}

fn said(panic: &(dyn Any + Send)) -> String {
    let text = panic.downcast_ref::<String>().map(String::as_str);
    let text = text.or(panic.downcast_ref::<&str>().copied());
    format!("panic: {}", text.unwrap_or("no text"))
}

pub fn run(seed: u64, steps: &[Step], setup: Setup) -> (Tally, Option<Failure>) {
    let mut world = match World::new(setup) {
        Ok(world) => world,
        Err(what) => return (Tally::default(), Some(Failure { at: 0, what })),
    };
    let mut rng = Rng(seed);
    let every = crate::model::setting("MDL_MODEL_EVERY").unwrap_or(EVERY);
    for (at, step) in steps.iter().enumerate() {
        let mut one = || -> Check {
            let place = world.step(step)?;
            world.look(place, &mut rng)?;
            if at % every == every - 1 || at + 1 == steps.len() {
                world.look_at_all()?;
            }
            Ok(())
        };
        let done = catch_unwind(AssertUnwindSafe(&mut one)).unwrap_or_else(|panic| Err(said(&*panic)));
        world.tally.steps += 1;
        if let Err(what) = done {
            let what = format!("{what}\n  at step {at}: {step:?}");
            return (world.tally, Some(Failure { at, what }));
        }
    }
    (world.tally, None)
}

impl World {
    pub fn new(setup: Setup) -> Check<World> {
        let memory = PathBuf::from("/dev/shm");
        let root = match !setup.disk && memory.is_dir() {
            true => TempDir::new_in(memory),
            false => TempDir::new(),
        };
        let root = root.map_err(|e| e.to_string())?;
        let hub = root.path().join("hub");
        let origin =
            Remote { url: hub.display().to_string(), partial: false, depth: None, only: Vec::new(), branch: None };
        let made = |e: mdl_repo::RepoError| e.to_string();
        let main = Real::make(&root.path().join("main"), false, setup, Some(&origin)).map_err(made)?;
        let hub = Real::make(&hub, true, setup, None).map_err(made)?;
        Ok(World {
            root,
            setup,
            known: Known::default(),
            places: [Some((Place::new(false, false), main)), None, None, Some((Place::new(true, false), hub))],
            maps: BTreeMap::new(),
            out: BTreeMap::new(),
            serial: 0,
            tally: Tally::default(),
            verb: "",
        })
    }

    /// Runs a step; returns where.
    pub fn step(&mut self, step: &Step) -> Check<usize> {
        self.refresh_partial();
        let any = if self.is_there(step.place) { step.place } else { 0 };
        let work = self.with_work(step.place);
        let (trouble, quiet) = (step.trouble, Trouble::None);
        let full = if any == PARTIAL { 0 } else { any };
        let text = format!("{:?}", step.verb);
        self.verb = name_of(&text);
        let (at, done) = match step.verb.clone() {
            Verb::Write(w) => {
                self.write(work, &w);
                (work, Ok(()))
            }
            Verb::HeldMap(w) => {
                self.held_map(work, &w);
                (work, Ok(()))
            }
            Verb::Rest(w) => (work, self.rest(work, &w)),
            Verb::Reopen => (any, self.reopen(any)),
            Verb::Commit { source, branch, label } => (work, self.commit(work, source, branch, label, trouble)),
            Verb::Checkout { version, force } => (work, self.checkout(work, version, force, trouble)),
            Verb::CheckoutOnly { version, name, force } => {
                (work, self.checkout_only(work, (version, name), force, trouble))
            }
            Verb::CheckoutTo { version, force } => (any, self.checkout_to(any, version, force, trouble)),
            Verb::Switch { branch, force } => (work, self.switch(work, branch, force, trouble)),
            Verb::SwitchNew { branch, start, force } => (work, self.switch_new(work, branch, start, force, trouble)),
            Verb::Merge { version } => (work, self.merge(work, version, trouble)),
            Verb::Reset { version, hard } => (work, self.reset(work, version, hard, trouble)),
            Verb::Branch { branch, version, force } => (any, self.branch(any, branch, version, force, trouble)),
            Verb::DeleteBranch { branch, force } => (any, self.delete_branch(any, branch, force, trouble)),
            Verb::RenameBranch { from, to } => (any, self.rename_branch(any, (from, to), trouble)),
            Verb::Tag { tag, version, annotated, force } => {
                (any, self.tag(any, (tag, version), annotated, force, trouble))
            }
            Verb::DeleteTag { tag } => (any, self.delete_tag(any, tag, trouble)),
            Verb::Prune { branch, latest, every } => (full, self.prune(full, branch, latest, every, trouble)),
            Verb::Undo { version } => (full, self.undo(full, version, trouble)),
            Verb::Gc(how) => (any, self.gc(any, how, trouble)),
            Verb::Compact => (any, self.compact(any, trouble)),
            Verb::Fsck { quick } => (any, self.fsck(any, quick, trouble)),
            Verb::Clone { partial } => (0, self.clone(partial, trouble)),
            Verb::Fetch => (work, self.fetch(work, trouble).map(drop)),
            Verb::Pull { branch } => (work, self.pull(work, branch, trouble)),
            Verb::Push { branch, tag, force, delete } => (work, self.push(work, (branch, tag), force, delete, trouble)),
            Verb::Watch { branch, seed } => (work, self.watch(work, branch, seed, trouble)),
            Verb::Put { session, rank, seed, stage } => {
                (work, self.put_shard(work, (session, rank), seed, stage, trouble))
            }
            Verb::Join { session, ranks } => (work, self.join(work, session, ranks, trouble)),
            Verb::Damage { seed } => (any, self.damage(any, seed)),
        };
        if matches!(step.verb, Verb::Rest(_) | Verb::Reopen | Verb::Damage { .. }) && quiet == Trouble::None {
            self.tally.verbs.entry(self.verb).or_default()[0] += 1;
        }
        done.map(|()| at)
    }

    /// A file is written to through a map, left alone until its state is remembered, and written to through the same
    /// map again. A partial clone is given a file that its origin has and that has not come, which is then committed.
    fn rest(&mut self, at: usize, w: &Write1) -> Check {
        if at == PARTIAL {
            self.write_unfetched();
        }
        self.held_map(at, w);
        sleep(REST);
        self.status_is_true(at)?;
        if at == PARTIAL && self.place(at).base.is_none() {
            self.reset(at, 0, false, Trouble::None)?;
            self.commit(at, Source::WorkTree, None, true, Trouble::None)?;
            return self.look_at_all();
        }
        let again = Write1 { seed: w.seed + 1, ..*w };
        self.held_map(at, &again);
        self.status_is_true(at)
    }

    fn write_unfetched(&mut self) {
        let place = self.place(PARTIAL);
        let versions = place.fetched.iter().filter_map(|id| self.known.versions.get(id));
        let found = versions.flat_map(|v| v.files.get("tokens.npy")).next().cloned();
        if let Some(file) = found {
            let path = self.real(PARTIAL).dir.join("tokens.npy");
            // A directory in its place stays.
            let _ = fs::write(path, &*file.bytes);
            self.take_work(PARTIAL);
        }
    }

    fn reopen(&mut self, at: usize) -> Check {
        if let Some((_, real)) = &mut self.places[at] {
            real.reopen().map_err(|e| e.to_string())?;
        }
        Ok(())
    }
}

/// The verb of a step as it is counted.
fn name_of(text: &str) -> &'static str {
    const ALL: [&str; 31] = [
        "Write",
        "HeldMap",
        "Rest",
        "Reopen",
        "CommitLossy",
        "Commit",
        "CheckoutOnly",
        "CheckoutTo",
        "Checkout",
        "SwitchNew",
        "Switch",
        "Merge",
        "Reset",
        "Branch",
        "DeleteBranch",
        "RenameBranch",
        "Tag",
        "DeleteTag",
        "Prune",
        "Undo",
        "Gc",
        "Compact",
        "Fsck",
        "Clone",
        "Fetch",
        "Pull",
        "Push",
        "Watch",
        "Put",
        "Join",
        "Damage",
    ];
    ALL.into_iter().find(|name| text.starts_with(name)).unwrap_or("")
}
