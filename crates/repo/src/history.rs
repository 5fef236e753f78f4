//! Walks the commit graph: newest first, ancestors, merge bases. Neighbours: commits of the odb. It must not know refs'
//! names or how history is shown.

use crate::{RepoError, Result, repo::Repo};
use mdl_objects::{Commit, Id};
use std::collections::{BinaryHeap, HashMap, HashSet};

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
    /// The commits in the heap.
    waiting: HashMap<Id, Commit>,
    seen: HashSet<Id>,
}

impl Repo {
    /// History of these commits. Ordered by time, as `git log` is; where clocks disagree a parent may come early.
    pub fn history(&self, starts: &[Id]) -> Result<History<'_>> {
        let mut h = History {
            repo: self,
            heap: BinaryHeap::new(),
            waiting: HashMap::new(),
            seen: HashSet::new(),
        };
        starts.iter().try_for_each(|id| h.push(*id))?;
        Ok(h)
    }

    /// A page of the history of these commits: at most `limit` of them, beginning behind the commit `after`, the last of the page
    /// before (none: the newest). Also returned is the `after` of the next page; none if there is nothing more. As long as the
    /// starts are the same, pages hold every commit once: of equal times too, the ids decide.
    ///
    /// A page costs what it takes to walk from the newest commit to its end.
    ///
    /// # Errors
    /// `after` is not in this history; absent or damaged commits; the medium failed.
    pub fn log_page(&self, starts: &[Id], after: Option<&Id>, limit: usize) -> Result<(Vec<Step>, Option<Id>)> {
        let mut history = self.history(starts)?;
        if let Some(after) = after {
            loop {
                match history.next().transpose()? {
                    Some(step) if step.id == *after => break,
                    Some(_) => {}
                    None => return Err(RepoError::not_found("commit", after)),
                }
            }
        }
        let page = history.by_ref().take(limit).collect::<Result<Vec<Step>>>()?;
        let last = page.last().map(|s| s.id).or(after.copied());
        Ok((page, last.filter(|_| !history.heap.is_empty())))
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
            let commit = self.repo.odb.commit(&id)?;
            self.heap.push((commit.author.time_ms, id));
            self.waiting.insert(id, commit);
        }
        Ok(())
    }
}

impl Iterator for History<'_> {
    type Item = Result<Step>;

    fn next(&mut self) -> Option<Result<Step>> {
        let (_, id) = self.heap.pop()?;
        let commit = self.waiting.remove(&id)?;
        let pushed = commit.parents.iter().try_for_each(|p| self.push(*p));
        Some(pushed.map(|()| Step { id, commit }))
    }
}
