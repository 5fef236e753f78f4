//! Bundles on their way in, by repository, kept over restarts of the server until they are taken in. Neighbours: `mdl-remote` keeps the
//! parts, `packs` are the routes. It must not know who sends, nor what is in a bundle.
//!
//! Requests that send parts of one bundle share its landing; one that nobody writes to is let go after a while, and found again.

use crate::{
    problem::{Problem, Result},
    registry::RepoName,
    spool::medium,
    state,
};
use mdl_remote::{Gap, Landing};
use mdl_repo::{
    ErrorKind, Progress, Repo,
    pack::PackId,
    sync::{Arrived, TakenIn},
};
use std::{
    collections::HashMap,
    fs, io,
    path::{Path, PathBuf},
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::{Duration, Instant},
};
use tokio::sync::OwnedMutexGuard;

const DIR: &str = "incoming";
/// Bundles that a repository may have under way.
const MAX_BUNDLES: usize = 4096;
/// How long nobody need write to a landing before its files are closed.
const IDLE: Duration = Duration::from_secs(60);
/// How long it is remembered what taking bundles in came to: for those who lost the answer.
const REMEMBERED: Duration = Duration::from_secs(15 * 60);
const MAX_REMEMBERED: usize = 256;

/// A bundle: its name and length.
pub(super) type Named = (PackId, u64);

/// A landing that is open.
#[derive(Debug)]
struct Open {
    landing: Arc<Landing>,
    used: Instant,
}

/// Bundles that were taken in, and what that came to.
#[derive(Debug)]
struct Done {
    repo: RepoName,
    packs: Vec<Named>,
    taken: TakenIn,
    when: Instant,
}

/// The bundles under way.
#[derive(Debug)]
pub(super) struct Landings {
    dir: PathBuf,
    max: u64,
    open: Mutex<HashMap<(RepoName, Named), Open>>,
    done: Mutex<Vec<Done>>,
    turns: Mutex<HashMap<RepoName, Arc<tokio::sync::Mutex<()>>>>,
}

fn locked<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Landings {
    /// All bundles of a repository together may have `max` bytes.
    pub(super) fn new(state: &Path, max: u64) -> Landings {
        Landings {
            dir: state.join(DIR),
            max,
            open: Mutex::default(),
            done: Mutex::default(),
            turns: Mutex::default(),
        }
    }

    fn of(&self, repo: &RepoName) -> PathBuf {
        self.dir.join(repo.owner()).join(repo.name())
    }

    /// Refuses bundles that are longer than the server takes, or have no bytes.
    pub(super) fn fits(&self, (_, size): Named) -> Result<()> {
        match size {
            0 => Err(Problem::usage("a pack has more than 0 bytes")),
            size if size > self.max => Err(Problem::too_large(format!("more than {} bytes", self.max))),
            _ => Ok(()),
        }
    }

    /// Parts that are not all there yet. Nothing is begun by asking.
    pub(super) fn missing(&self, repo: &RepoName, named: Named) -> Result<Vec<Gap>> {
        if !Landing::is_begun(&self.of(repo), named.0, named.1) {
            let all = 0..mdl_remote::parts(named.1);
            return Ok(all.map(|part| Gap { part, from: 0 }).collect());
        }
        Ok(self.landing(repo, named)?.missing())
    }

    /// The landing of a bundle, begun or gone on with.
    pub(super) fn landing(&self, repo: &RepoName, named: Named) -> Result<Arc<Landing>> {
        let mut open = locked(&self.open);
        if let Some(found) = open.get_mut(&(repo.clone(), named)) {
            found.used = Instant::now();
            return Ok(found.landing.clone());
        }
        let dir = self.of(repo);
        if !Landing::is_begun(&dir, named.0, named.1) {
            self.room(&dir, named.1)?;
        }
        state::make(&dir)?;
        let landing = match Landing::open(&dir, named.0, named.1) {
            Ok(landing) => Arc::new(landing),
            // A request that is just about to end still has it.
            Err(e) if e.kind() == ErrorKind::User => return Err(Problem::busy(e.to_string(), 1)),
            Err(e) => return Err(e.into()),
        };
        let used = Instant::now();
        let kept = Open {
            landing: landing.clone(),
            used,
        };
        open.insert((repo.clone(), named), kept);
        Ok(landing)
    }

    /// Refuses one bundle more than a repository may have under way.
    fn room(&self, dir: &Path, size: u64) -> Result<()> {
        let entries = match fs::read_dir(dir) {
            Err(e) if e.kind() == io::ErrorKind::NotFound => return Ok(()),
            entries => entries.map_err(medium)?,
        };
        let (mut bundles, mut promised) = (1, size);
        for entry in entries.flatten() {
            if entry.path().extension().is_some_and(|e| e == "part") {
                bundles += 1;
                promised = promised.saturating_add(entry.metadata().map_or(0, |m| m.len()));
            }
        }
        if bundles > MAX_BUNDLES || promised > self.max {
            return Err(Problem::conflict("the repository has too many packs under way")
                .hint("finish the pushes under way, or wait until what nobody goes on with is a day old"));
        }
        Ok(())
    }

    /// One at a time takes bundles in: whoever asks again while the first is at it gets the same answer.
    pub(super) async fn turn(&self, repo: &RepoName) -> OwnedMutexGuard<()> {
        let turn = locked(&self.turns).entry(repo.clone()).or_default().clone();
        turn.lock_owned().await
    }

    /// Checks whole bundles and stores what is new in them, all together: one may build on another.
    pub(super) fn take(
        &self,
        repo: &Repo,
        name: &RepoName,
        mut packs: Vec<Named>,
        progress: &dyn Progress,
    ) -> Result<TakenIn> {
        packs.sort();
        packs.dedup();
        let begun = |p: &&Named| Landing::is_begun(&self.of(name), p.0, p.1);
        let there = packs.iter().filter(begun).count();
        if there == 0
            && let Some(done) = locked(&self.done).iter().find(|d| d.repo == *name && d.packs == packs)
        {
            return Ok(done.taken);
        }
        let mut arrived = Vec::new();
        if there == packs.len() {
            for p in &packs {
                arrived.extend(self.landing(name, *p)?.arrived());
            }
        }
        if arrived.len() < packs.len() {
            let message = format!(
                "{} of {} packs are not all there",
                packs.len() - arrived.len(),
                packs.len()
            );
            return Err(Problem::conflict(message)
                .code("PartsMissing")
                .hint("ask which parts are missing, and send them"));
        }
        let taken = repo.take_in_pushed(&arrived, progress);
        // What is kept to go on with must not be what is wrong: it would be wrong every time.
        if taken.is_ok() || taken.as_ref().is_err_and(|e| e.kind() == ErrorKind::Corrupt) {
            self.forget(name, &packs, &arrived);
        }
        let taken = taken.map_err(super::theirs)?;
        let (repo, when) = (name.clone(), Instant::now());
        let mut done = locked(&self.done);
        if done.len() >= MAX_REMEMBERED {
            done.remove(0);
        }
        done.push(Done {
            repo,
            packs,
            taken,
            when,
        });
        Ok(taken)
    }

    fn forget(&self, repo: &RepoName, packs: &[Named], arrived: &[Arrived]) {
        let mut open = locked(&self.open);
        for (p, a) in packs.iter().zip(arrived) {
            let landing = open.remove(&(repo.clone(), *p)).map(|o| Arc::try_unwrap(o.landing));
            match landing {
                Some(Ok(landing)) => landing.clear(),
                // Somebody sends a part again: without its bytes the list of parts says nothing.
                _ => drop(fs::remove_file(&a.path)),
            }
        }
    }

    /// Closes what is idle, and drops what nobody wrote to for this long.
    pub(super) fn rest(&self, age: Duration) {
        let mut open = locked(&self.open);
        open.retain(|_, o| o.used.elapsed() < IDLE || Arc::strong_count(&o.landing) > 1);
        // Under the lock: what is swept is not being opened.
        for dir in super::whole::inside(&self.dir)
            .iter()
            .flat_map(|owner| super::whole::inside(owner))
        {
            let _ = mdl_remote::sweep(&dir, age);
        }
        drop(open);
        locked(&self.done).retain(|d| d.when.elapsed() < REMEMBERED);
        locked(&self.turns).retain(|_, turn| Arc::strong_count(turn) > 1);
    }
}
