//! Bisection: finds the first bad version by tests of as few as possible, on a graph as git does.
//!
//! Versions between the bad ones and the good ones are candidates. The next to test is the one that has half of them in
//! its history; a verdict leaves either that half or the other. Every verdict is stored by compare-and-swap before the
//! next version is looked for, and the candidates are counted anew from the verdicts each time: a kill loses no
//! verdict, and there is nothing else to lose.

mod belief;
mod choose;
mod graph;
mod measure;
mod state;

pub use measure::{Measured, Threshold, bisect_metric};
pub use state::{Mark, Noise, Verdict};

use crate::{
    checkout::{CheckoutOptions, checkout},
    pruned::pruned,
    repo::Repo,
};
use belief::Belief;
use graph::Candidates;
use mdl_objects::Id;
use mdl_store::{Progress, RepoError, Result, refs::Head};
use state::{State, StoredState, forget};
use std::collections::HashSet;

/// A bisection under way.
#[derive(Clone, Debug, PartialEq)]
pub struct Bisection {
    /// Where HEAD stood when it began.
    pub head: Head,
    /// Whether versions are checked out into the work tree.
    pub checkout: bool,
    /// All verdicts, in their order.
    pub marks: Vec<Mark>,
    /// How noisy verdicts are handled, once there may be some.
    pub noise: Option<Noise>,
}

/// What is left to do.
#[derive(Clone, Debug, PartialEq)]
pub enum Outlook {
    /// A bad version, a good one, or both are still to be named.
    Waiting {
        /// Whether a bad one is known.
        bad: bool,
        /// Whether a good one is known.
        good: bool,
    },
    /// These versions are to be tested next; one unless more were asked for.
    Test {
        /// The versions.
        commits: Vec<Id>,
        /// Candidates that are left.
        left: usize,
        /// About how many steps are left.
        steps: u32,
    },
    /// The first bad version.
    Found {
        /// The version.
        commit: Id,
        /// Its probability, where verdicts may be wrong.
        probability: Option<f64>,
    },
    /// One of these is the first bad version, and none of them can be tested.
    Undecided {
        /// The versions, parents first.
        commits: Vec<Id>,
    },
}

fn need(repo: &Repo) -> Result<StoredState> {
    StoredState::read(repo)?.ok_or_else(|| RepoError::user("no bisection is under way", "start one"))
}

/// The bisection under way, if there is one.
///
/// # Errors
/// Its state is damaged, or newer than this program; an I/O error.
pub fn bisection(repo: &Repo) -> Result<Option<Bisection>> {
    Ok(StoredState::read(repo)?.and_then(|stored| {
        let State { checkout, marks, noise, .. } = stored.state.clone();
        Some(Bisection { head: stored.state.head()?, checkout, marks, noise })
    }))
}

/// Begins a bisection. With `checkout`, versions to be tested are checked out into the work tree ([`bisect_visit`]).
///
/// # Errors
/// One is under way; HEAD's branch has no commits; a bad version is in the history of a good one; an I/O error.
pub fn bisect_start(repo: &Repo, bad: Option<Id>, good: &[Id], checkout: bool) -> Result<Outlook> {
    if StoredState::read(repo)?.is_some() {
        return Err(RepoError::user("a bisection is under way already", "go on with it, or end it first"));
    }
    let head = repo.refs().head()?;
    let mark = |verdict| move |commit: &Id| Mark { commit: *commit, verdict, noisy: false };
    let marks = bad.iter().map(mark(Verdict::Bad)).chain(good.iter().map(mark(Verdict::Good))).collect();
    let (branch, commit) = (head.branch().map(str::to_owned), repo.refs().head_commit()?);
    let mut stored = StoredState::new(State { branch, commit, checkout, marks, noise: None });
    let outlook = outlook(repo, &stored.state, 1)?;
    stored.save(repo)?;
    Ok(outlook)
}

/// Notes a verdict on versions. `noisy`: it is one of several on a version, and may be wrong.
///
/// # Errors
/// No bisection is under way; the verdicts contradict each other: nothing is noted. `Overtaken` where another process
/// noted one meanwhile; an I/O error.
pub fn bisect_mark(repo: &Repo, commits: &[Id], verdict: Verdict, noisy: bool) -> Result<()> {
    let mut stored = need(repo)?;
    stored.state.marks.extend(commits.iter().map(|id| Mark { commit: *id, verdict, noisy }));
    outlook(repo, &stored.state, 1)?;
    stored.save(repo)
}

/// Says that verdicts may be wrong from now on. A bisection that has begun so goes on as it began.
///
/// # Errors
/// A rate that is not between 0 and 0.5, or no repetition; no bisection is under way; an I/O error.
pub fn bisect_with_noise(repo: &Repo, noise: Noise) -> Result<()> {
    if !(noise.rate > 0.0 && noise.rate < 0.5) || noise.repeat == 0 {
        return Err(RepoError::usage(
            "verdicts that are wrong as often as right say nothing",
            "the probability of a wrong verdict is above 0 and below 0.5, and each step takes one test or more",
        ));
    }
    let mut stored = need(repo)?;
    if stored.state.noise.is_none() {
        stored.state.noise = Some(noise);
        stored.save(repo)?;
    }
    Ok(())
}

/// What is left to do; up to `jobs` versions are named that can be tested at once.
pub fn bisect_next(repo: &Repo, jobs: usize) -> Result<Outlook> {
    outlook(repo, &need(repo)?.state, jobs.max(1))
}

/// Checks the next version out into the work tree, where the bisection does that; HEAD is on no branch then.
///
/// # Errors
/// As [`checkout()`].
pub fn bisect_visit(repo: &Repo, outlook: &Outlook, progress: &dyn Progress) -> Result<()> {
    let Outlook::Test { commits, .. } = outlook else { return Ok(()) };
    let stored = need(repo)?;
    match commits.first().filter(|_| stored.state.checkout) {
        Some(id) => visit(repo, id, &Head::Detached(*id), progress),
        None => Ok(()),
    }
}

fn visit(repo: &Repo, commit: &Id, head: &Head, progress: &dyn Progress) -> Result<()> {
    if repo.refs().head()? == *head && repo.refs().head_commit()? == Some(*commit) {
        return Ok(());
    }
    checkout(repo, commit, head, &CheckoutOptions::default(), progress).map(drop)
}

/// Ends a bisection: HEAD and the files of the work tree are again where they were, or at `to`. Returns where that is;
/// none: nothing was checked out, or what was stored of the bisection is damaged, and HEAD stays.
///
/// # Errors
/// None is under way; the branch is gone; as [`checkout()`]: the bisection goes on.
pub fn bisect_reset(repo: &Repo, to: Option<(Head, Id)>, progress: &dyn Progress) -> Result<Option<Head>> {
    let state = match StoredState::read(repo) {
        Ok(Some(stored)) => Some(stored.state),
        Ok(None) => return need(repo).map(|_| None),
        Err(RepoError::Corrupt { .. }) => None,
        Err(e) => return Err(e),
    };
    let back = state.filter(|s| s.checkout).and_then(|s| s.head()).map(|head| (repo.refs().tip(&head), head));
    let place = match (to, back) {
        (Some((head, id)), _) => Some((head, id)),
        // On a branch without commits there is nothing to go back to.
        (None, Some((tip, head))) => tip?.map(|id| (head, id)),
        (None, None) => None,
    };
    if let Some((head, id)) = &place {
        visit(repo, id, head, progress)?;
    }
    forget(repo)?;
    Ok(place.map(|(head, _)| head))
}

fn outlook(repo: &Repo, state: &State, jobs: usize) -> Result<Outlook> {
    let (bad, good) = (state.with_verdict(Verdict::Bad), state.with_verdict(Verdict::Good));
    if bad.is_empty() || good.is_empty() {
        return Ok(Outlook::Waiting { bad: !bad.is_empty(), good: !good.is_empty() });
    }
    let candidates = Candidates::between(repo, &bad, &good, &|_, _| None)?;
    let skipped: HashSet<Id> = state.with_verdict(Verdict::Skip).into_iter().collect();
    let record = pruned(repo)?;
    // What was pruned has no contents to test.
    let is_skipped = |id: &Id| skipped.contains(id) || record.get(id).is_some();
    Ok(decide(&candidates, &bad, &is_skipped, state, jobs))
}

/// What is left to do with these candidates, of which `bad` are known to be bad.
fn decide(
    candidates: &Candidates,
    bad: &[Id],
    is_skipped: &dyn Fn(&Id) -> bool,
    state: &State,
    jobs: usize,
) -> Outlook {
    if let [only] = candidates.nodes.as_slice() {
        return Outlook::Found { commit: only.id, probability: state.noise.map(|_| 1.0) };
    }
    let testable = |at: usize| {
        let id = &candidates.nodes[at].id;
        !bad.contains(id) && !is_skipped(id)
    };
    let skips = candidates.nodes.iter().filter(|n| is_skipped(&n.id)).count();
    let steps = choose::steps(candidates.len());
    let (weight, jobs, steps) = match state.noise {
        None => (vec![1.0; candidates.len()], jobs, steps),
        Some(noise) => {
            let noisy: Vec<&Mark> = state.marks.iter().filter(|m| m.noisy && m.verdict != Verdict::Skip).collect();
            let verdicts = noisy.iter().filter_map(|m| Some((candidates.place(&m.commit)?, m.verdict == Verdict::Bad)));
            let belief = Belief::new(candidates, verdicts, noise.rate);
            let left = (noise.repeat as usize * steps as usize).saturating_sub(noisy.len());
            if let Some((at, probability)) = belief.best().filter(|_| belief.is_sure() || left == 0) {
                return Outlook::Found { commit: candidates.nodes[at].id, probability: Some(probability) };
            }
            (belief.weight, jobs.min(left), u32::try_from(left).unwrap_or(u32::MAX))
        }
    };
    let chosen = choose::next(candidates, &weight, &testable, jobs, skips);
    let commits: Vec<Id> = chosen.iter().map(|at| candidates.nodes[*at].id).collect();
    match commits.is_empty() {
        true => Outlook::Undecided { commits: candidates.nodes.iter().map(|n| n.id).collect() },
        false => Outlook::Test { commits, left: candidates.len(), steps },
    }
}

#[cfg(test)]
mod tests;
