//! Surveys versions and why each is kept: rules branch by branch, names, other branches, resumed runs.

use crate::{
    history::{Step, history, named_commits},
    maintenance::retention::{Retention, rules::Facts},
    notes::{VersionNotes, notes},
    pruned::Pruned,
    repo::Repo,
};
use mdl_objects::{Commit, Id};
use mdl_store::{
    Missing, RepoError, Result,
    refs::{HEADS, TAGS},
};
use std::collections::HashMap;

/// The versions that a pruning looks at.
#[derive(Debug, Default)]
pub(super) struct Survey {
    /// Short names of the branches that are pruned.
    pub branches: Vec<String>,
    /// Their versions that were not pruned before: every child before its parents.
    pub versions: Vec<Step>,
    /// Why a version is kept; one that is not in here goes.
    pub why: HashMap<Id, Vec<String>>,
    /// Rules that could tell nothing of a branch, and kept all of it.
    pub undecided: Vec<String>,
}

/// Looks at one branch, or at all. A version goes only if no branch that reaches it keeps it; a branch that is not
/// pruned keeps all of its versions.
pub(super) fn survey_versions(
    repo: &Repo,
    branch: Option<&str>,
    rules: &Retention,
    pruned: &Pruned,
    fresh_since: i64,
) -> Result<Survey> {
    rules.check()?;
    let tips = repo.refs().list(HEADS)?;
    if let Some(name) = branch.filter(|b| tips.iter().all(|(n, _)| n != b)) {
        return Err(RepoError::not_found(Missing::Branch, name));
    }
    // Without notes that are damaged a rule could take what they say is best.
    let notes = notes(repo)?;
    let mut out = Survey::default();
    let mut resumed = Vec::new();
    for (name, tip) in &tips {
        let own = unpruned(repo, &[*tip], pruned)?;
        for step in &own {
            // A run that has just been restored from a version may well be restored from it again.
            let from = step.commit.resumed_from.filter(|_| step.commit.author.time_ms >= fresh_since);
            resumed.extend(from.map(|from| (from, step.id)));
        }
        if branch.is_none_or(|b| b == name) {
            out.apply(rules, &notes, name, &own)?;
        } else {
            own.iter().for_each(|s| out.keep(s.id, format!("on branch {name}")));
        }
    }
    for (full, id) in named_commits(repo, "")? {
        let reason = match (full.strip_prefix(HEADS), full.strip_prefix(TAGS)) {
            (Some(branch), _) => format!("tip of {branch}"),
            (_, Some(tag)) => format!("tag {tag}"),
            _ => full,
        };
        out.keep(id, reason);
    }
    for (from, by) in resumed {
        out.keep(from, format!("{} resumed from it", by.short()));
    }
    let starts: Vec<Id> = tips.iter().filter(|(n, _)| out.branches.contains(n)).map(|t| t.1).collect();
    out.versions = unpruned(repo, &starts, pruned)?;
    Ok(out)
}

/// Versions behind these commits that were not pruned, every child before its parents.
fn unpruned(repo: &Repo, tips: &[Id], pruned: &Pruned) -> Result<Vec<Step>> {
    let all = history(repo, tips)?.collect::<Result<Vec<Step>>>()?;
    Ok(all.into_iter().filter(|s| pruned.get(&s.id).is_none()).collect())
}

impl Survey {
    fn keep(&mut self, id: Id, reason: String) {
        let all = self.why.entry(id).or_default();
        if !all.contains(&reason) {
            all.push(reason);
        }
    }

    fn apply(&mut self, rules: &Retention, notes: &VersionNotes, name: &str, own: &[Step]) -> Result<()> {
        self.branches.push(name.to_owned());
        let facts: Vec<Facts> = own.iter().map(|s| facts(notes.annotated(&s.id, s.commit.clone()))).collect();
        let choice = rules.choose(&facts)?;
        for (step, reasons) in own.iter().zip(choice.kept) {
            reasons.into_iter().for_each(|r| self.keep(step.id, r));
        }
        let undecided = choice.undecided.into_iter().map(|rule| format!("{rule} (branch {name})"));
        self.undecided.extend(undecided);
        Ok(())
    }
}

/// What rules go by; `commit` is with its notes: evaluations that finished later count.
fn facts(commit: Commit) -> Facts {
    Facts { time_ms: commit.author.time_ms, step: commit.step, metrics: commit.metrics }
}
