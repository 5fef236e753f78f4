//! Weights out of a repository, as they are stored there.

use crate::{
    errors::free,
    nn::{CompressedWeight, Contents, weight::failed},
    pools::{Priority, on},
    repo::Repo,
};
use mdl_codec::CompressedTensor;
use mdl_repo::RepoError;
use pyo3::prelude::*;
use rayon::prelude::*;
use std::sync::Arc;

#[pymethods]
impl Repo {
    /// A stored tensor in encoded form, and how many of its segments were taken as they are stored: those that stand on
    /// no others. The rest is decoded and encoded anew, a segment at a time.
    fn compressed(&self, py: Python<'_>, rev: &str, path: &str, name: &str) -> PyResult<(CompressedWeight, usize)> {
        free(py, || {
            let id = self.stored_tensor(rev, path, name)?;
            on(Priority::Waiting, || {
                let reader = self.inner.odb().tensor(&id)?;
                let header = reader.header();
                let too_large =
                    |_| RepoError::corrupt(format!("tensor {}", id.short()), "a shape of too many elements");
                let shape = header.shape.iter().map(|&d| usize::try_from(d));
                let shape: Vec<usize> = shape.collect::<Result<_, _>>().map_err(too_large)?;
                let taken: Vec<(Vec<u8>, bool)> =
                    (0..reader.segments()).into_par_iter().map(|i| reader.standalone(i)).collect::<Result<_, _>>()?;
                let own = taken.iter().filter(|t| t.1).count();
                let segments = taken.into_iter().map(|t| t.0).collect();
                let tensor = CompressedTensor::from_segments(header.dtype, &shape, segments).map_err(failed)?;
                Ok((CompressedWeight::from_contents(Contents { tensor, id: Arc::new(id.into()) }), own))
            })
        })
    }
}
