//! Fetches missing objects of a partial repository through its promisor.

use crate::{Result, object_db::Odb};
use mdl_objects::{Entry, Id, Mode};
use std::{
    collections::{BTreeSet, HashSet},
    fmt::Debug,
    sync::Arc,
};

/// A promisor: fetches objects into a partial repository.
pub trait Promisor: Send + Sync + Debug {
    /// Fetches these objects, and their delta bases, into the storage of the repository that asks.
    fn supply(&self, ids: &[Id]) -> Result<()>;
}

impl Odb {
    /// From now on fetches missing objects from `promisor`.
    pub fn set_promisor(&mut self, promisor: Arc<dyn Promisor>) {
        self.promisor = Some(promisor);
    }

    /// Notes whether the repository holds only a part of what its promisor has.
    pub fn set_partial(&mut self, partial: bool) {
        self.partial = partial;
    }

    /// Whether missing objects may be at the promisor.
    pub fn is_partial(&self) -> bool {
        self.partial
    }

    /// Whether there is a promisor to fetch missing objects.
    pub fn has_promisor(&self) -> bool {
        self.promisor.is_some()
    }

    /// Fetches those of these objects that are missing, all at once; does nothing in a repository that is not partial.
    pub fn prefetch(&self, ids: impl Iterator<Item = Id>) -> Result<()> {
        let Some(promisor) = &self.promisor else { return Ok(()) };
        let mut missing = BTreeSet::new();
        for id in ids {
            if !self.contains(&id)? {
                missing.insert(id);
            }
        }
        if missing.is_empty() {
            return Ok(());
        }
        promisor.supply(&missing.into_iter().collect::<Vec<Id>>())?;
        self.refresh();
        Ok(())
    }

    /// Fetches all missing objects of these files.
    pub fn prefetch_files<'a>(&self, entries: impl Iterator<Item = &'a Entry> + Clone) -> Result<()> {
        if self.promisor.is_none() {
            return Ok(());
        }
        self.prefetch(entries.clone().map(|e| e.id))?;
        let mut parts = Vec::new();
        for e in entries.filter(|e| e.mode == Mode::Manifest) {
            parts.extend(self.manifest(&e.id)?.parts().map(|(id, _)| id));
        }
        self.prefetch(parts.into_iter())
    }

    /// Fetches the trees below these and the manifests in them: one step for each level, not one for each object.
    pub fn prefetch_trees(&self, roots: impl Iterator<Item = Id>) -> Result<()> {
        if self.promisor.is_none() {
            return Ok(());
        }
        let (mut seen, mut files) = (HashSet::new(), Vec::new());
        let mut level: Vec<Id> = roots.filter(|id| seen.insert(*id)).collect();
        while !level.is_empty() {
            self.prefetch(level.iter().copied())?;
            let mut below = Vec::new();
            for id in level {
                for e in self.tree(&id)?.entries {
                    match e.mode {
                        Mode::Tree if seen.insert(e.id) => below.push(e.id),
                        Mode::Manifest if seen.insert(e.id) => files.push(e.id),
                        _ => {}
                    }
                }
            }
            level = below;
        }
        self.prefetch(files.into_iter())
    }

    /// Has the promisor, if there is one, fetch an object. Returns whether it was asked.
    pub(super) fn fetch_from_promisor(&self, id: &Id) -> Result<bool> {
        let Some(promisor) = &self.promisor else {
            return Ok(false);
        };
        promisor.supply(&[*id])?;
        self.refresh();
        Ok(true)
    }
}
