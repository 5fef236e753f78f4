//! Lossless baselines: the engine itself, and zstd.

use crate::systems::{Coder, Kept, SystemPlan, Tensor};
use mdl_codec::{CodecError, Dtype, Result};

/// The engine codes everything.
#[derive(Debug)]
pub(super) struct Lossless;

impl Coder for Lossless {
    fn takes(&self, _: &Tensor<'_>) -> bool {
        false
    }

    fn encode(&self, _: &Tensor<'_>, _: &SystemPlan, _: Option<&Kept>) -> Result<Option<Vec<u8>>> {
        Ok(None)
    }

    fn decode(&self, _: &[u8], _: Dtype, _: &[usize], _: Option<&Kept>) -> Result<Kept> {
        Err(CodecError::Corrupt("lossless has no bodies of its own"))
    }
}

/// zstd over each tensor; the parent is not used.
#[derive(Debug)]
pub(super) struct Zstd {
    pub(super) level: i32,
}

impl Coder for Zstd {
    fn takes(&self, _: &Tensor<'_>) -> bool {
        true
    }

    fn encode(&self, t: &Tensor<'_>, _: &SystemPlan, _: Option<&Kept>) -> Result<Option<Vec<u8>>> {
        let bad = |_| CodecError::BadInput("zstd refused the tensor");
        zstd::bulk::compress(t.bytes, self.level).map(Some).map_err(bad)
    }

    fn decode(&self, body: &[u8], dtype: Dtype, shape: &[usize], _: Option<&Kept>) -> Result<Kept> {
        let n = shape.iter().product::<usize>() * dtype.size();
        let bytes = zstd::bulk::decompress(body, n).map_err(|_| CodecError::Corrupt("bad zstd frame"))?;
        Ok(Kept::new(dtype, shape, bytes))
    }
}
