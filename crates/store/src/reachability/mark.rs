//! Marks reachable objects: from commits to tensors, and from tensors to their delta bases.

use crate::{
    RepoError, Result,
    object_db::references,
    reachability::catalog::{Catalog, Slot},
    storage::Storage,
};
use mdl_objects::{Commit, Id, Kind};
use std::{collections::HashMap, sync::Arc};

/// What to do where the walk cannot go on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum OnDamage {
    /// Fail: what lies behind would be taken for unreachable.
    Refuse,
    /// Go on: the start was not promised to be complete.
    PassOver,
}

/// Commits of whose contents not all need be kept: of pruned ones a walk follows the parents only, of others what
/// stands for the tree.
#[derive(Clone, Debug, Default)]
pub struct PrunedContents(Arc<HashMap<Id, Left>>);

/// What is left of a commit's contents.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Left {
    /// Nothing: it was pruned.
    Nothing,
    /// Its own trees are gone; this one stands for them.
    StandIn(Id),
    /// One that is to stand for it later is kept beside what it has now: this tree, or none: its own.
    Waiting {
        /// What it has now.
        now: Option<Id>,
        /// What it is to have.
        later: Id,
    },
    /// Files of a tree that is not stored yet.
    Files(Vec<(Id, Kind)>),
}

impl From<HashMap<Id, Left>> for PrunedContents {
    fn from(left: HashMap<Id, Left>) -> PrunedContents {
        PrunedContents(Arc::new(left))
    }
}

impl PrunedContents {
    /// What is left of a commit; none: all of it.
    pub fn get(&self, id: &Id) -> Option<&Left> {
        self.0.get(id)
    }

    /// What an object points at, and has left of it.
    pub fn references(&self, kind: Kind, id: &Id, bytes: &[u8]) -> Result<Vec<(Id, Kind)>> {
        let mut all = references(kind, id, bytes)?;
        let (keeps_own, more) = match self.get(id) {
            None => return Ok(all),
            Some(Left::Nothing) => {
                all.retain(|(_, kind)| *kind == Kind::Commit);
                return Ok(all);
            }
            Some(Left::StandIn(tree)) => (false, vec![(*tree, Kind::Tree)]),
            Some(Left::Waiting { now, later }) => {
                (now.is_none(), now.iter().chain([later]).map(|tree| (*tree, Kind::Tree)).collect())
            }
            Some(Left::Files(files)) => (false, files.clone()),
        };
        all.retain(|(_, kind)| keeps_own || *kind != Kind::Tree);
        all.extend(more);
        Ok(all)
    }

    /// Whether every commit has all of its contents.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// How many lost all of their contents.
    pub fn count(&self) -> usize {
        self.0.values().filter(|left| **left == Left::Nothing).count()
    }

    /// How many have something else left than what was committed.
    pub fn count_aged(&self) -> usize {
        let has_less = |left: &&Left| !matches!(left, Left::Nothing | Left::Waiting { now: None, .. });
        self.0.values().filter(has_less).count()
    }

    /// These, and more.
    pub fn with(&self, more: impl Iterator<Item = (Id, Left)>) -> PrunedContents {
        self.0.iter().map(|(id, left)| (*id, left.clone())).chain(more).collect::<HashMap<_, _>>().into()
    }
}

/// An object, and the kind that it must have; none: any.
type Start = (Id, Option<Kind>);

/// A set of objects of a catalog.
#[derive(Clone, Debug)]
pub struct Marks {
    marked: Vec<bool>,
    gone: PrunedContents,
    bases: bool,
}

/// Fields of a commit that a newer version wrote may point at objects: whatever in them is an id here is taken for one.
fn guesses(kind: Kind, bytes: &[u8]) -> Vec<Id> {
    let commit = (kind == Kind::Commit).then(|| Commit::decode(bytes).ok()).flatten();
    let fields = commit.iter().flat_map(|c| &c.unknown);
    let windows = fields.flat_map(|(_, b)| b.windows(32));
    windows.filter_map(|w| w.try_into().ok().map(Id::from_bytes)).collect()
}

impl Marks {
    /// An empty set. `gone`: commits whose contents are skipped.
    pub fn new(catalog: &Catalog, gone: &PrunedContents) -> Marks {
        Marks { marked: vec![false; catalog.count()], gone: gone.clone(), bases: true }
    }

    /// An empty set, for marking what versions name without delta bases.
    pub fn of_names(catalog: &Catalog, gone: &PrunedContents) -> Marks {
        Marks { bases: false, ..Marks::new(catalog, gone) }
    }

    /// Whether an object is marked.
    pub fn has(&self, n: u32) -> bool {
        self.marked.get(n as usize).copied().unwrap_or(false)
    }

    /// Whether an object that may not exist is marked.
    pub fn has_id(&self, catalog: &Catalog, id: &Id) -> bool {
        catalog.find(id).is_some_and(|n| self.has(n))
    }

    /// Numbers of all marked objects.
    pub fn iter(&self) -> impl Iterator<Item = u32> {
        (0..self.marked.len() as u32).filter(|n| self.has(*n))
    }

    /// Number of marked objects.
    pub fn count(&self) -> usize {
        self.marked.iter().filter(|m| **m).count()
    }

    /// Marks an object and everything that it needs.
    pub fn mark(&mut self, catalog: &Catalog, storage: &dyn Storage, start: Start, on_damage: OnDamage) -> Result<()> {
        let mut stack = vec![start];
        while let Some((id, kind)) = stack.pop() {
            let Some(n) = catalog.find(&id) else {
                let elsewhere = catalog.partial && kind != Some(Kind::Commit);
                if on_damage == OnDamage::Refuse && !elsewhere {
                    let what = kind.map_or("object", Kind::name);
                    return Err(RepoError::corrupt(format!("{what} {}", id.short()), "missing"));
                }
                continue;
            };
            if std::mem::replace(&mut self.marked[n as usize], true) {
                continue;
            }
            match self.behind(catalog, storage, n, kind) {
                Ok(next) => stack.extend(next),
                Err(e) if on_damage == OnDamage::Refuse || matches!(e, RepoError::Io { .. }) => return Err(e),
                Err(_) => {}
            }
        }
        Ok(())
    }

    /// Marks a copy that stays where it is: its object, and the bases of this very copy.
    pub fn mark_copy(&mut self, catalog: &Catalog, storage: &dyn Storage, slot: Slot) -> Result<()> {
        let record = catalog.record(slot);
        for id in std::iter::once(record.id).chain(record.bases()) {
            self.mark(catalog, storage, (id, None), OnDamage::PassOver)?;
        }
        Ok(())
    }

    /// Marks an object without what it needs.
    pub fn mark_alone(&mut self, n: u32) {
        if let Some(marked) = self.marked.get_mut(n as usize) {
            *marked = true;
        }
    }

    /// Numbers of the objects that one needs directly, those that are there.
    ///
    /// # Errors
    /// An I/O error. What a damaged object needs is not known: nothing.
    pub fn needed_by(&self, catalog: &Catalog, storage: &dyn Storage, n: u32) -> Result<Vec<u32>> {
        match self.behind(catalog, storage, n, None) {
            Err(e) if matches!(e, RepoError::Io { .. }) => Err(e),
            Err(_) => Ok(Vec::new()),
            Ok(next) => Ok(next.iter().filter_map(|(id, _)| catalog.find(id)).collect()),
        }
    }

    fn behind(&self, catalog: &Catalog, storage: &dyn Storage, n: u32, kind: Option<Kind>) -> Result<Vec<Start>> {
        let record = catalog.best_record(n);
        if let Some(wanted) = kind.filter(|k| *k != record.kind) {
            let what = format!("object {}", record.id.short());
            return Err(RepoError::corrupt(what, format!("it is a {}, not a {wanted}", record.kind)));
        }
        match record.kind {
            Kind::Blob => Ok(Vec::new()),
            Kind::Tensor if !self.bases => Ok(Vec::new()),
            Kind::Tensor => {
                let leaned_on = catalog.leaned_on(n).map(|s| catalog.record(s));
                let bases = [record].into_iter().chain(leaned_on).flat_map(|r| r.bases());
                Ok(bases.map(|b| (b, Some(Kind::Tensor))).collect())
            }
            kind => {
                let bytes = catalog.content(storage, catalog.best(n))?;
                let firm = self.gone.references(kind, &record.id, &bytes)?;
                if self.gone.get(&record.id) == Some(&Left::Nothing) {
                    return Ok(firm.into_iter().map(|(id, k)| (id, Some(k))).collect());
                }
                let guessed = guesses(kind, &bytes).into_iter().filter(|id| catalog.find(id).is_some());
                Ok(firm.into_iter().map(|(id, k)| (id, Some(k))).chain(guessed.map(|id| (id, None))).collect())
            }
        }
    }
}
