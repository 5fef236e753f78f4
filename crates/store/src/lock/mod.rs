//! The write guard, held by a writer from before its first look-up until its last ref has moved.
//!
//! In a storage with locks it is a lock, and no more. In one without, three rules stand in for it
//! (docs/design/0009-collection-without-locks.md has the proof):
//!
//! 1. What was doomed when the writer began is not relied on: it is stored again, or taken off the list first.
//! 2. Right before a pack becomes visible and before a ref moves the list is read again: if a pack has been doomed
//!    since for more than half of its grace, or is gone, nothing happens and the writer begins anew.
//! 3. Packs are only deleted once their grace is over and no ref nor any pack that stays needs them.

pub mod doomed;

use crate::{
    RepoError, Result,
    pack::PackId,
    storage::{Guard, Storage},
};
use doomed::DoomedPacks;
use std::{
    collections::BTreeSet,
    sync::Arc,
    time::{SystemTime, UNIX_EPOCH},
};

/// Keeps collectors from what a writer relies on.
#[derive(Debug)]
#[must_use = "collectors are kept away only while it lives"]
pub(crate) struct WriteGuard {
    held: Box<dyn Guard>,
    /// None where the lock itself keeps collectors out.
    watch: Option<Watch>,
}

#[derive(Debug)]
struct Watch {
    storage: Arc<dyn Storage>,
    /// The last change of the list that the writer has seen.
    change: u64,
}

impl WriteGuard {
    /// The guard of a collector that has locked all writers out.
    pub fn alone(held: Box<dyn Guard>) -> WriteGuard {
        WriteGuard { held, watch: None }
    }

    /// The guard of a writer that has seen this change of the list of doomed packs.
    pub(crate) fn watching(held: Box<dyn Guard>, storage: Arc<dyn Storage>, change: u64) -> WriteGuard {
        WriteGuard { held, watch: Some(Watch { storage, change }) }
    }

    /// Whether packs may be doomed while it is held.
    pub(crate) fn watches(&self) -> bool {
        self.watch.is_some()
    }

    /// Checks the guard right before a ref moves, or before anything else comes to refer to objects. `Overtaken`: what
    /// was looked up may be about to be deleted; nothing may be built on it.
    pub fn revalidate(&self) -> Result<()> {
        self.held.check()?;
        self.watch.as_ref().map_or(Ok(()), |w| w.revalidate().map(drop))
    }

    /// Checks the guard right before a pack becomes visible under its name. A pack of the same content, and so of the
    /// same name, may have been doomed: that is taken back. `Overtaken`, also where that pack is being deleted just
    /// now.
    pub fn check_publishable(&self, pack: PackId) -> Result<()> {
        self.held.check()?;
        let Some(watch) = &self.watch else { return Ok(()) };
        if watch.revalidate()?.packs.contains_key(&pack) {
            rescue(&*watch.storage, &[pack].into())?;
        }
        Ok(())
    }
}

impl Watch {
    fn revalidate(&self) -> Result<DoomedPacks> {
        let list = doomed::read(&*self.storage)?.list;
        let now = now_ms();
        let is_new = |change: u64| change > self.change;
        let too_late =
            list.packs.values().any(|s| is_new(s.change) && (s.going || now.saturating_sub(s.at_ms) > s.grace_ms / 2));
        // A list that is younger than this writer says nothing of what was on it before.
        if too_late || is_new(list.deleted) || list.change < self.change {
            return Err(RepoError::Overtaken);
        }
        Ok(list)
    }
}

/// Takes packs off the list of doomed ones, which they were on a moment ago. `Overtaken`: one is being deleted, or is
/// on the list no more, and so perhaps deleted.
pub(crate) fn rescue(storage: &dyn Storage, packs: &BTreeSet<PackId>) -> Result<DoomedPacks> {
    doomed::change(storage, |list| {
        let waits = |p: &PackId| list.packs.get(p).is_some_and(|s| !s.going);
        if !packs.iter().all(waits) {
            return Err(RepoError::Overtaken);
        }
        list.packs.retain(|p, _| !packs.contains(p));
        Ok(())
    })
}

/// Now, in milliseconds since 1970.
pub fn now_ms() -> i64 {
    let since = SystemTime::now().duration_since(UNIX_EPOCH);
    since.map_or(0, |d| i64::try_from(d.as_millis()).unwrap_or(i64::MAX))
}
