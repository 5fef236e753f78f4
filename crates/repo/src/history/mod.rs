//! Walks the commit graph: newest first, ancestors, merge bases.

mod bases;
mod blame;
pub(crate) mod close_names;
mod diff;
mod expression;
mod filter;
mod lanes;
mod listing;
pub(crate) mod metrics;
mod page;
pub(crate) mod revision;
mod touched;
mod verify;

pub use bases::merge_bases;
pub use blame::{Amounts, Blame, BlameQuery, BlamedChange, BlamedTensor, BlamedVersion, blame, layer_of};
pub use diff::{Change, FileDiff, TensorDiff, diff};
pub use expression::{Expression, ExpressionError};
pub use filter::{Filtering, LogFilter, metric_of, parse_time};
pub use lanes::{LaneEdge, LaneRow, Lanes};
pub use listing::{StoredTensor, format_name, tensors_in, tensors_of};
pub use page::{Listed, LogPage, PageBounds, log_page};
pub use revision::{full_ref, peel, resolve};
pub(crate) use revision::{named_commits, no_commit};
pub use touched::Selection;
pub use verify::{Difference, Verified, verify};

use crate::repo::Repo;
use mdl_objects::{Commit, Id, MAX_MESSAGE};
use mdl_store::Result;
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
    /// The commits in the heap; of those that say much nothing is kept until it is their turn.
    waiting: HashMap<Id, Option<Commit>>,
    seen: HashSet<Id>,
}

/// History of these commits. Ordered by time, as `git log` is; where clocks disagree a parent may come early.
pub fn history<'r>(repo: &'r Repo, starts: &[Id]) -> Result<History<'r>> {
    let mut h = History { repo, heap: BinaryHeap::new(), waiting: HashMap::new(), seen: HashSet::new() };
    starts.iter().try_for_each(|id| h.push(*id))?;
    Ok(h)
}

/// Whether `ancestor` is reachable from `from` (a commit reaches itself).
pub fn reaches(repo: &Repo, from: &Id, ancestor: &Id) -> Result<bool> {
    is_in_history(repo, &[*from], ancestor)
}

/// Whether a commit is reachable from one of these.
pub(crate) fn is_in_history(repo: &Repo, starts: &[Id], ancestor: &Id) -> Result<bool> {
    for step in history(repo, starts)? {
        if step?.id == *ancestor {
            return Ok(true);
        }
    }
    Ok(false)
}

impl History<'_> {
    fn push(&mut self, id: Id) -> Result<()> {
        if self.seen.insert(id) {
            let commit = self.repo.odb().commit(&id)?;
            self.heap.push((commit.author.time_ms, id));
            let kept = commit.said() <= MAX_MESSAGE;
            self.waiting.insert(id, kept.then_some(commit));
        }
        Ok(())
    }
}

impl Iterator for History<'_> {
    type Item = Result<Step>;

    fn next(&mut self) -> Option<Result<Step>> {
        let (_, id) = self.heap.pop()?;
        let commit = match self.waiting.remove(&id)? {
            Some(commit) => commit,
            None => match self.repo.odb().commit(&id) {
                Ok(commit) => commit,
                Err(e) => return Some(Err(e)),
            },
        };
        let pushed = commit.parents.iter().try_for_each(|p| self.push(*p));
        Some(pushed.map(|()| Step { id, commit }))
    }
}
