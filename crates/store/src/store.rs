//! The `Store` handle: objects and refs over one storage.

use crate::{
    Result,
    lock::{WriteGuard, doomed},
    object_db::Odb,
    refs::{RefName, Refs},
    storage::Storage,
};
use mdl_objects::Id;
use std::{
    path::{Path, PathBuf},
    sync::Arc,
};

/// Is asked before a ref moves, whatever moves it.
pub trait RefGuard: Send + Sync + std::fmt::Debug {
    /// Refuses a move of a ref from one target (none: it is new) to another (none: it is deleted), whose objects are
    /// all in the store.
    ///
    /// # Errors
    /// `Protected`: the move is refused; damaged objects, an I/O error: whether it would be is not known.
    fn check(&self, store: &Store, name: &RefName, old: Option<Id>, new: Option<Id>) -> Result<()>;
}

/// Objects and refs over one storage.
#[derive(Debug)]
pub struct Store {
    pub(crate) storage: Arc<dyn Storage>,
    pub(crate) odb: Odb,
    pub(crate) refs: Refs,
    dir: Option<PathBuf>,
    pub(crate) guard: Option<Arc<dyn RefGuard>>,
}

impl Store {
    /// A store of these objects and refs, which are over the same storage; `dir` is that storage's own directory.
    pub fn new(storage: Arc<dyn Storage>, odb: Odb, refs: Refs, dir: Option<PathBuf>) -> Store {
        Store { storage, odb, refs, dir, guard: None }
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

    /// Asks this before any ref moves.
    pub fn guard_refs(&mut self, guard: Option<Arc<dyn RefGuard>>) {
        self.guard = guard;
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
    pub(crate) fn write_lock(&self) -> Result<WriteGuard> {
        if !self.storage.excludes() {
            let held = self.storage.lock_shared()?;
            let list = doomed::read(&*self.storage)?.list;
            self.odb.avoid(&list);
            return Ok(WriteGuard::watching(held, self.storage.clone(), list.change));
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
}
