//! Methods of a repository that make versions anew: rebase, cherry-pick, revert.

use crate::{errors::Outcome, progress::watched, repo::Repo};
use mdl_objects::Id;
use mdl_repo::{Operation, Outcome as Replay, Progress, ReplayOptions, RepoError, TensorRule};
use pyo3::prelude::*;

/// HEAD's commit before and now, and every version with what it became.
pub type Replayed = (Option<String>, Option<String>, Vec<(String, Option<String>)>);

/// What becomes of what both sides changed: the rule for tensors, globs of files of each side, a merge's parent.
pub type Rules = (String, Vec<String>, Vec<String>, Option<u64>);

pub fn options((rule, ours, theirs, mainline): Rules) -> Outcome<ReplayOptions> {
    let rule = match rule.as_str() {
        "snapshot" => TensorRule::Snapshot,
        "update" => TensorRule::Update,
        "exact" => TensorRule::Exact,
        _ => return Err(RepoError::usage(format!("there is no rule {rule:?}"), "snapshot, update or exact")),
    };
    Ok(ReplayOptions { ours, theirs, mainline, ..ReplayOptions::new(rule) })
}

/// Returns what was done. What waits for decisions is taken back: a program says beforehand which side counts.
pub fn settled(
    repo: &mdl_repo::Repo,
    operation: Operation,
    outcome: Replay,
    progress: &dyn Progress,
) -> Outcome<Replayed> {
    let head = |repo: &mdl_repo::Repo| Ok::<_, RepoError>(repo.refs().head_commit()?.map(|id| id.to_hex()));
    match outcome {
        Replay::UpToDate => Ok((head(repo)?, head(repo)?, Vec::new())),
        Replay::Done(done) => {
            let versions = done.replayed.iter().map(|v| (v.from.to_hex(), v.to.map(|id| id.to_hex())));
            Ok((Some(done.from.to_hex()), Some(done.to.to_hex()), versions.collect()))
        }
        Replay::Stopped(stop) => {
            mdl_repo::abort(repo, operation, progress)?;
            Err(RepoError::Undecided { files: stop.conflicts.into_iter().map(|c| c.path).collect() })
        }
    }
}

#[pymethods]
impl Repo {
    /// Puts this side's versions on top of another.
    #[pyo3(signature = (upstream, onto, rules, show=None))]
    fn rebase(
        &self,
        py: Python<'_>,
        upstream: &str,
        onto: Option<&str>,
        rules: Rules,
        show: Option<&Bound<'_, PyAny>>,
    ) -> PyResult<Replayed> {
        watched(py, show, |progress| {
            let (repo, options) = (&self.inner, options(rules)?);
            let onto = onto.map(|rev| self.id(rev)).transpose()?;
            let outcome = mdl_repo::rebase(repo, &self.id(upstream)?, onto.as_ref(), &options, progress)?;
            settled(repo, Operation::Rebase, outcome, progress)
        })
    }

    /// Makes the changes of versions here too, or with `back` takes them back.
    #[pyo3(signature = (revs, back, rules, show=None))]
    fn pick(
        &self,
        py: Python<'_>,
        revs: Vec<String>,
        back: bool,
        rules: Rules,
        show: Option<&Bound<'_, PyAny>>,
    ) -> PyResult<Replayed> {
        watched(py, show, |progress| {
            let (repo, options) = (&self.inner, options(rules)?);
            let versions = revs.iter().map(|rev| self.id(rev)).collect::<Outcome<Vec<Id>>>()?;
            let (operation, outcome) = match back {
                true => (Operation::Revert, mdl_repo::revert(repo, &versions, &options, progress)?),
                false => (Operation::CherryPick, mdl_repo::cherry_pick(repo, &versions, &options, progress)?),
            };
            settled(repo, operation, outcome, progress)
        })
    }
}
