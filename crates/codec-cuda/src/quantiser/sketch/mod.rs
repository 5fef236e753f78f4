//! Quantile sketches of tensors in device memory: counts of keys, of sensitivities, of what is left for the bins.
//!
//! Where neither magnitude nor sensitivity fits a block's window the counters in memory are touched directly: right in
//! any case, slow only for numbers that are spread over more than 47 octaves (f16: over 6).

#[cfg(test)]
pub(crate) mod tests;

use crate::{DeviceError, Kernel, Result, Session, View, copy::gather};
use mdl_codec::{
    Dtype,
    engine_internals::class_borders,
    quant::{Cuts, Grid, Sketch},
};

const KEYS: Kernel = Kernel::new("sketch", "sketch_keys");
const SURVEY: Kernel = Kernel::new("sketch", "sketch_survey");
const REST: Kernel = Kernel::new("sketch", "sketch_rest");
const PACK: Kernel = Kernel::new("sketch", "sketch_pack");
const THREADS: u32 = 512;
/// Keys there are, and counters of a row.
const ROW: usize = 1 << 16;
/// Rows of counters at a time: 16 MiB, and twice that of pairs.
const ROWS: usize = 64;
/// Elements that a row counts at most: counters are of 32 bits.
const MOST: usize = 1 << 31;
/// Bytes of weights that a block's threads read at a time.
const TILE: usize = 16 * THREADS as usize;

/// Elements on the device.
pub(crate) type Numbers<'a> = (Dtype, View<'a>);

/// `Sketch::from_values` each of these.
pub(crate) fn from_values(session: &Session, values: &[Numbers<'_>]) -> Result<Vec<Sketch>> {
    let jobs = values.iter().map(|&weights| job(weights, None)).collect::<Result<Vec<_>>>()?;
    Ok(count(session, KEYS, &jobs)?.into_iter().map(|[keys, _]| keys).collect())
}

/// Sketches of weights and of sensitivities |g w| (for `Survey::add_counted`), in one read of both.
pub(crate) fn survey(session: &Session, pairs: &[(Numbers<'_>, Numbers<'_>)]) -> Result<Vec<[Sketch; 2]>> {
    let jobs = pairs.iter().map(|&(weights, gradient)| job(weights, Some(gradient))).collect::<Result<Vec<_>>>()?;
    count(session, SURVEY, &jobs)
}

/// `mdl_codec::quant::rest` with a gradient: sketches of the weights that are neither pruned nor protected. (Without a
/// gradient `rest_of` makes it from the sketch.)
pub(crate) fn rest(session: &Session, jobs: &[(Numbers<'_>, Numbers<'_>, Cuts)]) -> Result<Vec<Sketch>> {
    let jobs = jobs
        .iter()
        .map(|&(weights, gradient, cuts)| {
            let mut job = job(weights, Some(gradient))?;
            let [prune, protect] = class_borders(&cuts, job.grid);
            job.cuts = [
                u64::from(protect) | u64::from(prune) << 32,
                u64::from(cuts.protect_sensitivity.to_bits()) | u64::from(cuts.prune_sensitivity.to_bits()) << 32,
            ];
            Ok(job)
        })
        .collect::<Result<Vec<_>>>()?;
    Ok(count(session, REST, &jobs)?.into_iter().map(|[keys, _]| keys).collect())
}

/// Number of an element type for the kernels of `numbers.cuh`; fails for one that is not quantised.
pub(crate) fn kind((dtype, view): Numbers<'_>) -> Result<u64> {
    let kind = match dtype {
        Dtype::F64 => 0,
        Dtype::F32 => 1,
        Dtype::F16 => 2,
        Dtype::BF16 => 3,
        _ => return Err(DeviceError::Failed("only f64, f32, f16 and bf16 can be quantised".to_owned())),
    };
    match view.len().is_multiple_of(dtype.size()) {
        true => Ok(kind),
        false => Err(DeviceError::Failed("no whole number of elements".to_owned())),
    }
}

/// A tensor to be counted.
struct Job<'a> {
    grid: Grid,
    weights: Numbers<'a>,
    gradient: Option<Numbers<'a>>,
    kinds: u64,
    len: usize,
    cuts: [u64; 2],
}

fn job<'a>(weights: Numbers<'a>, gradient: Option<Numbers<'a>>) -> Result<Job<'a>> {
    let len = weights.1.len() / weights.0.size();
    let gradients = gradient.map_or(Ok(0), kind)?;
    if gradient.is_some_and(|(dtype, view)| view.len() / dtype.size() != len) {
        return Err(DeviceError::Failed("a gradient for every weight is needed".to_owned()));
    }
    Ok(Job {
        grid: Grid::from_dtype(weights.0)?,
        weights,
        gradient,
        kinds: kind(weights)? | gradients << 32,
        len,
        cuts: [0; 2],
    })
}

/// What one row, or a pair of them, counts: elements of a job.
struct Slice {
    job: usize,
    start: usize,
    len: usize,
}

/// The sketches of keys and of sensitivities of every job.
fn count(session: &Session, kernel: Kernel, jobs: &[Job<'_>]) -> Result<Vec<[Sketch; 2]>> {
    let rows = if kernel == SURVEY { 2 } else { 1 };
    let slices: Vec<Slice> = jobs
        .iter()
        .enumerate()
        .flat_map(|(job, j)| {
            let len = j.len;
            (0..len).step_by(MOST).map(move |start| Slice { job, start, len: MOST.min(len - start) })
        })
        .collect();
    let mut out = vec![<[Sketch; 2]>::default(); jobs.len()];
    for slices in slices.chunks(ROWS / rows) {
        let counters = session.zeroed(4 * ROW * rows * slices.len())?;
        let row = |i: usize| counters.address() + (4 * ROW * i) as u64;
        let list = blocks(jobs, slices, |i| [row(rows * i), if rows == 2 { row(rows * i + 1) } else { 0 }]);
        let words = session.upload_u64(list.as_flattened())?;
        session.launch(kernel, (list.len() as u32, 1), THREADS, &[words.arg()])?;
        let pairs = packed(session, counters.view(), rows * slices.len())?;
        for (i, counts) in pairs.into_iter().enumerate() {
            let (job, second) = (slices[i / rows].job, i % rows);
            let grid = if second == 1 { Grid::F32 } else { jobs[job].grid };
            out[job][second].merge(&Sketch::of_pairs(grid, counts));
        }
    }
    Ok(out)
}

/// The words of `SketchJob` for every block: enough blocks to fill a device, parts long enough to be worth a block's
/// counters.
fn blocks(jobs: &[Job<'_>], slices: &[Slice], rows: impl Fn(usize) -> [u64; 2]) -> Vec<[u64; 8]> {
    let size = |s: &Slice| jobs[s.job].weights.0.size();
    let total: usize = slices.iter().map(|s| s.len * size(s)).sum();
    let part = (total / 1024).clamp(8 * TILE, 64 * TILE).next_multiple_of(TILE);
    let mut out = Vec::new();
    for (i, slice) in slices.iter().enumerate() {
        let (job, [keys, sensitivities]) = (&jobs[slice.job], rows(i));
        let step = part / size(slice);
        for at in (0..slice.len).step_by(step) {
            let address = |(dtype, view): Numbers<'_>| view.address() + ((slice.start + at) * dtype.size()) as u64;
            out.push([
                address(job.weights),
                job.gradient.map_or(0, address),
                keys,
                sensitivities,
                job.kinds,
                step.min(slice.len - at) as u64,
                job.cuts[0],
                job.cuts[1],
            ]);
        }
    }
    out
}

/// (key, count) of the counters that are not 0, by row.
fn packed(session: &Session, counters: View<'_>, rows: usize) -> Result<Vec<Vec<(u16, u64)>>> {
    let pairs = session.buffer(8 * ROW * rows)?;
    let lengths = session.buffer(4 * rows)?;
    session.launch(PACK, (rows as u32, 1), 1024, &[counters.arg(), pairs.arg(), lengths.arg()])?;
    let lengths = session.download_u32(lengths.view())?;
    let pieces: Vec<View<'_>> = lengths
        .iter()
        .enumerate()
        .map(|(i, &n)| pairs.view().part(8 * ROW * i..8 * ROW * i + 8 * n as usize))
        .collect();
    let pair = |b: &[u8; 8]| {
        let [key, n] = [0, 4].map(|i| u32::from_le_bytes([b[i], b[i + 1], b[i + 2], b[i + 3]]));
        (key as u16, u64::from(n))
    };
    let pieces = gather(session, &pieces)?;
    Ok(pieces.iter().map(|p| p.as_chunks::<8>().0.iter().map(pair).collect()).collect())
}
