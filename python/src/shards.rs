//! Sharded commits: each rank puts its files, one call joins them into one commit.

use crate::{
    errors::{Outcome, free},
    files::File,
    pools::{Priority, on},
    repo::{CommitFields, Repo, new_files},
    show,
};
use mdl_repo::{JoinRequest, ShardRequest, Silent};
use pyo3::{prelude::*, types::PyDict};

/// Name, ranks that have put, the commit.
type Session = (String, Vec<u32>, Option<String>);

#[pymethods]
impl Repo {
    /// Stores a rank's files in a session, or writes down those that `stage` stored.
    #[pyo3(signature = (session, rank, files, branch=None, parent=None))]
    fn put_shard<'py>(
        &self,
        py: Python<'py>,
        session: String,
        rank: u32,
        files: Vec<Py<File>>,
        branch: Option<String>,
        parent: Option<String>,
    ) -> PyResult<Bound<'py, PyDict>> {
        let files = new_files(&files)?;
        let done = free(py, || {
            let request = ShardRequest {
                session,
                rank,
                files,
                branch,
                parent: parent.map(|rev| self.id(&rev)).transpose()?,
                allow_empty: true,
                ..ShardRequest::default()
            };
            let done = on(Priority::Waiting, || mdl_repo::put_shard(&self.inner, &request, &Silent))?;
            self.inner.odb().release_index();
            Ok(done)
        })?;
        show::shard(py, &done)
    }

    /// Makes one version of what the ranks of a session have put, and of further files.
    fn join_shards<'py>(
        &self,
        py: Python<'py>,
        said: CommitFields,
        session: String,
        ranks: u32,
        files: Vec<Py<File>>,
    ) -> PyResult<Bound<'py, PyDict>> {
        let files = new_files(&files)?;
        let done = free(py, || {
            let request = JoinRequest { session, ranks, commit: self.wanted(&said, Some(files), None)? };
            on(Priority::Waiting, || mdl_repo::join_shards(&self.inner, &request, &Silent))
        })?;
        self.summary(py, &done)
    }

    /// The sessions there are: name, ranks that have put, the commit if it is finished.
    fn sessions(&self, py: Python<'_>) -> PyResult<Vec<Session>> {
        free(py, || -> Outcome<_> {
            let all = mdl_repo::sessions(&self.inner)?;
            Ok(all.into_iter().map(|s| (s.name, s.ranks, s.commit.map(|id| id.to_hex()))).collect())
        })
    }
}
