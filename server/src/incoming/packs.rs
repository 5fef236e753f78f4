//! Partial packs: uploaded in parts, kept over restarts of the server until the repository has stored them.
//!
//! Requests that send parts of one pack share its file; one that nothing writes to is closed after a while, and opened
//! again.

use crate::{
    incoming::{quota::Holder, room, room::Room},
    problem::{Problem, Result},
    process::state::entries,
    registry::RepoKey,
    tasks::keyed_mutex::KeyedMutex,
};
use mdl_remote::{
    Gap, PartialPack,
    sync::{Arrived, TakenIn},
};
use mdl_repo::{ErrorKind, Progress, Repo, pack::PackId};
use parking_lot::Mutex;
use std::{
    collections::HashMap,
    fs,
    path::PathBuf,
    sync::Arc,
    time::{Duration, Instant},
};

/// Name of their directory in a repository's.
pub(super) const KIND: &str = "packs";
/// Most partial packs per repository.
const MAX_PACKS: usize = 4096;
/// How long a pack may be idle before its files are closed.
const IDLE: Duration = Duration::from_secs(60);
/// How long the outcome of storing packs is remembered, for clients that lost the answer.
const REMEMBERED: Duration = Duration::from_secs(15 * 60);
const MAX_REMEMBERED: usize = 256;

/// A pack: its name and length.
pub(crate) type PackName = (PackId, u64);

/// A pack whose files are open.
#[derive(Debug)]
struct OpenPack {
    pack: Arc<PartialPack>,
    used: Instant,
}

/// Stored packs, and the outcome.
#[derive(Debug)]
struct StoredPacks {
    repo: RepoKey,
    packs: Vec<PackName>,
    taken: TakenIn,
    when: Instant,
}

/// All partial packs.
#[derive(Debug)]
pub struct PartialPacks {
    room: Arc<Room>,
    max: u64,
    open: Mutex<HashMap<(RepoKey, PackName), OpenPack>>,
    done: Mutex<Vec<StoredPacks>>,
    /// One request at a time stores packs: a concurrent retry gets the same answer.
    pub(crate) taking: KeyedMutex<RepoKey>,
}

impl PartialPacks {
    /// One has at most `max` bytes. Those that an earlier process left are counted.
    pub(super) fn new(room: Arc<Room>, max: u64) -> PartialPacks {
        for (repo, dir) in room.repositories() {
            let files = entries(&dir.join(KIND)).into_iter();
            for path in files.filter(|p| p.extension().is_some_and(|e| e == "part")) {
                // The file has the pack's length from the start.
                let size = fs::metadata(&path).map_or(0, |m| m.len());
                room.hold_again(&repo, &path, None, size);
            }
        }
        PartialPacks { room, max, open: Mutex::default(), done: Mutex::default(), taking: KeyedMutex::default() }
    }

    fn dir(&self, repo: &RepoKey) -> PathBuf {
        self.room.dir(repo, KIND)
    }

    /// Refuses packs that are longer than the server takes, or have no bytes.
    pub(crate) fn check_size(&self, (_, size): PackName) -> Result<()> {
        match size {
            0 => Err(Problem::usage("a pack has more than 0 bytes")),
            size if size > self.max => Err(room::too_large(self.max)),
            _ => Ok(()),
        }
    }

    /// Returns the gaps of a pack; does not begin one.
    pub(crate) fn missing(&self, holder: &Holder, named: PackName) -> Result<Vec<Gap>> {
        if !PartialPack::is_begun(&self.dir(&holder.repo), named.0, named.1) {
            let all = 0..mdl_remote::parts(named.1);
            return Ok(all.map(|part| Gap { part, from: 0 }).collect());
        }
        Ok(self.pack(holder, named)?.missing())
    }

    /// Begins or resumes a pack.
    pub(crate) fn pack(&self, holder: &Holder, named: PackName) -> Result<Arc<PartialPack>> {
        let key = (holder.repo.clone(), named);
        let mut open = self.open.lock();
        if let Some(found) = open.get_mut(&key) {
            found.used = Instant::now();
            return Ok(found.pack.clone());
        }
        let dir = self.room.make(&holder.repo, KIND)?;
        let reservation = match PartialPack::is_begun(&dir, named.0, named.1) {
            true => None,
            false => Some(self.begin(holder, named.1)?),
        };
        let pack = match PartialPack::open(&dir, named.0, named.1) {
            Ok(pack) => Arc::new(pack),
            // A request that is just about to end still has it.
            Err(e) if e.kind() == ErrorKind::User => return Err(Problem::busy(e.to_string(), 1)),
            Err(e) => return Err(e.into()),
        };
        if let Some(reservation) = reservation {
            // It counts from here on even if the note fails.
            self.room.hold(pack.path(), reservation);
            self.room.note_sender(pack.path(), holder)?;
        }
        open.insert(key, OpenPack { pack: pack.clone(), used: Instant::now() });
        Ok(pack)
    }

    /// Counts one pack more, if the repository may have it.
    fn begin(&self, holder: &Holder, size: u64) -> Result<super::quota::Reservation> {
        let files = room::list(&self.dir(&holder.repo))?;
        if files.iter().filter(|p| p.extension().is_some_and(|e| e == "part")).count() >= MAX_PACKS {
            return Err(Problem::conflict("the repository has too many packs under way")
                .hint("finish the pushes under way, or wait until what is not gone on with is a day old"));
        }
        self.room.quota.reserve(holder, size)
    }

    /// Checks whole packs and stores what is new in them, all together: one may build on another.
    pub(crate) fn take(
        &self,
        repo: &Repo,
        holder: &Holder,
        mut packs: Vec<PackName>,
        progress: &dyn Progress,
    ) -> Result<TakenIn> {
        let key = &holder.repo;
        packs.sort();
        packs.dedup();
        let begun = |p: &&PackName| PartialPack::is_begun(&self.dir(key), p.0, p.1);
        let there = packs.iter().filter(begun).count();
        if there == 0
            && let Some(done) = self.done.lock().iter().find(|d| d.repo == *key && d.packs == packs)
        {
            return Ok(done.taken);
        }
        let mut arrived = Vec::new();
        if there == packs.len() {
            for p in &packs {
                arrived.extend(self.pack(holder, *p)?.arrived());
            }
        }
        if arrived.len() < packs.len() {
            let message = format!("{} of {} packs are not all there", packs.len() - arrived.len(), packs.len());
            return Err(Problem::conflict(message)
                .code("PartsMissing")
                .hint("ask which parts are missing, and send them"));
        }
        let taken = mdl_remote::sync::receive_pack(repo, &arrived, Some(self.max), progress);
        // A corrupt partial pack must not be kept: every retry would fail on it.
        if taken.is_ok() || taken.as_ref().is_err_and(|e| e.kind() == ErrorKind::Corrupt) {
            self.forget(key, &packs, &arrived);
        }
        let taken = taken.map_err(crate::sync::theirs)?;
        let mut done = self.done.lock();
        if done.len() >= MAX_REMEMBERED {
            done.remove(0);
        }
        done.push(StoredPacks { repo: key.clone(), packs, taken, when: Instant::now() });
        Ok(taken)
    }

    fn forget(&self, repo: &RepoKey, packs: &[PackName], arrived: &[Arrived]) {
        let mut open = self.open.lock();
        for (p, a) in packs.iter().zip(arrived) {
            let pack = open.remove(&(repo.clone(), *p)).map(|o| Arc::try_unwrap(o.pack));
            if let Some(Ok(pack)) = pack {
                pack.clear();
            }
            // A part may be being sent again: without its bytes the list of parts means nothing.
            let _ = self.room.remove(&a.path);
        }
    }

    /// Closes idle packs, and drops those not written to for this long.
    pub(super) fn sweep(&self, age: Duration) {
        let mut open = self.open.lock();
        open.retain(|_, o| o.used.elapsed() < IDLE || Arc::strong_count(&o.pack) > 1);
        // Under the lock: what is swept is not being opened.
        for (_, dir) in self.room.repositories() {
            let _ = mdl_remote::sweep(&dir.join(KIND), age);
        }
        drop(open);
        self.done.lock().retain(|d| d.when.elapsed() < REMEMBERED);
    }
}
