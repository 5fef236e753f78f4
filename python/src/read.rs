//! Read-only methods of a repository: versions, files, tensors.

use crate::{
    buffer::Lent,
    errors::{Outcome, free},
    notes::LogFilter,
    pools::{Priority, on},
    repo::Repo,
    show::{self, Version},
};
use mdl_objects::{Entry, Manifest, Mode};
use mdl_repo::{Files, Missing, RepoError, Silent};
use pyo3::{
    prelude::*,
    types::{PyBytes, PyDict},
};
use rayon::prelude::*;
use std::collections::HashMap;

/// Name, dtype, shape; of a view also the stored tensor, the bytes before its first element, and its strides in
/// elements.
type Listed = (String, &'static str, Vec<u64>, Option<(String, u64, Vec<u64>)>);

/// File, stored tensor, address, length in bytes, owner of the memory.
type Wanted = (String, String, usize, usize, Py<PyAny>);

impl Repo {
    fn tree(&self, rev: &str) -> Outcome<Files> {
        mdl_repo::files(&self.inner, &self.id(rev)?)
    }

    fn entry(&self, rev: &str, path: &str) -> Outcome<Entry> {
        let found = self.tree(rev)?.remove(path);
        found.ok_or_else(|| RepoError::not_found(Missing::File, path))
    }

    /// The id of a tensor that a file names, which is fetched if a partial repository lacks it.
    pub(crate) fn stored_tensor(&self, rev: &str, path: &str, name: &str) -> Outcome<mdl_objects::Id> {
        let manifest = self.manifest(&self.entry(rev, path)?)?;
        let found = manifest.into_iter().flat_map(|m| m.tensors).find(|t| t.name == name);
        let id = found.ok_or_else(|| RepoError::not_found(Missing::Tensor, format!("{path}:{name}")))?.id;
        self.inner.odb().prefetch([id].into_iter())?;
        Ok(id)
    }

    /// The ids of stored tensors, by file and name. Those that a partial repository lacks are fetched, all at once, and
    /// not by threads of a pool: the one that fetches would wait for others that wait for it.
    fn stored_tensors<'n>(
        &self,
        rev: &str,
        wanted: impl Iterator<Item = (&'n str, &'n str)>,
    ) -> Outcome<Vec<mdl_objects::Id>> {
        let files = self.tree(rev)?;
        let mut manifests: HashMap<&str, HashMap<String, mdl_objects::Id>> = HashMap::new();
        let mut ids = Vec::new();
        for (path, name) in wanted {
            if !manifests.contains_key(path) {
                let entry = files.get(path).ok_or_else(|| RepoError::not_found(Missing::File, path))?;
                let tensors = self.manifest(entry)?.map(|m| m.tensors).unwrap_or_default();
                manifests.insert(path, tensors.into_iter().map(|t| (t.name, t.id)).collect());
            }
            let id = manifests.get(path).and_then(|m| m.get(name)).copied();
            ids.push(id.ok_or_else(|| RepoError::not_found(Missing::Tensor, format!("{path}:{name}")))?);
        }
        self.inner.odb().prefetch(ids.iter().copied())?;
        Ok(ids)
    }

    fn manifest(&self, entry: &Entry) -> Outcome<Option<Manifest>> {
        match entry.mode {
            Mode::Manifest => self.inner.odb().manifest(&entry.id).map(Some),
            _ => Ok(None),
        }
    }
}

#[pymethods]
impl Repo {
    /// A commit.
    fn show<'py>(&self, py: Python<'py>, rev: &str) -> PyResult<Bound<'py, PyDict>> {
        let version = free(py, || {
            let id = self.id(rev)?;
            let commit = mdl_repo::shown_notes(&self.inner)?.annotated(&id, self.inner.odb().commit(&id)?);
            Version::read(&self.inner, id, commit, &mdl_repo::pruned(&self.inner)?)
        })?;
        show::commit(py, &version)
    }

    /// Commits that are reachable from these revisions, newest first.
    #[pyo3(signature = (revs, limit, filter))]
    fn log<'py>(
        &self,
        py: Python<'py>,
        revs: Vec<String>,
        limit: usize,
        filter: LogFilter,
    ) -> PyResult<Vec<Bound<'py, PyDict>>> {
        let versions: Vec<Version> = free(py, || {
            let starts = revs.iter().map(|r| self.id(r)).collect::<Outcome<Vec<_>>>()?;
            let (record, noted) = (mdl_repo::pruned(&self.inner)?, mdl_repo::shown_notes(&self.inner)?);
            let filter = filter.read()?;
            let (mut filtering, mut out) = (filter.begin(&self.inner)?, Vec::new());
            for step in mdl_repo::history(&self.inner, &starts)? {
                if out.len() >= limit {
                    break;
                }
                let mdl_repo::Step { id, commit } = step?;
                let step = mdl_repo::Step { commit: noted.annotated(&id, commit), id };
                if filtering.passes(&step)? {
                    out.push(Version::read(&self.inner, step.id, step.commit, &record)?);
                }
            }
            Ok(out)
        })?;
        versions.iter().map(|version| show::commit(py, version)).collect()
    }

    /// A version's files as it gives them today: path, length in bytes, whether it has tensors.
    fn files(&self, py: Python<'_>, rev: &str) -> PyResult<Vec<(String, u64, bool)>> {
        free(py, || {
            let files = self.tree(rev)?;
            let has = |e: &Entry| self.manifest(e).map(|m| m.is_some_and(|m| !m.tensors.is_empty()));
            files.iter().map(|(path, e)| Ok((path.clone(), e.size, has(e)?))).collect()
        })
    }

    /// The tensors of a file.
    fn tensors(&self, py: Python<'_>, rev: &str, path: &str) -> PyResult<Vec<Listed>> {
        free(py, || {
            let Some(manifest) = self.manifest(&self.entry(rev, path)?)? else {
                return Ok(Vec::new());
            };
            let stored = manifest.tensors.iter();
            let mut out: Vec<Listed> =
                stored.map(|t| (t.name.clone(), t.dtype.name(), t.shape.clone(), None)).collect();
            for v in &manifest.views {
                let Some(owner) = manifest.tensors.get(v.tensor as usize) else {
                    continue;
                };
                let place = (owner.name.clone(), v.offset, v.strides.clone());
                out.push((v.name.clone(), v.dtype.name(), v.shape.clone(), Some(place)));
            }
            Ok(out)
        })
    }

    /// Bytes of a file.
    fn read<'py>(&self, py: Python<'py>, rev: &str, path: &str, start: u64, len: u64) -> PyResult<Bound<'py, PyBytes>> {
        let bytes = free(py, || {
            let entry = self.entry(rev, path)?;
            self.inner.odb().prefetch_range(&entry, start, len)?;
            on(Priority::Waiting, || self.inner.odb().read_range(&entry, start, len))
        })?;
        Ok(PyBytes::new(py, &bytes))
    }

    /// Fills memory with stored tensors, verified.
    fn fill(&self, py: Python<'_>, rev: &str, wanted: Vec<Wanted>) -> PyResult<()> {
        let mut jobs: Vec<(String, String, Lent)> =
            wanted.into_iter().map(|(path, name, at, len, owner)| (path, name, Lent::new(at, len, owner))).collect();
        free(py, || {
            let ids = self.stored_tensors(rev, jobs.iter().map(|(path, name, _)| (path.as_str(), name.as_str())))?;
            on(Priority::Waiting, || {
                let filled = jobs.par_iter_mut().zip(ids);
                filled.try_for_each(|((_, _, memory), id)| fill_one(&self.inner, &id, memory.bytes_mut()))
            })
        })
    }

    /// Fetches stored tensors, by file and name, as far as a partial repository lacks them: all at once.
    fn prefetch(&self, py: Python<'_>, rev: &str, wanted: Vec<(String, String)>) -> PyResult<()> {
        free(py, || self.stored_tensors(rev, wanted.iter().map(|(p, n)| (p.as_str(), n.as_str()))).map(drop))
    }

    /// Bytes `start..start + len` of a stored tensor; only the blocks that hold them are decoded.
    fn tensor_range<'py>(
        &self,
        py: Python<'py>,
        rev: &str,
        path: &str,
        name: &str,
        range: (u64, u64),
    ) -> PyResult<Bound<'py, PyBytes>> {
        let (start, len) = range;
        let bytes = free(py, || {
            let id = self.stored_tensor(rev, path, name)?;
            on(Priority::Waiting, || self.inner.odb().tensor(&id)?.range(start, len))
        })?;
        Ok(PyBytes::new(py, &bytes))
    }

    /// What differs from one version to another, file by file.
    fn diff<'py>(&self, py: Python<'py>, a: &str, b: &str) -> PyResult<Vec<Bound<'py, PyDict>>> {
        let found = free(py, || {
            let (a, b) = (self.id(a)?, self.id(b)?);
            on(Priority::Waiting, || mdl_repo::diff(&self.inner, &a, &b, &Silent))
        })?;
        found.iter().map(|f| show::file_diff(py, f)).collect()
    }
}

fn fill_one(repo: &mdl_repo::Repo, id: &mdl_objects::Id, out: &mut [u8]) -> Outcome<()> {
    let reader = repo.odb().tensor(id)?;
    if reader.byte_len() != out.len() as u64 {
        return Err(RepoError::corrupt(format!("tensor {}", id.short()), "its length is not what its file says"));
    }
    let mut rest = out;
    reader.stream(|bytes| {
        let (now, later) = std::mem::take(&mut rest).split_at_mut(bytes.len());
        now.copy_from_slice(bytes);
        rest = later;
        Ok(())
    })
}
