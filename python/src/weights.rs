//! Weights that stay compressed in a GPU's memory. Torch's tensors and streams come as addresses and handles.

use crate::{
    buffer::{lent, queue},
    errors::{Outcome, free},
};
use mdl_codec::{CodecError, Dtype};
use mdl_codec_cuda::{CudaEngine, Part, Product, Weights};
use mdl_repo::{RepoError, storage::without_forks};
use pyo3::{prelude::*, pybacked::PyBackedBytes, types::PyBytes};
use std::{
    collections::HashMap,
    sync::{Arc, Mutex, PoisonError, RwLock},
};

/// Engines by process and number of the GPU.
type Engines = HashMap<(u32, u32), Arc<CudaEngine>>;

/// The engine of each GPU that has weights.
static ENGINES: Mutex<Option<Engines>> = Mutex::new(None);

fn engine(ordinal: u32) -> Outcome<Arc<CudaEngine>> {
    without_forks(|| {
        let mut engines = ENGINES.lock().unwrap_or_else(PoisonError::into_inner);
        let engines = engines.get_or_insert_default();
        let key = (std::process::id(), ordinal);
        if let Some(found) = engines.get(&key) {
            return Ok(found.clone());
        }
        let made = mdl_codec_cuda::gpu(ordinal);
        let made = made.map_err(|why| RepoError::user(format!("no weights on cuda:{ordinal}: {why}"), ""))?;
        Ok(engines.entry(key).or_insert(Arc::new(made)).clone())
    })
}

fn failed(error: CodecError) -> RepoError {
    match error {
        CodecError::BadInput(why) => RepoError::usage(format!("compressed weights want {why}"), ""),
        CodecError::Device(why) => RepoError::user(format!("compressed weights: {why}"), ""),
        other => RepoError::corrupt("compressed weights", other),
    }
}

fn dtype_named(name: &str) -> Outcome<Dtype> {
    let found = Dtype::ALL.into_iter().find(|d| d.name() == name);
    found.ok_or_else(|| RepoError::usage(format!("no dtype {name:?}"), ""))
}

/// A tensor in a GPU's memory, compressed.
#[pyclass(frozen, module = "mdl._native")]
#[derive(Debug)]
pub struct DeviceWeights {
    engine: Arc<CudaEngine>,
    ordinal: u32,
    inner: RwLock<Weights>,
}

impl DeviceWeights {
    fn made(
        ordinal: u32,
        dtype: &str,
        make: impl FnOnce(&CudaEngine, Dtype) -> mdl_codec::Result<Weights>,
    ) -> Outcome<DeviceWeights> {
        let engine = engine(ordinal)?;
        let inner = make(&engine, dtype_named(dtype)?).map_err(failed)?.into();
        Ok(DeviceWeights { engine, ordinal, inner })
    }

    fn read<T: Send>(&self, py: Python<'_>, work: impl Send + FnOnce(&Weights) -> mdl_codec::Result<T>) -> PyResult<T> {
        free(py, || work(&self.inner.read().unwrap_or_else(PoisonError::into_inner)).map_err(failed))
    }
}

#[pymethods]
impl DeviceWeights {
    /// Encoded parts of `step` elements each, of `n` in all: (whether it is in NeuZip's lossy form, bytes).
    #[staticmethod]
    fn place(
        py: Python<'_>,
        ordinal: u32,
        dtype: &str,
        n: usize,
        step: usize,
        parts: Vec<(bool, PyBackedBytes)>,
    ) -> PyResult<DeviceWeights> {
        free(py, || {
            let parts =
                parts.iter().map(|(lossy, bytes)| if *lossy { Part::Lossy(bytes) } else { Part::Segment(bytes) });
            let parts: Vec<Part<'_>> = parts.collect();
            Self::made(ordinal, dtype, |engine, dtype| engine.weights(dtype, n, step, &parts))
        })
    }

    /// Compresses `n` elements in the GPU's memory; whatever wrote them is done.
    #[staticmethod]
    fn compress(py: Python<'_>, ordinal: u32, dtype: &str, n: usize, address: u64) -> PyResult<DeviceWeights> {
        free(py, || {
            Self::made(ordinal, dtype, |engine, dtype| {
                engine.compress(dtype, lent(ordinal, address, n.saturating_mul(dtype.size())))
            })
        })
    }

    /// Bytes of all elements, decoded; bytes of the GPU's memory that they take.
    fn sizes(&self, py: Python<'_>) -> PyResult<(usize, usize)> {
        self.read(py, |w| Ok((w.len(), w.resident())))
    }

    /// Decodes all elements to an address, on a stream.
    fn decode(&self, py: Python<'_>, stream: u64, address: u64) -> PyResult<()> {
        self.read(py, |w| w.decode(queue(stream), lent(self.ordinal, address, w.len())))
    }

    /// Bytes of memory that a product with so many vectors needs.
    fn scratch(&self, py: Python<'_>, cols: usize, batch: usize) -> PyResult<usize> {
        self.read(py, |w| w.scratch(cols, batch))
    }

    /// Multiplies a matrix of `cols` columns with `batch` vectors, on a stream. Addresses: of the vectors, of the
    /// products, of memory for sums.
    fn multiply(
        &self,
        py: Python<'_>,
        stream: u64,
        cols: usize,
        batch: usize,
        addresses: (u64, u64, u64),
    ) -> PyResult<()> {
        self.read(py, |w| {
            let (size, needed) = (w.dtype().size(), w.scratch(cols, batch)?);
            let rows = w.len() / size / cols;
            let (x, y, sums) = addresses;
            let x = lent(self.ordinal, x, batch * cols * size);
            let y = lent(self.ordinal, y, batch * rows * size);
            w.multiply(queue(stream), &Product { cols, batch, x, y, scratch: lent(self.ordinal, sums, needed) })
        })
    }

    /// Replaces all elements by those at an address; whatever wrote them, and reads these weights, is done.
    fn encode(&self, py: Python<'_>, address: u64) -> PyResult<()> {
        free(py, || {
            let mut inner = self.inner.write().unwrap_or_else(PoisonError::into_inner);
            let content = lent(self.ordinal, address, inner.len());
            inner.encode(&self.engine, content).map_err(failed)
        })
    }

    /// The segments as a repository stores them, where they are kept.
    fn segments<'py>(&self, py: Python<'py>) -> PyResult<Option<Vec<Bound<'py, PyBytes>>>> {
        let found = self.read(py, |w| w.segments(&self.engine))?;
        Ok(found.map(|list| list.iter().map(|bytes| PyBytes::new(py, bytes)).collect()))
    }
}
