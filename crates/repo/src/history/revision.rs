//! Revisions: what a user writes for a commit (`main~3`, `HEAD^2`, `4f3a`, `main@{2}`, `main@step=12000`,
//! `main@best(loss)`).

use crate::{
    history::{
        close_names::did_you_mean,
        metrics::{self, End},
    },
    notes::shown_notes,
    repo::Repo,
};
use mdl_objects::{Commit, Id, Kind};
use mdl_store::{
    Missing, Remedy, RepoError, Result,
    refs::{HEADS, Head, NOTES, POLICIES, REFS, REMOTES, RefName, TAGS},
};
use std::{collections::BTreeSet, iter};

/// Commits that a walk for a step or a best metric looks at.
const MAX_WALK: usize = 1_000_000;
/// Names of metrics that are compared with one that no commit has.
const MAX_NAMES: usize = 1000;
/// Digits of an id from which on it is looked up.
const MIN_DIGITS: usize = 4;

fn bad(rev: &str, why: &str) -> RepoError {
    RepoError::usage(
        format!("{rev:?} is no revision: {why}"),
        "write a branch, tag or id, with ~N, ^N, @{N}, @step=N, @best(METRIC), @worst(METRIC), @min(METRIC) or \
         @max(METRIC) behind it",
    )
}

/// Splits a revision into its first name and the operators behind it.
fn split(rev: &str) -> (&str, &str) {
    let at = rev.find(['~', '^']).unwrap_or(rev.len());
    let operators = ["@{", "@step=", "@best(", "@worst(", "@min(", "@max("];
    let at = operators.iter().filter_map(|op| rev.find(op)).min().map_or(at, |op| op.min(at));
    rev.split_at(at)
}

/// Takes a decimal number off the front; `default` if there is none.
fn number(rest: &str, default: usize) -> Option<(usize, &str)> {
    let end = rest.find(|c: char| !c.is_ascii_digit()).unwrap_or(rest.len());
    let n = if end == 0 { default } else { rest[..end].parse().ok()? };
    Some((n, &rest[end..]))
}

/// The commit a revision means.
///
/// # Errors
/// It means nothing, or more than one thing; damaged objects; an I/O error.
pub fn resolve(repo: &Repo, rev: &str) -> Result<Id> {
    if rev.contains("..") {
        return Err(RepoError::usage(
            format!("{rev:?} is a range, where one revision is wanted"),
            Remedy::TwoRevisions,
        ));
    }
    let (name, mut rest) = split(rev);
    // `@{1}`, `@step=5` and `~1` by themselves are about HEAD, as is a lone `@`.
    let name = if name.is_empty() || name == "@" { "HEAD" } else { name };
    if let Some(after) = rest.strip_prefix("@{") {
        let (n, after) = after.split_once('}').ok_or_else(|| bad(rev, "no closing brace"))?;
        let n: usize = n.parse().map_err(|_| bad(rev, "a number is wanted between the braces"))?;
        let id = reflog_commit(repo, name, n)?;
        return follow(repo, rev, id, after);
    }
    let mut id = resolve_name(repo, name)?;
    if let Some(after) = rest.strip_prefix("@step=") {
        if !after.starts_with(|c: char| c.is_ascii_digit()) {
            return Err(bad(rev, "a step is a number"));
        }
        let (n, after) = number(after, 0).ok_or_else(|| bad(rev, "the step is too large"))?;
        id = at_step(repo, rev, id, n as u64)?;
        rest = after;
    } else if let Some((end, inner)) = metrics::operator(rest) {
        let (metric, after) = inner.split_once(')').ok_or_else(|| bad(rev, "no closing parenthesis"))?;
        id = best(repo, rev, id, metric, end)?;
        rest = after;
    }
    follow(repo, rev, id, rest)
}

fn follow(repo: &Repo, rev: &str, mut id: Id, mut rest: &str) -> Result<Id> {
    while let Some(op) = rest.chars().next() {
        let (n, after) = number(&rest[op.len_utf8()..], 1).ok_or_else(|| bad(rev, "the number is too large"))?;
        rest = after;
        match op {
            '~' => {
                for _ in 0..n {
                    id = parent(repo, rev, &id, 1)?;
                }
            }
            '^' if n > 0 => id = parent(repo, rev, &id, n)?,
            '^' => {}
            _ => return Err(bad(rev, &format!("nothing is known of {op:?}"))),
        }
    }
    Ok(id)
}

fn parent(repo: &Repo, rev: &str, id: &Id, n: usize) -> Result<Id> {
    let commit = repo.odb().commit(id)?;
    let missing =
        || RepoError::not_found(Missing::Revision, format!("{rev} (commit {} has no such parent)", id.short()));
    commit.parents.get(n - 1).copied().ok_or_else(missing)
}

fn reflog_commit(repo: &Repo, name: &str, n: usize) -> Result<Id> {
    // A deleted ref has a log by its full name; an invalid name is answered as one without moves.
    let full = full_ref(repo, name)?.or_else(|| RefName::parse(name).ok());
    let log = full.map_or_else(|| Ok(Vec::new()), |full| repo.refs().reflog(&full))?;
    let missing =
        || RepoError::not_found(Missing::Revision, format!("{name}@{{{n}}} (the reflog has {} moves)", log.len()));
    let id = match n {
        0 => log.first().and_then(|e| e.new),
        n => log.get(n - 1).and_then(|e| e.old),
    };
    peel(repo, &id.ok_or_else(missing)?)
}

/// Full name of the ref a short name means: as it is, branch, tag, then remote-tracking branch (`origin/main`).
pub fn full_ref(repo: &Repo, name: &str) -> Result<Option<RefName>> {
    if name == "HEAD" {
        return Ok(Some(RefName::HEAD));
    }
    let named = [HEADS, TAGS, REMOTES].map(|prefix| RefName::parse(&format!("{prefix}{name}")));
    for full in iter::once(RefName::parse(name)).chain(named).flatten() {
        if repo.refs().get(&full)?.is_some() {
            return Ok(Some(full));
        }
    }
    Ok(None)
}

fn resolve_name(repo: &Repo, name: &str) -> Result<Id> {
    if name == "HEAD" {
        return match repo.refs().head_commit()? {
            Some(id) => Ok(id),
            None => Err(RepoError::not_found(Missing::Version, "HEAD (its branch has no commits yet)")),
        };
    }
    if let Some(full) = full_ref(repo, name)?
        && let Some(id) = repo.refs().get(&full)?
    {
        return peel(repo, &id);
    }
    if repo.refs().head()? == Head::Branch(name.to_owned()) {
        let why = format!("{name} (the branch has no commits yet)");
        return Err(RepoError::not_found(Missing::Version, why));
    }
    // People paste ids in capitals, too.
    let digits = name.to_ascii_lowercase();
    if let Ok(id) = digits.parse::<Id>() {
        return peel(repo, &id);
    }
    by_prefix(repo, name, &digits)
}

fn by_prefix(repo: &Repo, name: &str, digits: &str) -> Result<Id> {
    if !digits.bytes().all(|b| matches!(b, b'0'..=b'9' | b'a'..=b'f')) {
        return Err(RepoError::not_found(Missing::Revision, name));
    }
    if digits.len() < MIN_DIGITS {
        let why = format!("{name} (an id wants at least {MIN_DIGITS} digits)");
        return Err(RepoError::not_found(Missing::Revision, why));
    }
    let found = repo.odb().ids_with_prefix(digits, 64)?;
    let mut commits: Vec<Id> = Vec::new();
    for (id, kind) in &found {
        if matches!(kind, Kind::Commit | Kind::Tag) {
            commits.push(peel(repo, id)?);
        }
    }
    commits.sort();
    commits.dedup();
    match commits.as_slice() {
        [one] => Ok(*one),
        [] => Err(RepoError::not_found(Missing::Revision, name)),
        many => {
            let list: Vec<String> = many.iter().map(Id::short).collect();
            Err(RepoError::user(format!("{name} could be any of {}", list.join(", ")), "give more digits"))
        }
    }
}

/// The commit behind an id: itself, or the target of an annotated tag.
///
/// # Errors
/// Absent, or another kind of object; an I/O error.
pub fn peel(repo: &Repo, id: &Id) -> Result<Id> {
    match repo.odb().need(id, Missing::Commit)?.record.kind {
        Kind::Commit => Ok(*id),
        Kind::Tag => Ok(repo.odb().tag(id)?.target),
        kind => Err(no_commit(id, kind)),
    }
}

pub(crate) fn no_commit(id: &Id, kind: Kind) -> RepoError {
    RepoError::user(format!("{} is a {kind}, not a commit", id.short()), "name a commit")
}

/// Commits that refs and a detached HEAD point at, by their full names. Left out are policies and notes, which are no
/// versions, and the ref `except`.
pub(crate) fn named_commits(repo: &Repo, except: &str) -> Result<Vec<(String, Id)>> {
    let mut named = Vec::new();
    for (name, id) in repo.refs().list(REFS.as_str())? {
        let full = format!("{REFS}{name}");
        if full != except && full != NOTES && !full.starts_with(POLICIES) {
            named.push((full, peel(repo, &id)?));
        }
    }
    named.extend(repo.refs().head()?.detached().map(|id| ("HEAD".to_owned(), id)));
    named.extend(repo.refs().main_head()?.map(|id| ("HEAD of the main work tree".to_owned(), id)));
    Ok(named)
}

fn at_step(repo: &Repo, rev: &str, from: Id, step: u64) -> Result<Id> {
    let found = search(repo, from, |_, c| (c.step == Some(step)).then_some(0.0))?;
    found.ok_or_else(|| RepoError::not_found(Missing::Revision, format!("{rev} (no commit of that step)")))
}

fn best(repo: &Repo, rev: &str, from: Id, metric: &str, end: End) -> Result<Id> {
    let least = end.is_least(metric);
    let notes = shown_notes(repo)?;
    let mut names = BTreeSet::new();
    let score = |id: &Id, c: &Commit| {
        let found = notes.metric(id, c, metric).filter(|v| !v.is_nan());
        if found.is_none() && names.len() < MAX_NAMES {
            names.extend(c.metrics.keys().cloned());
        }
        found.map(|v| if matches!(least, Ok(false)) { -v } else { v })
    };
    let found = search(repo, from, score)?;
    let Some(found) = found else {
        // A name that is misspelt is no name whose best end is unknown.
        let close = did_you_mean("; ", metric, names.iter().map(String::as_str));
        return Err(RepoError::not_found(Missing::Revision, format!("{rev} (no commit has that metric{close})")));
    };
    least.map(|_| found)
}

/// The commit of lowest score in first-parent history; of equals the newest.
fn search(repo: &Repo, from: Id, mut score: impl FnMut(&Id, &Commit) -> Option<f64>) -> Result<Option<Id>> {
    let mut best: Option<(f64, Id)> = None;
    let mut next = Some(from);
    for _ in 0..MAX_WALK {
        let Some(id) = next else { break };
        let commit = repo.odb().commit(&id)?;
        if let Some(s) = score(&id, &commit)
            && best.is_none_or(|(b, _)| s < b)
        {
            best = Some((s, id));
        }
        next = commit.parents.first().copied();
    }
    Ok(best.map(|b| b.1))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_and_operators_come_apart() {
        assert_eq!(split("main~3"), ("main", "~3"));
        assert_eq!(split("a/b^2~1"), ("a/b", "^2~1"));
        assert_eq!(split("main@{2}"), ("main", "@{2}"));
        assert_eq!(split("me@home@step=5~1"), ("me@home", "@step=5~1"));
        assert_eq!(split("@best(loss)"), ("", "@best(loss)"));
        assert_eq!(split("HEAD"), ("HEAD", ""));
    }
}
