//! What works below transactions: collections and compactions, which delete packs and shorten logs.
//!
//! In a storage with locks packs are deleted once all writers are locked out. In one without, they are doomed
//! first; what is to be deleted is decided by a swap of the very list of doomed packs that the packs were sorted by, so
//! that of two collectors, or of a collector and a writer that takes a pack off the list, one begins anew. A kill
//! anywhere leaves packs on the list, which the next collection looks at afresh.

use crate::{
    RepoError, Result, Store,
    lock::{
        WriteGuard,
        doomed::{self, DoomedPack, DoomedPacks, StoredList},
        now_ms,
    },
    pack::{PackId, PackWriter},
    refs::{LogEntry, RefName},
    transaction::WriteTransaction,
};
use std::{
    collections::{BTreeMap, BTreeSet},
    ops::Deref,
};

/// The lock of a collection or a compaction.
#[derive(Debug)]
pub struct MaintenanceLock<'s>(WriteTransaction<'s>);

impl<'s> Deref for MaintenanceLock<'s> {
    type Target = WriteTransaction<'s>;

    fn deref(&self) -> &WriteTransaction<'s> {
        &self.0
    }
}

impl<'s> MaintenanceLock<'s> {
    /// Locks all writers out, where the storage has locks.
    pub fn exclusive(store: &'s Store) -> Result<MaintenanceLock<'s>> {
        let held = WriteGuard::alone(store.storage.lock_exclusive()?);
        Ok(MaintenanceLock(WriteTransaction { store, held }))
    }

    /// Works beside writers, as one of them: what is found stays until the lock is given up.
    pub fn beside_writers(store: &'s Store) -> Result<MaintenanceLock<'s>> {
        WriteTransaction::begin(store).map(MaintenanceLock)
    }

    /// Finishes a deletion that was cut off. The lock is exclusive.
    pub fn finish_deletion(&self) -> Result<()> {
        doomed::finish(&*self.store.storage)
    }

    /// Keeps a ref's newest moves for as long as `keep` holds, going back, and forgets the rest. In a storage without
    /// locks a log that grows meanwhile stays as it is. After an I/O error the log is the old one or the shortened one.
    pub fn keep_log(&self, name: &RefName, keep: &dyn Fn(&LogEntry) -> bool) -> Result<()> {
        self.store.refs.keep_log(name, keep)
    }

    /// Begins a pack of copies: what they refer to stays as long as they do, and nothing is pinned.
    pub fn pack_of_copies(&self) -> Result<PackWriter> {
        PackWriter::new(&*self.store.storage)
    }

    /// As `publish`, of a pack of copies. Until it is noted this handle reads the old copies.
    pub fn publish_copies(&self, pack: PackWriter) -> Result<PackId> {
        self.finish(pack)
    }

    /// Deletes these packs, together as far as any writer can tell: after an I/O error the next writer or collector
    /// goes on. The lock is exclusive, in a storage with locks.
    pub fn delete_together(&self, packs: &BTreeSet<PackId>) -> Result<()> {
        doomed::delete(&*self.store.storage, packs)
    }

    /// Deletes these packs one by one: each can go by itself. The lock is exclusive, in a storage with locks.
    pub fn delete_each<'p>(&self, packs: impl IntoIterator<Item = &'p PackId>) -> Result<()> {
        packs.into_iter().try_for_each(|p| self.store.storage.delete(&p.key()))
    }

    /// Dooms packs from now on; of those that wait already the grace is shortened where it would last longer.
    pub fn doom(&self, packs: &BTreeSet<PackId>, grace_ms: i64) -> Result<()> {
        if packs.is_empty() {
            return Ok(());
        }
        doomed::change(&*self.store.storage, |list| {
            let anew = DoomedPack { going: false, change: list.change + 1, at_ms: now_ms(), grace_ms };
            for pack in packs {
                let old = list.packs.entry(*pack).or_insert_with(|| anew.clone());
                if !old.going && old.over_ms() > anew.over_ms() {
                    // As if doomed only now: writers have reckoned with the old grace.
                    *old = anew.clone();
                }
            }
            Ok(())
        })
        .map(drop)
    }

    /// Takes doomed packs off the list; `Overtaken` where one is being deleted.
    pub fn rescue(&self, packs: &BTreeSet<PackId>) -> Result<()> {
        self.0.rescue(packs)
    }

    /// Takes what is needed off the list, decides what is deleted, and deletes that; `Overtaken` where another process
    /// changed the list since `seen`.
    pub fn decide(&self, seen: &StoredList, needed: &BTreeSet<PackId>, going: &BTreeSet<PackId>) -> Result<()> {
        self.delete_decided(seen, |list, now| {
            list.packs.retain(|p, _| !needed.contains(p));
            for (_, s) in list.packs.iter_mut().filter(|(p, _)| going.contains(p)) {
                (s.going, s.at_ms) = (true, now);
            }
        })
    }

    /// Goes on with what another collector had decided to delete, once that one can no longer be at it; `Overtaken`
    /// where another process changed the list meanwhile.
    pub fn take_up(&self) -> Result<()> {
        self.delete_decided(&doomed::read(&*self.store.storage)?, |list, now| {
            let left = |s: &&mut DoomedPack| s.going && now.saturating_sub(s.at_ms) >= s.grace_ms / 4 * 3;
            list.packs.values_mut().filter(left).for_each(|s| s.at_ms = now);
        })
    }

    /// Changes the list that was seen. Deletes the packs whose deletion that takes up, then takes them off the list.
    fn delete_decided(&self, seen: &StoredList, take_up: impl FnOnce(&mut DoomedPacks, i64)) -> Result<()> {
        let (storage, at_ms) = (&*self.store.storage, now_ms());
        let list = seen.replace(storage, |list| take_up(list, at_ms))?.map_err(|_| RepoError::Overtaken)?;
        let mine = |s: &DoomedPack| s.going && s.at_ms == at_ms;
        let packs: BTreeMap<PackId, DoomedPack> = list.packs.into_iter().filter(|(_, s)| mine(s)).collect();
        if packs.is_empty() {
            return Ok(());
        }
        for (pack, s) in &packs {
            // After three quarters of the grace another collector may take it up, and then a pack of this name may be
            // written again.
            if s.grace_ms > 0 && now_ms().saturating_sub(at_ms) > s.grace_ms / 4 {
                return Err(RepoError::Overtaken);
            }
            storage.delete(&pack.key())?;
        }
        doomed::change(storage, |list| {
            for pack in packs.keys() {
                if let Some(s) = list.packs.get(pack).filter(|s| mine(s)).cloned() {
                    list.deleted = list.deleted.max(s.change);
                    list.packs.remove(pack);
                }
            }
            Ok(())
        })
        .map(drop)
    }
}
