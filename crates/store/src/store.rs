//! The `Store` handle: objects and refs over one storage.

use crate::{
    Missing, Result,
    lock::{WriteGuard, doomed, spare},
    object_db::Odb,
    refs::Refs,
    storage::Storage,
};
use mdl_objects::Id;
use std::{
    collections::BTreeSet,
    path::{Path, PathBuf},
    sync::Arc,
};

/// Objects and refs over one storage.
#[derive(Debug)]
pub struct Store {
    pub(crate) storage: Arc<dyn Storage>,
    pub(crate) odb: Odb,
    pub(crate) refs: Refs,
    dir: Option<PathBuf>,
}

impl Store {
    /// A store of these objects and refs, which are over the same storage; `dir` is that storage's own directory.
    pub fn new(storage: Arc<dyn Storage>, odb: Odb, refs: Refs, dir: Option<PathBuf>) -> Store {
        Store { storage, odb, refs, dir }
    }

    /// The objects.
    pub fn odb(&self) -> &Odb {
        &self.odb
    }

    /// The objects, to be set up.
    pub fn odb_mut(&mut self) -> &mut Odb {
        &mut self.odb
    }

    /// The refs.
    pub fn refs(&self) -> &Refs {
        &self.refs
    }

    /// The refs, to be set up.
    pub fn refs_mut(&mut self) -> &mut Refs {
        &mut self.refs
    }

    /// The storage below.
    pub fn storage(&self) -> &dyn Storage {
        &*self.storage
    }

    /// Its own directory, where it has one.
    pub fn dir(&self) -> Option<&Path> {
        self.dir.as_deref()
    }

    /// The storage below, to be shared.
    pub fn shared_storage(&self) -> Arc<dyn Storage> {
        self.storage.clone()
    }

    /// Keeps collectors away while the guard lives, as every operation must that looks objects up and then relies on
    /// them. A collection that was cut off is finished first, where locks keep other processes out.
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
        Ok(WriteGuard::watching(held, self.storage.clone(), list.change))
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
    pub fn pin(&self, held: &WriteGuard, objects: impl IntoIterator<Item = Id>) -> Result<()> {
        if !held.watches() {
            return Ok(());
        }
        let mut packs = BTreeSet::new();
        for id in objects {
            if !self.odb.contains(&id)? {
                let found = self.odb.locate(&id)?.map(|l| l.pack.id);
                packs.extend(found.filter(|p| self.odb.is_doomed(p)));
            }
        }
        if !packs.is_empty() {
            self.odb.avoid(&spare(&*self.storage, &packs)?);
        }
        Ok(())
    }
}
