//! The native `Repo` class: create, open, commit, refs.

use crate::{
    engine::engine,
    errors::{Outcome, free, raise},
    evaluate::judged,
    files::File,
    pools::{Priority, on},
    show::{self, Version},
};
use mdl_objects::{Id, Resume};
use mdl_repo::{
    CheckoutOptions, CommitRequest, Committed, Direction, Evaluator, Gate, HEADS, Level, LossyRequest, NewFile, OnFull,
    PruneOptions, Pruned, RepoError, Retention, Signing, Silent, TAGS,
    provenance::{Wanted, capture},
};
use pyo3::{prelude::*, types::PyDict};
use serde::Serialize;
use std::{
    collections::BTreeMap,
    path::{Path, PathBuf},
};

/// A repository.
#[pyclass(frozen, module = "mdl._native")]
#[derive(Debug)]
pub struct Repo {
    pub inner: mdl_repo::Repo,
}

/// What is said about a version.
#[derive(FromPyObject)]
#[pyo3(from_item_all)]
pub(crate) struct CommitFields {
    message: String,
    branch: Option<String>,
    step: Option<u64>,
    epoch: Option<f64>,
    metrics: BTreeMap<String, f64>,
    meta: BTreeMap<String, String>,
    allow_empty: bool,
    resumed_from: Option<String>,
    resume: Option<String>,
    provenance: Option<String>,
    /// None: as the settings say; "": not at all; "configured": with their key; else with this one.
    sign: Option<String>,
    background: bool,
}

/// Where a version comes from that this process makes, as a commit has it; data sets are `NAME=PLACE`.
#[pyfunction]
pub fn capture_provenance(
    py: Python<'_>,
    command: Vec<String>,
    packages: BTreeMap<String, String>,
    devices: Vec<String>,
    datasets: Vec<String>,
) -> PyResult<String> {
    free(py, || {
        let directory = std::env::current_dir().map_err(RepoError::io("cannot tell the current directory"))?;
        capture(&directory, &Wanted { command, packages, devices, datasets })?.to_text()
    })
}

/// Under which contract a version may be stored lossily.
#[derive(FromPyObject)]
#[pyo3(from_item_all)]
struct LossyOptions {
    policy: String,
    /// Gate: fraction of the measured number that may be lost.
    quality: Option<f64>,
    /// Gate: fraction of the gain per commit that may be lost.
    progress: Option<f64>,
    higher_is_better: bool,
    grads: Option<PathBuf>,
    since: Option<PathBuf>,
}

impl LossyOptions {
    fn request<'a>(&self, repo: &mdl_repo::Repo) -> Outcome<LossyRequest<'a>> {
        let mut policy = mdl_repo::policy(repo, &self.policy)?;
        if let Some(gate) = self.quality.map(Gate::Epsilon).or(self.progress.map(Gate::Progress)) {
            policy.gate = gate;
        }
        Ok(LossyRequest {
            policy,
            evaluator: None,
            direction: if self.higher_is_better { Direction::HigherIsBetter } else { Direction::LowerIsBetter },
            grads: self.grads.clone(),
            since: self.since.clone(),
        })
    }
}

fn label(name: &str) -> Outcome<Resume> {
    let found = Resume::ALL.into_iter().find(|r| r.name() == name);
    found.ok_or_else(|| RepoError::usage(format!("{name:?} is no label"), "exact-resume, approximate or weights-only"))
}

/// As JSON: a stored file for `File.stored`, a report.
pub(crate) fn words(stored: &impl Serialize) -> Outcome<String> {
    serde_json::to_string(stored).map_err(|e| RepoError::io("cannot write down a file")(e.into()))
}

pub(crate) fn new_files(files: &[Py<File>]) -> PyResult<Vec<NewFile>> {
    files.iter().map(|f| f.get().to_new()).collect()
}

impl Repo {
    pub(crate) fn wanted(
        &self,
        said: &CommitFields,
        files: Option<Vec<NewFile>>,
        source: Option<PathBuf>,
    ) -> Outcome<CommitRequest> {
        let resumed_from = said.resumed_from.as_ref().map(|rev| mdl_repo::resolve(&self.inner, rev)).transpose()?;
        Ok(CommitRequest {
            source,
            files,
            message: said.message.clone(),
            branch: said.branch.clone(),
            step: said.step,
            epoch: said.epoch,
            metrics: said.metrics.clone(),
            meta: said.meta.clone(),
            allow_empty: said.allow_empty,
            resumed_from,
            resume: said.resume.as_deref().map(label).transpose()?,
            provenance: said.provenance.clone(),
            signing: self.signing(said.sign.as_deref())?,
            ..CommitRequest::default()
        })
    }

    fn signing(&self, sign: Option<&str>) -> Outcome<Signing> {
        match sign {
            None => Ok(Signing::Configured),
            Some("") => Ok(Signing::Never),
            Some("configured") => Signing::with_key(&self.inner, None),
            Some(key) => Signing::with_key(&self.inner, Some(key)),
        }
    }

    pub(crate) fn summary<'py>(&self, py: Python<'py>, done: &Committed) -> PyResult<Bound<'py, PyDict>> {
        let version = free(py, || {
            let commit = self.inner.odb().commit(&done.id);
            let version = commit.and_then(|c| Version::read(&self.inner, done.id, c, &Pruned::default()));
            // Training holds a repository for days: others are to have the index meanwhile.
            self.inner.odb().release_index();
            version
        })?;
        let d = show::commit(py, &version)?;
        d.set_item("branch", done.branch.clone())?;
        Ok(d)
    }

    pub(crate) fn id(&self, rev: &str) -> Outcome<Id> {
        mdl_repo::resolve(&self.inner, rev)
    }
}

fn opened(py: Python<'_>, index: bool, open: impl FnOnce() -> Outcome<mdl_repo::Repo> + Send) -> PyResult<Repo> {
    free(py, || {
        let repo = open()?;
        let repo = if index { repo } else { repo.without_index() };
        // `mdl.room` waits, so that Ctrl-C is heard.
        Ok(Repo { inner: repo.without_waiting_for_room() })
    })
}

#[pymethods]
impl Repo {
    /// Makes a repository, or opens the one that is there.
    #[staticmethod]
    fn init(py: Python<'_>, path: PathBuf, bare: bool, branch: &str, index: bool) -> PyResult<Repo> {
        opened(py, index, || mdl_repo::Repo::init(&path, bare, branch, engine()?).map(|made| made.0))
    }

    /// Opens the repository at `path`, or with `search` the one around it. A forked child does without the index.
    #[staticmethod]
    fn open(py: Python<'_>, path: PathBuf, search: bool, index: bool) -> PyResult<Repo> {
        opened(py, index, || match search {
            true => mdl_remote::discover(&path, &engine()?),
            false => mdl_remote::open_at(&path, &engine()?),
        })
    }

    /// Closes the index, for a fork: a child would inherit its lock.
    fn release_index(&self, py: Python<'_>) {
        py.detach(|| self.inner.odb().release_index());
    }

    /// Never lets this object go: in a forked child it is the parent's.
    fn leak(slf: Py<Self>) {
        std::mem::forget(slf);
    }

    #[getter]
    fn dir(&self) -> Option<&Path> {
        self.inner.dir()
    }

    #[getter]
    fn work(&self) -> Option<&Path> {
        self.inner.work()
    }

    /// Whether what finds the disk full is to wait for room.
    #[getter]
    fn waits_for_room(&self) -> bool {
        self.inner.config().on_full() == OnFull::Wait
    }

    /// Bytes that may still be written; None where the medium does not tell.
    fn room(&self, py: Python<'_>) -> PyResult<Option<u64>> {
        free(py, || mdl_repo::room(&self.inner))
    }

    /// Commits files, or a directory, without loss.
    #[pyo3(signature = (said, files=None, source=None))]
    fn commit<'py>(
        &self,
        py: Python<'py>,
        said: CommitFields,
        files: Option<Vec<Py<File>>>,
        source: Option<PathBuf>,
    ) -> PyResult<Bound<'py, PyDict>> {
        let files = files.map(|f| new_files(&f)).transpose()?;
        let priority = if said.background { Priority::Background } else { Priority::Waiting };
        let done = free(py, || {
            let request = self.wanted(&said, files, source)?;
            on(priority, || mdl_repo::commit(&self.inner, &request, &Silent))
        })?;
        self.summary(py, &done)
    }

    /// Commits files, or a directory, under a contract.
    #[pyo3(signature = (said, contract, files=None, source=None, evaluate=None))]
    fn commit_lossy<'py>(
        &self,
        py: Python<'py>,
        said: CommitFields,
        contract: LossyOptions,
        files: Option<Vec<Py<File>>>,
        source: Option<PathBuf>,
        evaluate: Option<&Bound<'py, PyAny>>,
    ) -> PyResult<Bound<'py, PyDict>> {
        let files = files.map(|f| new_files(&f)).transpose()?;
        let request = self.wanted(&said, files, source).map_err(|e| raise(py, &e))?;
        let commit = |evaluator: Option<&mut dyn Evaluator>| {
            let mut lossy = contract.request(&self.inner)?;
            lossy.evaluator = evaluator;
            mdl_repo::commit_lossy(&self.inner, &request, &mut lossy, &Silent)
        };
        let done = match evaluate {
            Some(function) => judged(py, function, |evaluator| commit(Some(evaluator)))?,
            None => free(py, || on(Priority::Waiting, || commit(None)))?,
        };
        self.summary(py, &done)
    }

    /// Name and text of the policy with this name, or in the file with this path.
    fn policy(&self, py: Python<'_>, name: &str) -> PyResult<(String, String)> {
        free(py, || mdl_repo::policy(&self.inner, name).map(|p| (p.name, p.text)))
    }

    /// Stores files ahead of their commit; what comes back is for `File.stored`.
    #[pyo3(signature = (files, branch=None))]
    fn stage(&self, py: Python<'_>, files: Vec<Py<File>>, branch: Option<String>) -> PyResult<Vec<String>> {
        let files = new_files(&files)?;
        free(py, || {
            let stage = || mdl_repo::stage(&self.inner, &files, branch.as_deref(), &Silent);
            on(Priority::Waiting, stage)?.iter().map(words).collect()
        })
    }

    /// The files of a version as `stage` tells of them: name, words.
    fn stored(&self, py: Python<'_>, rev: &str) -> PyResult<Vec<(String, String)>> {
        free(py, || {
            let stored = mdl_repo::stored(&self.inner, &self.id(rev)?)?;
            stored.into_iter().map(|(rel, s)| Ok((rel, words(&s)?))).collect()
        })
    }

    /// Id of the commit that a revision names.
    fn resolve(&self, py: Python<'_>, rev: &str) -> PyResult<String> {
        free(py, || self.id(rev)).map(|id| id.to_hex())
    }

    /// The branch HEAD is on, if it is on one.
    fn head_branch(&self, py: Python<'_>) -> PyResult<Option<String>> {
        free(py, || Ok(self.inner.refs().head()?.branch().map(str::to_owned)))
    }

    /// Branches (or tags) and the commits they stand at.
    fn refs(&self, py: Python<'_>, tags: bool) -> PyResult<BTreeMap<String, String>> {
        let prefix = if tags { TAGS } else { HEADS };
        free(py, || {
            let all = self.inner.refs().list(prefix)?.into_iter();
            all.map(|(name, id)| Ok((name, mdl_repo::peel(&self.inner, &id)?.to_hex()))).collect()
        })
    }

    fn create_branch(&self, py: Python<'_>, name: &str, at: &str, force: bool) -> PyResult<()> {
        free(py, || mdl_repo::create_branch(&self.inner, name, &self.id(at)?, force))
    }

    fn delete_branch(&self, py: Python<'_>, name: &str, force: bool) -> PyResult<()> {
        free(py, || mdl_repo::delete_branch(&self.inner, name, force, &Silent).map(drop))
    }

    #[pyo3(signature = (name, at, message, force, sign=None))]
    fn create_tag(
        &self,
        py: Python<'_>,
        name: &str,
        at: &str,
        message: Option<&str>,
        force: bool,
        sign: Option<&str>,
    ) -> PyResult<()> {
        free(py, || {
            let signing = self.signing(sign)?;
            mdl_repo::create_signed_tag(&self.inner, name, &self.id(at)?, message, force, &signing).map(drop)
        })
    }

    fn delete_tag(&self, py: Python<'_>, name: &str) -> PyResult<()> {
        free(py, || mdl_repo::delete_tag(&self.inner, name).map(drop))
    }

    /// Writes a version's files below a directory; returns how many were written, and how many bytes.
    fn checkout_to(
        &self,
        py: Python<'_>,
        rev: &str,
        to: PathBuf,
        only: Vec<String>,
        force: bool,
    ) -> PyResult<(u64, u64)> {
        free(py, || {
            let id = self.id(rev)?;
            let options = CheckoutOptions { only, force, link: false };
            let done = on(Priority::Waiting, || mdl_repo::checkout_to(&self.inner, &id, &to, &options, &Silent))?;
            Ok((done.written, done.bytes))
        })
    }

    /// Lets go of contents of versions that none of the rules (JSON) keeps, down to a level.
    fn prune<'py>(
        &self,
        py: Python<'py>,
        rules: &str,
        branch: Option<&str>,
        dry_run: bool,
        to: &str,
    ) -> PyResult<Bound<'py, PyDict>> {
        let bad = |e: serde_json::Error| RepoError::usage(format!("no rules of retention: {e}"), "see mdl.retention");
        let report = free(py, || {
            let rules: Retention = serde_json::from_str(rules).map_err(bad)?;
            let unknown = || RepoError::usage(format!("no level of retention: {to}"), "see mdl.retention");
            let to = Level::ALL.into_iter().find(|level| level.name() == to).ok_or_else(unknown)?;
            on(Priority::Waiting, || mdl_repo::prune(&self.inner, branch, &rules, &PruneOptions { dry_run, to }))
        })?;
        show::pruning(py, &report)
    }

    /// Takes prunings back, of these versions or of all; returns which.
    fn undo_prune(&self, py: Python<'_>, revs: Option<Vec<String>>) -> PyResult<Vec<String>> {
        free(py, || {
            let ids = revs.map(|r| r.iter().map(|rev| self.id(rev)).collect::<Outcome<Vec<Id>>>()).transpose()?;
            let back = mdl_repo::undo_prune(&self.inner, ids.as_deref())?;
            Ok(back.iter().map(|v| v.commit.to_hex()).collect())
        })
    }
}
