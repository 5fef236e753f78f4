//! Walks the commit graph: newest first, ancestors, merge bases. Neighbours: commits of the odb. It must not know refs'
//! names or how history is shown.

use crate::{Result, repo::Repo};
use mdl_objects::{Commit, Id};
use std::collections::{BinaryHeap, HashSet};

/// A commit with its id.
#[derive(Clone, Debug)]
pub struct Step {
    /// The commit's id.
    pub id: Id,
    /// The commit.
    pub commit: Commit,
}

/// Commits reachable from some starts, newest first by their own clocks.
#[derive(Debug)]
pub struct History<'a> {
    repo: &'a Repo,
    heap: BinaryHeap<(i64, Id)>,
    seen: HashSet<Id>,
}

impl Repo {
    /// History of these commits. Ordered by time, as `git log` is; where clocks disagree a parent may come early.
    pub fn history(&self, starts: &[Id]) -> Result<History<'_>> {
        let mut h = History {
            repo: self,
            heap: BinaryHeap::new(),
            seen: HashSet::new(),
        };
        starts.iter().try_for_each(|id| h.push(*id))?;
        Ok(h)
    }

    /// Whether `ancestor` is reachable from `from` (a commit reaches itself).
    ///
    /// # Errors
    /// Absent or damaged commits; the medium failed.
    pub fn reaches(&self, from: &Id, ancestor: &Id) -> Result<bool> {
        for step in self.history(&[*from])? {
            if step?.id == *ancestor {
                return Ok(true);
            }
        }
        Ok(false)
    }
}

impl History<'_> {
    fn push(&mut self, id: Id) -> Result<()> {
        if self.seen.insert(id) {
            let time = self.repo.odb.commit(&id)?.author.time_ms;
            self.heap.push((time, id));
        }
        Ok(())
    }
}

impl Iterator for History<'_> {
    type Item = Result<Step>;

    fn next(&mut self) -> Option<Result<Step>> {
        let (_, id) = self.heap.pop()?;
        let step = self.repo.odb.commit(&id).and_then(|commit| {
            commit.parents.iter().try_for_each(|p| self.push(*p))?;
            Ok(Step { id, commit })
        });
        Some(step)
    }
}
