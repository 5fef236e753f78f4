//! Deviation (quantisation error) of a reconstruction in device memory from its tensor.

#[cfg(test)]
mod tests;

use crate::{
    DeviceError, Kernel, Result, Session, View,
    quantiser::{Numbers, kind},
};
use mdl_codec::quant::Deviation;

const RUNS: Kernel = Kernel::new("deviation", "deviation_runs");
const THREADS: u32 = 512;
/// Elements of a block of threads: 16 runs.
pub(crate) const PART: usize = 1 << 16;

/// What `deviation_of_parts` makes `Deviation::between` of, bit for bit. The parts of a tensor's pieces are those of
/// the tensor, where all pieces but the last are whole parts.
pub(crate) fn parts(session: &Session, raw: Numbers<'_>, rec: View<'_>) -> Result<Vec<Deviation>> {
    Ok(parts_of_all(session, &[(raw, rec)])?.pop().unwrap_or_default())
}

/// As [`parts`], of many tensors at once.
pub(crate) fn parts_of_all(session: &Session, jobs: &[(Numbers<'_>, View<'_>)]) -> Result<Vec<Vec<Deviation>>> {
    let mut blocks: Vec<[u64; 4]> = Vec::new();
    let mut counts = Vec::with_capacity(jobs.len());
    for &((dtype, raw), rec) in jobs {
        if raw.len() != rec.len() {
            return Err(DeviceError::Failed("the reconstruction is as long as the tensor".to_owned()));
        }
        let (kind, size) = (kind((dtype, raw))?, dtype.size());
        let len = raw.len() / size;
        counts.push(len.div_ceil(PART));
        blocks.extend((0..len).step_by(PART).map(|at| {
            let skip = (at * size) as u64;
            [raw.address() + skip, rec.address() + skip, kind, PART.min(len - at) as u64]
        }));
    }
    let list = session.upload_u64(blocks.as_flattened())?;
    let out = session.buffer(24 * blocks.len())?;
    session.launch(RUNS, (blocks.len() as u32, 1), THREADS, &[list.arg(), out.arg()])?;
    let out = session.download(out.view())?;
    let mut parts = out.as_chunks::<24>().0.iter().map(|b| {
        let [max_abs, deviation, weight] = [0, 8, 16].map(|i| f64::from_le_bytes(std::array::from_fn(|k| b[i + k])));
        Deviation { max_abs, deviation, weight }
    });
    Ok(counts.into_iter().map(|n| parts.by_ref().take(n).collect()).collect())
}
