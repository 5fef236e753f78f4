//! What must come back: a repository as a map of names to versions.

use crate::model::files::Files;
use mdl_objects::Id;
use mdl_repo::{HEADS, Head, REMOTES, TAGS};
use std::collections::{BTreeMap, BTreeSet};

/// A version that was acknowledged.
#[derive(Clone, Debug)]
pub struct Version {
    pub parent: Option<Id>,
    pub files: Files,
    pub step: Option<u64>,
}

/// All versions of a world, and what annotated tags are of.
#[derive(Clone, Debug, Default)]
pub struct Known {
    pub versions: BTreeMap<Id, Version>,
    /// In the order in which they were made.
    pub order: Vec<Id>,
    pub tags: BTreeMap<Id, Id>,
}

impl Known {
    pub fn add(&mut self, id: Id, version: Version) {
        if self.versions.insert(id, version).is_none() {
            self.order.push(id);
        }
    }

    pub fn peel(&self, id: &Id) -> Id {
        self.tags.get(id).copied().unwrap_or(*id)
    }

    /// A version and all before it, the newest first.
    pub fn chain(&self, tip: Id) -> Vec<Id> {
        let next = |id: &Id| self.versions.get(id).and_then(|v| v.parent);
        std::iter::successors(Some(tip), next).collect()
    }

    pub fn reaches(&self, from: &Id, ancestor: &Id) -> bool {
        self.chain(*from).contains(ancestor)
    }

    pub fn reach(&self, starts: impl IntoIterator<Item = Id>) -> BTreeSet<Id> {
        let mut out = BTreeSet::new();
        for start in starts {
            for id in self.chain(self.peel(&start)) {
                if !out.insert(id) {
                    break;
                }
            }
        }
        out
    }

    pub fn files(&self, id: &Id) -> Files {
        self.versions.get(id).map(|v| v.files.clone()).unwrap_or_default()
    }
}

/// What a session of a sharded commit has.
#[derive(Clone, Debug, Default)]
pub struct Shards {
    pub ranks: BTreeMap<u32, Files>,
    /// Whether a collection without a time of grace may have taken them.
    pub doomed: bool,
    /// Whether a fault left open what was put or joined.
    pub unsure: bool,
    pub joined: bool,
}

/// A repository.
#[derive(Clone, Debug)]
pub struct Place {
    /// Full names, and what they hold.
    pub refs: BTreeMap<String, Id>,
    pub head: Head,
    /// None for a bare one.
    pub work: Option<Files>,
    /// The version that the files are noted to be of, which may be one that is gone.
    pub base: Option<Id>,
    /// Whether that version's commit is gone: a move that was cut short left it without a name, and a collection took
    /// it.
    pub base_gone: bool,
    /// Versions whose contents must be there.
    pub alive: BTreeSet<Id>,
    pub pruned: BTreeSet<Id>,
    /// Versions that moves of the last days name.
    pub logged: BTreeSet<Id>,
    /// Whether it is a partial clone.
    pub partial: bool,
    /// Of a partial clone: versions committed here from files here, and those whose commits came.
    pub own: BTreeSet<Id>,
    pub fetched: BTreeSet<Id>,
    pub shards: BTreeMap<String, Shards>,
}

pub fn branch(name: &str) -> String {
    format!("{HEADS}{name}")
}

pub fn tag(name: &str) -> String {
    format!("{TAGS}{name}")
}

pub fn noted(name: &str) -> String {
    format!("{REMOTES}origin/{name}")
}

/// Whether one path is a directory of another's.
pub fn collide<'a>(paths: impl Iterator<Item = &'a String>) -> bool {
    let all: BTreeSet<&String> = paths.collect();
    all.iter().any(|p| p.match_indices('/').any(|(i, _)| all.contains(&p[..i].to_owned())))
}

impl Place {
    pub fn new(bare: bool, partial: bool) -> Place {
        Place {
            refs: BTreeMap::new(),
            head: Head::Branch("main".to_owned()),
            work: (!bare).then(Files::new),
            base: None,
            base_gone: false,
            alive: BTreeSet::new(),
            pruned: BTreeSet::new(),
            logged: BTreeSet::new(),
            partial,
            own: BTreeSet::new(),
            fetched: BTreeSet::new(),
            shards: BTreeMap::new(),
        }
    }

    pub fn files(&self) -> Files {
        self.work.clone().unwrap_or_default()
    }

    /// The version that the files are compared with: HEAD's where theirs is gone.
    pub fn work_tree_base(&self) -> Option<Id> {
        if self.base_gone { self.tip() } else { self.base }
    }

    /// The commit that HEAD stands on.
    pub fn tip(&self) -> Option<Id> {
        self.tip_of(&self.head)
    }

    pub fn tip_of(&self, head: &Head) -> Option<Id> {
        match head {
            Head::Branch(name) => self.refs.get(&branch(name)).copied(),
            Head::Detached(id) => Some(*id),
        }
    }

    /// Commits that names point at.
    pub fn named(&self, known: &Known) -> BTreeSet<Id> {
        let refs = self.refs.values().map(|id| known.peel(id));
        refs.chain(self.detached()).collect()
    }

    pub fn detached(&self) -> Option<Id> {
        match &self.head {
            Head::Detached(id) => Some(*id),
            Head::Branch(_) => None,
        }
    }

    /// Moves what HEAD stands on, as a commit, a reset or a merge does.
    pub fn advance(mut self, to: Id) -> Place {
        match &self.head {
            Head::Branch(name) => drop(self.refs.insert(branch(name), to)),
            Head::Detached(_) => self.head = Head::Detached(to),
        }
        self.base = Some(to);
        self
    }

    /// Sets or deletes a ref by its user here, who is on a branch.
    pub fn set(mut self, name: &str, to: Option<Id>) -> Place {
        match to {
            Some(id) => drop(self.refs.insert(name.to_owned(), id)),
            None => drop(self.refs.remove(name)),
        }
        if self.work.is_some() && self.head_ref().as_deref() == Some(name) {
            self.base = to;
        }
        self
    }

    pub fn head_ref(&self) -> Option<String> {
        match &self.head {
            Head::Branch(name) => Some(branch(name)),
            Head::Detached(_) => None,
        }
    }
}
