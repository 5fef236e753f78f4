//! Methods of a repository that check it, free what it does not need, and move its branch. Reports go as JSON.

use crate::{
    progress::watched,
    repo::{Repo, words},
};
use mdl_repo::{CompactOptions, Difference, GcOptions};
use pyo3::{exceptions::PyValueError, prelude::*};
use std::{path::PathBuf, time::Duration};

#[pymethods]
impl Repo {
    /// Frees what nothing reaches.
    #[pyo3(signature = (dry_run, prune_now, grace, show=None))]
    fn gc(
        &self,
        py: Python<'_>,
        dry_run: bool,
        prune_now: bool,
        grace: Option<f64>,
        show: Option<&Bound<'_, PyAny>>,
    ) -> PyResult<String> {
        let grace = grace.map(Duration::try_from_secs_f64).transpose();
        let grace = grace.map_err(|e| PyValueError::new_err(format!("grace: {e}")))?;
        let options = GcOptions { dry_run, prune_now, grace };
        watched(py, show, |progress| words(&mdl_repo::gc(&self.inner, &options, progress)?))
    }

    /// Makes delta chains short, and merges small packs.
    #[pyo3(signature = (dry_run, show=None))]
    fn compact(&self, py: Python<'_>, dry_run: bool, show: Option<&Bound<'_, PyAny>>) -> PyResult<String> {
        watched(py, show, |progress| words(&mdl_repo::compact(&self.inner, &CompactOptions { dry_run }, progress)?))
    }

    /// Where the bytes are.
    #[pyo3(signature = (show=None))]
    fn stats(&self, py: Python<'_>, show: Option<&Bound<'_, PyAny>>) -> PyResult<String> {
        watched(py, show, |progress| words(&mdl_repo::stats(&self.inner, progress)?))
    }

    /// Checks all that is stored.
    #[pyo3(signature = (quick, show=None))]
    fn fsck(&self, py: Python<'_>, quick: bool, show: Option<&Bound<'_, PyAny>>) -> PyResult<String> {
        watched(py, show, |progress| words(&mdl_repo::fsck(&self.inner, quick, progress)?))
    }

    /// Compares a file with that of a version: its path there, its bytes there, the length of the file if that differs,
    /// the first byte that differs.
    #[pyo3(signature = (file, rev, path, show=None))]
    fn verify(
        &self,
        py: Python<'_>,
        file: PathBuf,
        rev: &str,
        path: Option<&str>,
        show: Option<&Bound<'_, PyAny>>,
    ) -> PyResult<(String, u64, Option<u64>, Option<u64>)> {
        let found = watched(py, show, |progress| mdl_repo::verify(&self.inner, &file, &self.id(rev)?, path, progress))?;
        let (size, byte) = match found.difference {
            None => (None, None),
            Some(Difference::Size(n)) => (Some(n), None),
            Some(Difference::Byte(n)) => (None, Some(n)),
        };
        Ok((found.inner, found.size, size, byte))
    }

    /// Moves the present branch, and with `hard` the work tree: files written, kept, removed.
    #[pyo3(signature = (rev, hard, show=None))]
    fn reset(
        &self,
        py: Python<'_>,
        rev: &str,
        hard: bool,
        show: Option<&Bound<'_, PyAny>>,
    ) -> PyResult<(u64, u64, u64)> {
        let done = watched(py, show, |progress| mdl_repo::reset(&self.inner, &self.id(rev)?, hard, progress))?;
        Ok((done.written, done.kept, done.removed))
    }
}
