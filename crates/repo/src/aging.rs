//! Aging: which versions of a branch leave the window of those that keep their exact contents. Their approximation
//! stands for them once a collection has taken these.

use crate::{
    history::{metrics::End, named_commits},
    pruned,
    pruned::{BY_POLICY, Pruned, PrunedMark},
    repo::Repo,
};
use mdl_lossy::{ExactBest, KeepExact, Policy};
use mdl_objects::{Commit, Id, Kind};
use mdl_store::{
    RepoError, Result,
    lock::now_ms,
    refs::{HEADS, REMOTES},
    transaction::WriteTransaction,
};
use std::collections::{HashMap, HashSet};

/// Versions that are looked at for those that are to age.
const MOST_PASSED_OVER: usize = 1000;

/// Aged versions in a row behind which no other is looked for: one that had a name when it left the window, or whose
/// aging was undone.
const MOST_AGED_IN_A_ROW: usize = 100;

/// Notes that the versions before `tip` aged that no rule keeps exact: the newest of every branch, the best by a
/// metric, and what a name points at. Returns which.
pub(crate) fn age(repo: &Repo, transaction: &WriteTransaction<'_>, tip: Id, keep: &KeepExact) -> Result<Vec<Id>> {
    age_unless(repo, transaction, (tip, keep), |_, _| false)
}

/// The same, but for versions that `stays` says to keep, each given with its distance from `tip`.
fn age_unless(
    repo: &Repo,
    transaction: &WriteTransaction<'_>,
    (tip, keep): (Id, &KeepExact),
    mut stays: impl FnMut(usize, &Commit) -> bool,
) -> Result<Vec<Id>> {
    if !keep.keeps_exact() {
        return Ok(Vec::new());
    }
    let record = pruned::pruned(repo)?;
    // What was the best may lie anywhere, and all are looked at for those that are.
    let most_in_a_row = if keep.exact_best.is_some() { MOST_PASSED_OVER } else { MOST_AGED_IN_A_ROW };
    let (mut leaving, mut in_a_row) = (Vec::new(), 0);
    for (distance, step) in first_parents(repo, tip).enumerate().skip(latest(keep)).take(MOST_PASSED_OVER) {
        let (id, commit) = step?;
        if record.stand_ins(&id).next().is_some() {
            in_a_row += 1;
            if in_a_row == most_in_a_row {
                break;
            }
            continue;
        }
        in_a_row = 0;
        if let Some(tree) = commit.approximation
            && !stays(distance, &commit)
        {
            leaving.push((id, tree));
        }
    }
    if leaving.is_empty() {
        return Ok(Vec::new());
    }
    let kept = kept(repo, tip, keep)?;
    leaving.retain(|(id, _)| !kept.contains(id));
    let mark = PrunedMark { time_ms: now_ms(), rules: words(keep), ..PrunedMark::default() };
    pruned::change(transaction, repo.storage(), |record| {
        leaving.iter().for_each(|(id, tree)| record.note(*id, &PrunedMark { stand_in: Some(*tree), ..mark.clone() }));
    })?;
    Ok(leaving.into_iter().map(|(id, _)| id).collect())
}

/// Refuses rules that could not be followed once the commit is made.
pub(crate) fn check_rules(keep: &KeepExact) -> Result<()> {
    let best = keep.exact_best.as_ref().filter(|best| best.lower_is_better.is_none());
    best.map_or(Ok(()), |best| End::Best.is_least(&best.metric).map(drop))
}

/// The same by the rules of the policy that `tip` was committed under, if it was: for versions that arrive. One that
/// was committed under rules that keep more stays: who may add a version may not take the exact contents of others.
///
/// # Errors
/// As `age`. A policy that cannot be read, or that this program does not know, ages nothing.
pub fn age_arrived(repo: &Repo, transaction: &WriteTransaction<'_>, tip: Id) -> Result<Vec<Id>> {
    let mut rules = Rules::new(repo);
    let Some(keep) = rules.of_version(&repo.odb().commit(&tip)?) else { return Ok(Vec::new()) };
    age_unless(repo, transaction, (tip, &keep), |distance, commit| {
        let lets_go = |own: KeepExact| distance >= latest(&own) && (own.exact_best.is_none() || own == keep);
        !rules.of_version(commit).is_some_and(lets_go)
    })
}

/// The rules that versions were committed under: each policy is read once.
struct Rules<'r> {
    repo: &'r Repo,
    read: HashMap<Id, Option<KeepExact>>,
}

impl Rules<'_> {
    fn new(repo: &Repo) -> Rules<'_> {
        Rules { repo, read: HashMap::new() }
    }

    /// Of a version, if it was committed under a policy that this program understands.
    fn of_version(&mut self, commit: &Commit) -> Option<KeepExact> {
        let id = *commit.quality.as_ref().and(commit.side.first())?;
        self.read.entry(id).or_insert_with(|| parsed(self.repo, &id)).clone()
    }

    /// Of the newest version of a branch that has any.
    fn along(&mut self, tip: Id) -> Result<Option<KeepExact>> {
        for step in first_parents(self.repo, tip).take(MOST_PASSED_OVER) {
            if let Some(rules) = self.of_version(&step?.1) {
                return Ok(Some(rules));
            }
        }
        Ok(None)
    }
}

fn parsed(repo: &Repo, policy: &Id) -> Option<KeepExact> {
    let text = repo.odb().read(policy, Kind::Blob).ok()?;
    let policy = Policy::parse("", std::str::from_utf8(&text).ok()?).ok()?;
    check_rules(&policy.keep).is_ok().then_some(policy.keep)
}

fn latest(keep: &KeepExact) -> usize {
    usize::try_from(keep.exact_latest).unwrap_or(usize::MAX)
}

/// A version, its first parent, and so on.
fn first_parents(repo: &Repo, tip: Id) -> impl Iterator<Item = Result<(Id, Commit)>> + '_ {
    let mut next = Some(tip);
    std::iter::from_fn(move || {
        let id = next.take()?;
        let commit = repo.odb().commit(&id);
        next = commit.as_ref().ok().and_then(|c| c.parents.first().copied());
        Some(commit.map(|c| (id, c)))
    })
}

/// Versions that stay exact: what a name points at, and what the rules of each branch keep on it.
fn kept(repo: &Repo, tip: Id, keep: &KeepExact) -> Result<HashSet<Id>> {
    let mut out: HashSet<Id> = named_commits(repo, "")?.into_iter().map(|(_, id)| id).collect();
    let mut rules = Rules::new(repo);
    for other in tips(repo)?.into_iter().filter(|other| *other != tip) {
        if let Some(rules) = rules.along(other)? {
            keep_of(repo, other, &rules, &mut out)?;
        }
    }
    keep_of(repo, tip, keep, &mut out)?;
    Ok(out)
}

/// Versions that the rules of each branch keep exact as it is now: of a branch that was moved back also some that had
/// aged. Nothing where no version aged.
pub(crate) fn in_windows(repo: &Repo, record: &Pruned) -> Result<HashSet<Id>> {
    let mut out = HashSet::new();
    if !record.iter_stand_ins().any(|(_, mark)| mark.is_by_policy()) {
        return Ok(out);
    }
    let mut rules = Rules::new(repo);
    for tip in tips(repo)? {
        let keep = rules.along(tip).and_then(|keep| keep.map_or(Ok(()), |keep| keep_of(repo, tip, &keep, &mut out)));
        match keep {
            // A shallow clone ends before its branch does. Any other error must not look as if nothing were kept.
            Err(RepoError::NotFound { .. }) => {}
            keep => keep?,
        }
    }
    Ok(out)
}

fn tips(repo: &Repo) -> Result<HashSet<Id>> {
    let branches = [repo.refs().list(HEADS)?, repo.refs().list(REMOTES)?].concat();
    Ok(branches.into_iter().map(|(_, id)| id).collect())
}

/// Adds what rules keep on a branch.
fn keep_of(repo: &Repo, tip: Id, rules: &KeepExact, out: &mut HashSet<Id>) -> Result<()> {
    for step in first_parents(repo, tip).take(latest(rules)) {
        out.insert(step?.0);
    }
    if let Some(best) = &rules.exact_best {
        out.extend(best_of(repo, tip, best)?);
    }
    Ok(())
}

/// The best versions by a metric, of equals the newer ones.
fn best_of(repo: &Repo, tip: Id, best: &ExactBest) -> Result<Vec<Id>> {
    let is_less = match best.lower_is_better {
        Some(is_less) => is_less,
        None => End::Best.is_least(&best.metric)?,
    };
    let mut all = Vec::new();
    for step in first_parents(repo, tip) {
        let (id, commit) = step?;
        let value = commit.metrics.get(&best.metric).copied().filter(|v| !v.is_nan());
        all.extend(value.map(|v| (if is_less { v } else { -v }, id)));
    }
    all.sort_by(|a, b| a.0.total_cmp(&b.0));
    Ok(all.into_iter().take(usize::try_from(best.n).unwrap_or(usize::MAX)).map(|(_, id)| id).collect())
}

fn words(keep: &KeepExact) -> String {
    let best = keep.exact_best.as_ref().map(|b| format!(", best {} of {}", b.n, b.metric));
    format!("{BY_POLICY}latest {}{}", keep.exact_latest, best.unwrap_or_default())
}
