//! Bisection over recorded metrics: no command, no checkout, no state.

use super::{choose, graph::Candidates};
use crate::repo::Repo;
use mdl_objects::{Commit, Id};
use mdl_store::{RepoError, Result};

/// Which values of a metric are bad. What is not a number always is.
#[derive(Clone, Debug, PartialEq)]
pub struct Threshold {
    /// Its name; `step` and `epoch` are those of the version, where no metric is named so.
    pub metric: String,
    /// Values above this are bad.
    pub above: Option<f64>,
    /// Values below this are bad.
    pub below: Option<f64>,
}

impl Threshold {
    fn is_bad(&self, value: f64) -> bool {
        value.is_nan() || self.above.is_some_and(|limit| value > limit) || self.below.is_some_and(|limit| value < limit)
    }
}

/// What the recorded metrics say.
#[derive(Clone, Debug, PartialEq)]
pub struct Measured {
    /// The first bad version, and the others that may be it since no metric was recorded of them.
    pub first_bad: Vec<Id>,
    /// Candidates there were.
    pub candidates: usize,
    /// The versions whose metric was looked at, in their order, with its value.
    pub looked_at: Vec<(Id, f64)>,
    /// With noise: how many recorded values are on the wrong side of the first bad version.
    pub wrong: Option<usize>,
}

/// Finds the first version from which on a recorded metric is bad, up to the version `bad`, in no version's history
/// that is `good`. Each look is at the version that splits what is left in two. With `noisy` all values are looked at,
/// and the first bad version is the one that leaves fewest of them on the wrong side.
///
/// # Errors
/// The metric of `bad` was not recorded, or is not bad; that of a good one is bad; absent or damaged commits.
pub fn bisect_metric(
    repo: &Repo,
    bad: Id,
    good: &[Id],
    threshold: &Threshold,
    noisy: bool,
    value: &dyn Fn(&Id, &Commit) -> Option<f64>,
) -> Result<Measured> {
    let wrong = |id: &Id, what: &str| {
        RepoError::user(
            format!("{} of version {} {what}", threshold.metric, id.short()),
            "the last version is to be a bad one, and those that are named as good are not; other ends, another metric \
             or limit",
        )
    };
    for id in good {
        if value(id, &repo.odb().commit(id)?).is_some_and(|v| threshold.is_bad(v)) {
            return Err(wrong(id, "is bad, where it is named as good"));
        }
    }
    let candidates = Candidates::between(repo, &[bad], good, value)?;
    let end = candidates.nodes.last().and_then(|n| n.value);
    match end {
        None => return Err(wrong(&bad, "was not recorded")),
        Some(v) if !threshold.is_bad(v) && !noisy => return Err(wrong(&bad, &format!("is {v}, which is not bad"))),
        Some(_) => {}
    }
    if noisy { Ok(fewest_wrong(&candidates, threshold)) } else { bisect(&candidates, threshold) }
}

fn bisect(all: &Candidates, threshold: &Threshold) -> Result<Measured> {
    let mut looked_at = Vec::new();
    let mut is_left = vec![true; all.len()];
    let mut is_bad = vec![false; all.len()];
    loop {
        let weight: Vec<f64> = is_left.iter().map(|left| f64::from(u8::from(*left))).collect();
        let testable = |at: usize| is_left[at] && !is_bad[at] && all.nodes[at].value.is_some() && at + 1 < all.len();
        let Some(at) = choose::next(all, &weight, &testable, 1, 0).first().copied() else { break };
        let value = all.nodes[at].value.unwrap_or(f64::NAN);
        looked_at.push((all.nodes[at].id, value));
        let history = all.ancestors(at);
        let bad = threshold.is_bad(value);
        is_bad[at] = bad;
        is_left.iter_mut().zip(history).for_each(|(left, is_in)| *left &= is_in == bad);
    }
    let left = all.nodes.iter().zip(is_left).filter(|(_, left)| *left).map(|(n, _)| n.id);
    let mut first_bad: Vec<Id> = left.collect();
    // The version that is surely bad first.
    first_bad.reverse();
    Ok(Measured { first_bad, candidates: all.len(), looked_at, wrong: None })
}

fn fewest_wrong(all: &Candidates, threshold: &Threshold) -> Measured {
    let verdicts: Vec<Option<bool>> = all.nodes.iter().map(|n| n.value.map(|v| threshold.is_bad(v))).collect();
    // A version that is good counts against what is in its history, a bad one for it.
    let weight: Vec<f64> = verdicts.iter().map(|v| v.map_or(0.0, |bad| if bad { 1.0 } else { -1.0 })).collect();
    let bad = verdicts.iter().filter(|v| **v == Some(true)).count();
    let sums = all.sums_over_descendants(&weight);
    // Of equals the earliest: versions without a value behind it change nothing.
    let best = sums.iter().copied().enumerate().reduce(|best, next| if next.1 > best.1 { next } else { best });
    let recorded = all.nodes.iter().filter_map(|n| Some((n.id, n.value?)));
    Measured {
        first_bad: best.iter().map(|(at, _)| all.nodes[*at].id).collect(),
        candidates: all.len(),
        looked_at: recorded.collect(),
        // Bad ones outside, and good ones inside: the bad ones, less what the sum has of them beyond the good ones.
        wrong: best.map(|(_, sum)| (bad as f64 - sum) as usize),
    }
}
