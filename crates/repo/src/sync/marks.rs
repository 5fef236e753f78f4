//! Marks of pruned versions, taken over and lifted when versions arrive.

use crate::{repo::Repo, retention, retention::PrunedMark};
use mdl_objects::{Id, Kind};
use mdl_store::{Result, lock::WriteGuard};
use std::collections::HashSet;

impl Repo {
    /// Takes over what the other side has on record of pruned versions, once what it sent has been taken in. A mark
    /// counts only for a commit that is here without its contents. It counts for none that a ref reaches: of those our
    /// own record is right.
    ///
    /// # Errors
    /// The record is damaged; damaged refs; absent or damaged commits; an I/O error.
    pub fn receive_pruned(&self, pruned: &[(Id, PrunedMark)]) -> Result<()> {
        if pruned.is_empty() {
            return Ok(());
        }
        let held = self.write_lock()?;
        self.odb().refresh();
        let (reached, record) = (self.held()?, self.pruned()?);
        let mut fresh = Vec::new();
        for (id, mark) in pruned {
            let is_known = record.get(id).is_some() || reached.contains(id);
            if !is_known && self.odb().contains_kind(id, Kind::Commit)? && !self.is_whole(id)? {
                fresh.push((*id, mark.short()));
            }
        }
        if fresh.is_empty() {
            return Ok(());
        }
        retention::change(&held, self.storage(), |p| {
            fresh.iter().for_each(|(id, mark)| p.note(*id, mark));
        })?;
        // Another process may be bringing the contents. It looks at the record after it stored them, this one looks at
        // them after the record: one of the two sees the other.
        self.odb().refresh();
        let fresh: Vec<Id> = fresh.into_iter().map(|(id, _)| id).collect();
        self.unmark(&held, &fresh)
    }

    /// Takes the marks off those of these versions that are complete: they have come anew, and the sender wants them
    /// kept.
    pub(super) fn unmark(&self, held: &WriteGuard, commits: &[Id]) -> Result<()> {
        let mut whole = HashSet::new();
        for id in commits {
            if self.is_whole(id)? {
                whole.insert(*id);
            }
        }
        if whole.is_empty() {
            return Ok(());
        }
        retention::change(held, self.storage(), |p| p.keep(|id| !whole.contains(id)))
    }

    /// Whether what a commit points at is here, and not about to be collected.
    fn is_whole(&self, commit: &Id) -> Result<bool> {
        let c = self.odb().commit(commit)?;
        for id in [c.tree].iter().chain(&c.report).chain(&c.side) {
            if !self.odb().contains(id)? {
                return Ok(false);
            }
        }
        Ok(true)
    }
}
