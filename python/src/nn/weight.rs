//! A weight, or an optimizer's moment of one, in encoded form. Torch's tensors come as addresses.

use crate::{
    buffer::Lent,
    errors::{Outcome, free},
    nn::team::OpenMp,
    pools::{Priority, on},
};
use mdl_codec::{
    CodecError, Coding, CompressedTensor, CpuEngine, Dtype, Scheme, alone, on_team,
    quant::moments::{Bits, Moment},
    scheme_of,
};
use mdl_objects::Id;
use mdl_repo::RepoError;
use pyo3::prelude::*;
use std::{
    collections::BTreeMap,
    sync::{Arc, OnceLock, PoisonError, RwLock},
};

/// Fewer elements are not shared out: they are decoded in less than a tenth of a millisecond.
const FEW: usize = 1 << 17;

/// What a weight is at some time.
#[derive(Clone, Debug)]
pub struct Contents {
    pub tensor: CompressedTensor,
    /// The id under which repositories have it, once somebody hashed it.
    pub id: Arc<OnceLock<Id>>,
}

/// A tensor in encoded form in the host's memory.
#[pyclass(frozen, module = "mdl._native")]
#[derive(Debug)]
pub struct CompressedWeight {
    engine: CpuEngine,
    inner: Arc<RwLock<Contents>>,
}

/// Turns the codec's errors into the package's.
pub fn failed(error: CodecError) -> RepoError {
    match error {
        CodecError::BadInput(why) => RepoError::usage(format!("a compressed weight: {why}"), ""),
        other => RepoError::corrupt("a compressed weight", other.to_string()),
    }
}

fn dtype_named(name: &str) -> Outcome<Dtype> {
    let found = Dtype::ALL.into_iter().find(|d| d.name() == name);
    found.ok_or_else(|| RepoError::usage(format!("no dtype {name:?}"), ""))
}

/// `lossless`; `lossy` with mantissa bits and block; `first`, `second` or `momentum` with 4 or 8 bits.
fn coding_named(name: &str, bits: u32, block: usize) -> Outcome<Coding> {
    let moment = |kind| match bits {
        4 => Ok(Coding::Moment { kind, bits: Bits::Four }),
        8 => Ok(Coding::Moment { kind, bits: Bits::Eight }),
        _ => Err(RepoError::usage(format!("moments of {bits} bits"), "4 or 8")),
    };
    match name {
        "lossless" => Ok(Coding::Lossless),
        "lossy" => Ok(Coding::Lossy { keep: bits, block }),
        "first" => moment(Moment::First),
        "second" => moment(Moment::Second),
        "momentum" => moment(Moment::Momentum),
        _ => Err(RepoError::usage(format!("no coding {name:?}"), "")),
    }
}

impl CompressedWeight {
    pub fn from_tensor(tensor: CompressedTensor) -> CompressedWeight {
        Self::from_contents(Contents { tensor, id: Arc::default() })
    }

    pub fn from_contents(contents: Contents) -> CompressedWeight {
        CompressedWeight { engine: CpuEngine::new().fine(), inner: Arc::new(RwLock::new(contents)) }
    }

    /// What it is now: later changes do not reach it.
    pub fn snapshot(&self) -> Contents {
        self.inner.read().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Codes `elements`: few, or all where the caller has one thread, on the caller's; else on those that torch
    /// computes with, or a pool's.
    fn code(threads: usize, elements: usize, work: impl FnOnce() -> mdl_codec::Result<()> + Send) -> Outcome<()> {
        if threads == 1 || elements < FEW {
            return alone(work).map_err(failed);
        }
        if let Some(team) = OpenMp::team(threads) {
            return on_team(Arc::new(team), work).map_err(failed);
        }
        on(Priority::Waiting, || work().map_err(failed))
    }

    fn read<T>(&self, look: impl FnOnce(&CompressedTensor) -> T) -> T {
        look(&self.inner.read().unwrap_or_else(PoisonError::into_inner).tensor)
    }
}

#[pymethods]
impl CompressedWeight {
    /// Zeros of this dtype and shape; how they are encoded.
    #[new]
    fn new(py: Python<'_>, dtype: &str, shape: Vec<usize>, coding: &str, bits: u32, block: usize) -> PyResult<Self> {
        free(py, || {
            let (dtype, coding) = (dtype_named(dtype)?, coding_named(coding, bits, block)?);
            on(Priority::Waiting, || {
                CompressedTensor::zeros(&CpuEngine::new().fine(), dtype, &shape, coding)
                    .map(Self::from_tensor)
                    .map_err(failed)
            })
        })
    }

    /// Replaces the elements by those at an address, contiguous in C order. `threads`: how many the caller computes
    /// with itself, here as in the methods below.
    fn encode(&self, py: Python<'_>, address: usize, nbytes: usize, owner: Py<PyAny>, threads: usize) -> PyResult<()> {
        let lent = Lent::new(address, nbytes, owner);
        free(py, || {
            // The lock is the caller's: a thread of the pool that waits for one could hold up its holder's work.
            let mut held = self.inner.write().unwrap_or_else(PoisonError::into_inner);
            let Contents { tensor, id } = &mut *held;
            // A snapshot may still be told the id of what was.
            *id = Arc::default();
            let elements = nbytes / tensor.dtype().size();
            Self::code(threads, elements, || tensor.encode(&self.engine, lent.bytes()))
        })
    }

    /// Decodes all elements to an address.
    fn decode_into(
        &self,
        py: Python<'_>,
        address: usize,
        nbytes: usize,
        owner: Py<PyAny>,
        threads: usize,
    ) -> PyResult<()> {
        let mut lent = Lent::new(address, nbytes, owner);
        free(py, || {
            self.read(|inner| {
                let elements = nbytes / inner.dtype().size();
                Self::code(threads, elements, || inner.decode(&self.engine, lent.bytes_mut()))
            })
        })
    }

    /// Decodes elements from `start` on, as many as fit, to an address.
    fn decode_range(
        &self,
        py: Python<'_>,
        start: usize,
        address: usize,
        nbytes: usize,
        owner: Py<PyAny>,
        threads: usize,
    ) -> PyResult<()> {
        let mut lent = Lent::new(address, nbytes, owner);
        free(py, || {
            self.read(|inner| {
                let elements = nbytes / inner.dtype().size();
                let range = start..start.saturating_add(elements);
                Self::code(threads, elements, || inner.decode_range(&self.engine, range, lent.bytes_mut()))
            })
        })
    }

    /// Another one with the same elements; what neither changes they share.
    fn copy(&self) -> CompressedWeight {
        CompressedWeight::from_contents(self.snapshot())
    }

    /// Encoded bytes.
    #[getter]
    fn nbytes(&self) -> usize {
        self.read(CompressedTensor::encoded_len)
    }

    /// Element type.
    #[getter]
    fn dtype(&self) -> &'static str {
        self.read(|inner| inner.dtype().name())
    }

    /// Dimensions.
    #[getter]
    fn shape(&self) -> Vec<usize> {
        self.read(|inner| inner.shape().to_vec())
    }

    /// Segments by the name of their scheme; NeuZip's lossy form is `neuzip`.
    #[getter]
    fn schemes(&self) -> BTreeMap<&'static str, usize> {
        let mut found = BTreeMap::new();
        let Some(segments) = self.read(CompressedTensor::segments) else {
            return BTreeMap::from([("neuzip", 1)]);
        };
        for segment in segments {
            *found.entry(scheme_of(&segment).map_or("damaged", Scheme::name)).or_default() += 1;
        }
        found
    }
}
