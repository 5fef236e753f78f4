//! Methods of a repository that make one version of several: merges and soups.

use crate::{errors::Outcome, progress::watched, repo::Repo};
use mdl_objects::Id;
use mdl_repo::{
    FastForward, MergeOutcome, MergeRequest, Override, RepoError, Rule, SoupKind, SoupRequest, merge_versions,
};
use pyo3::{exceptions::PyException, prelude::*};
use std::path::Path;

/// What came of it, HEAD's commit before and now, the recipe as JSON, tensors that were computed.
type Made = (String, Option<String>, Option<String>, Option<String>, usize);

fn made(repo: &mdl_repo::Repo, outcome: MergeOutcome) -> Outcome<Made> {
    let hex = |id: Option<Id>| id.map(|id| id.to_hex());
    Ok(match outcome {
        MergeOutcome::UpToDate => {
            let head = hex(repo.refs().head_commit()?);
            ("up_to_date".to_owned(), head.clone(), head, None, 0)
        }
        MergeOutcome::FastForward { from, to } => ("fast_forward".to_owned(), hex(from), hex(Some(to)), None, 0),
        MergeOutcome::Merged(merged) => {
            let recipe = serde_json::to_string(&merged.recipe).ok();
            ("merged".to_owned(), hex(Some(merged.from)), hex(Some(merged.id)), recipe, merged.computed)
        }
        MergeOutcome::Conflicts(conflicts) => {
            let name = |c: mdl_repo::MergeConflict| match c.tensor {
                Some(tensor) => format!("{} {tensor}: {}", c.path, c.reason.text()),
                None => format!("{}: {}", c.path, c.reason.text()),
            };
            return Err(RepoError::Undecided { files: conflicts.into_iter().map(name).collect() });
        }
    })
}

fn parsed<T: serde::de::DeserializeOwned>(json: &str) -> Outcome<T> {
    serde_json::from_str(json).map_err(|e| RepoError::usage(format!("no such strategy: {e}"), "see docs/merge.md"))
}

fn overrides(list: Vec<(String, String)>) -> Outcome<Vec<Override>> {
    list.into_iter().map(|(glob, rule)| Ok(Override { glob, rule: parsed(&rule)? })).collect()
}

#[pymethods]
impl Repo {
    /// Merges versions into the present branch; `strategy` and the rules of `globs` are JSON.
    #[pyo3(signature = (revs, strategy, globs, with_state, message, fast_forward, show=None))]
    #[expect(clippy::too_many_arguments, reason = "Python's keywords")]
    fn merge(
        &self,
        py: Python<'_>,
        revs: Vec<String>,
        strategy: &str,
        globs: Vec<(String, String)>,
        with_state: bool,
        message: Option<String>,
        fast_forward: bool,
        show: Option<&Bound<'_, PyAny>>,
    ) -> PyResult<Made> {
        watched(py, show, |progress| {
            let others = revs.iter().map(|rev| Ok((self.id(rev)?, rev.clone()))).collect::<Outcome<Vec<_>>>()?;
            let request = MergeRequest {
                others,
                strategy: parsed::<Rule>(strategy)?,
                overrides: overrides(globs)?,
                with_state,
                message,
                fast_forward: if fast_forward { FastForward::Allowed } else { FastForward::Never },
            };
            made(&self.inner, merge_versions(&self.inner, &request, progress)?)
        })
    }

    /// Makes a soup of versions, the newest first; `kind` is JSON.
    #[pyo3(signature = (revs, kind, measure, maximize, globs, with_state, message, show=None))]
    #[expect(clippy::too_many_arguments, reason = "Python's keywords")]
    fn soup(
        &self,
        py: Python<'_>,
        revs: Vec<String>,
        kind: &str,
        measure: Option<Py<PyAny>>,
        maximize: bool,
        globs: Vec<(String, String)>,
        with_state: bool,
        message: Option<String>,
        show: Option<&Bound<'_, PyAny>>,
    ) -> PyResult<Made> {
        let mut raised: Option<PyErr> = None;
        let keep = &mut raised;
        let done = watched(py, show, move |progress| {
            let mut call = |dir: &Path| {
                let function = measure.as_ref().ok_or_else(|| "there is none".to_owned())?;
                let value = Python::attach(|py| function.call1(py, (dir.to_owned(),))?.extract::<f64>(py));
                value.map_err(|e| {
                    let said = e.to_string();
                    *keep = Some(e);
                    said
                })
            };
            let request = SoupRequest {
                versions: revs.iter().map(|rev| self.id(rev)).collect::<Outcome<_>>()?,
                kind: parsed::<SoupKind>(kind)?,
                measure: Some(&mut call),
                maximize,
                overrides: overrides(globs)?,
                with_state,
                message,
            };
            let (outcome, _) = mdl_repo::soup(&self.inner, request, progress)?;
            made(&self.inner, outcome)
        });
        // What the evaluator raised is what the caller sees.
        match raised {
            Some(e) if e.is_instance_of::<PyException>(py) && done.is_err() => Err(e),
            _ => done,
        }
    }
}
