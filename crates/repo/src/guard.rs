//! The write guard, held by a writer from before its first look-up until its last ref has moved.
//!
//! In a storage with locks it is a lock, and no more. In one without, three rules stand in for it
//! (docs/design/0009-collection-without-locks.md has the proof):
//!
//! 1. What was doomed when the writer began is not relied on: it is stored again, or taken off the list first.
//! 2. Right before a pack becomes visible and before a ref moves the list is read again: if a pack has been doomed
//!    since for more than half of its grace, or is gone, nothing happens and the writer begins anew.
//! 3. Packs are only deleted once their grace is over and no ref nor any pack that stays needs them.

use crate::{
    Missing, RepoError, Result,
    gc::{
        doomed::{self, DoomedPacks},
        now_ms,
    },
    pack::PackId,
    repo::Repo,
    storage::{Guard, Storage},
};
use mdl_objects::Id;
use std::{collections::BTreeSet, sync::Arc};

/// Keeps collectors from what a writer relies on.
#[derive(Debug)]
#[must_use = "collectors are kept away only while it lives"]
pub struct WriteGuard {
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
    pub(crate) fn alone(held: Box<dyn Guard>) -> WriteGuard {
        WriteGuard { held, watch: None }
    }

    /// Checks the guard right before a ref moves, or before anything else comes to refer to objects.
    ///
    /// # Errors
    /// `Overtaken`: what was looked up may be about to be deleted; nothing may be built on it. An I/O error.
    pub fn revalidate(&self) -> Result<()> {
        self.held.check()?;
        self.watch.as_ref().map_or(Ok(()), |w| w.revalidate().map(drop))
    }

    /// Checks the guard right before a pack becomes visible under its name. A pack of the same content, and so of the
    /// same name, may have been doomed: that is taken back.
    ///
    /// # Errors
    /// `Overtaken`, also where that pack is being deleted just now; an I/O error.
    pub fn check_publishable(&self, pack: PackId) -> Result<()> {
        self.held.check()?;
        let Some(watch) = &self.watch else { return Ok(()) };
        if watch.revalidate()?.packs.contains_key(&pack) {
            spare(&*watch.storage, &[pack].into())?;
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

/// Takes packs off the list of doomed ones, which they were on a moment ago.
///
/// # Errors
/// `Overtaken`: one is being deleted, or is on the list no more, and so perhaps deleted; an I/O error.
pub(crate) fn spare(storage: &dyn Storage, packs: &BTreeSet<PackId>) -> Result<DoomedPacks> {
    doomed::change(storage, |list| {
        let waits = |p: &PackId| list.packs.get(p).is_some_and(|s| !s.going);
        if !packs.iter().all(waits) {
            return Err(RepoError::Overtaken);
        }
        list.packs.retain(|p, _| !packs.contains(p));
        Ok(())
    })
}

impl Repo {
    /// Keeps collectors away while the guard lives, as every operation must that looks objects up and then relies on
    /// them. A collection that was cut off is finished first, where locks keep other processes out.
    ///
    /// # Errors
    /// The list of doomed packs is damaged; an I/O error.
    pub fn write_lock(&self) -> Result<WriteGuard> {
        if !self.storage.excludes() {
            return self.watch();
        }
        loop {
            let held = self.storage.lock_shared()?;
            if self.storage.get(&doomed::KEY)?.is_none() {
                return Ok(WriteGuard::alone(held));
            }
            drop(held);
            let _alone = self.storage.lock_exclusive()?;
            doomed::finish(&*self.storage)?;
            self.odb.reopen();
        }
    }

    fn watch(&self) -> Result<WriteGuard> {
        let held = self.storage.lock_shared()?;
        let list = doomed::read(&*self.storage)?.list;
        self.odb.avoid(&list);
        Ok(WriteGuard { held, watch: Some(Watch { storage: self.storage.clone(), change: list.change }) })
    }

    /// Keeps collectors away while a ref is about to point at a commit that perhaps nothing else reaches.
    ///
    /// # Errors
    /// There is no such commit, or it is being deleted; an I/O error.
    pub fn hold(&self, commit: &Id) -> Result<WriteGuard> {
        let guard = self.write_lock()?;
        self.odb.refresh();
        // Not `commit`, which the index may remember of one that was collected.
        self.odb.need(commit, Missing::Commit)?;
        self.pin(&guard, [*commit])?;
        Ok(guard)
    }

    /// Makes sure that these objects, as far as they exist, are in packs that are not doomed: packs are taken off
    /// the list. What an object refers to needs no asking, since no pack is deleted that one which stays needs.
    ///
    /// # Errors
    /// `Overtaken`: one is being deleted; an I/O error.
    pub(crate) fn pin(&self, held: &WriteGuard, objects: impl IntoIterator<Item = Id>) -> Result<()> {
        let Some(watch) = &held.watch else { return Ok(()) };
        let mut packs = BTreeSet::new();
        for id in objects {
            if !self.odb.contains(&id)? {
                let found = self.odb.locate(&id)?.map(|l| l.pack.id);
                packs.extend(found.filter(|p| self.odb.is_condemned(p)));
            }
        }
        if !packs.is_empty() {
            self.odb.avoid(&spare(&*watch.storage, &packs)?);
        }
        Ok(())
    }
}
