//! Quantises weights in device memory straight to their reconstruction there.

mod table;
#[cfg(test)]
mod tests;

use crate::{
    DeviceError, Kernel, Result, Session, View,
    quantiser::{Numbers, kind},
};
use mdl_codec::{
    Dtype,
    quant::{Codebook, Cuts},
};
use table::table;

const PLAIN: Kernel = Kernel::new("restore", "restore_plain");
const SENSITIVE: Kernel = Kernel::new("restore", "restore_sensitive");
const THREADS: u32 = 512;
/// Bytes of weights that a block's threads read at a time.
const TILE: usize = 16 * THREADS as usize;
/// In a job's flags.
const NON_FINITE: u32 = 1;
const NO_BIN: u32 = 2;

/// A tensor to be reconstructed.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Job<'a> {
    pub weights: Numbers<'a>,
    pub gradient: Option<Numbers<'a>>,
    pub cuts: &'a Cuts,
    pub codebook: &'a Codebook,
    /// As long as the weights; may be the same memory.
    pub out: View<'a>,
}

/// `mdl_codec::quant::restore`: writes what the weights become to `out`. False: there are NaNs or infinities (as f32)
/// and the tensor must stay lossless; what was written is of no use.
///
/// # Errors
/// Where the processor's refuses, too: unlike lengths, a dtype that is not quantised, a bin that is missing.
pub(crate) fn run(
    session: &Session,
    weights: Numbers<'_>,
    gradient: Option<Numbers<'_>>,
    cuts: &Cuts,
    codebook: &Codebook,
    out: View<'_>,
) -> Result<bool> {
    let job = Job { weights, gradient, cuts, codebook, out };
    Ok(run_all(session, &[job])?.first().copied().unwrap_or(true))
}

/// As [`run`], many tensors at once. An error is one for all of them.
pub(crate) fn run_all(session: &Session, jobs: &[Job<'_>]) -> Result<Vec<bool>> {
    let (tables, places) = tables(jobs)?;
    let tables = session.upload(&tables)?;
    let flags = session.zeroed(4 * jobs.len())?;
    let total: usize = jobs.iter().map(|j| j.out.len()).sum();
    let part = (total / 1024).clamp(16 * TILE, 64 * TILE).next_multiple_of(TILE);
    for (kernel, with) in [(PLAIN, false), (SENSITIVE, true)] {
        let mut blocks: Vec<[u64; 8]> = Vec::new();
        for (i, (job, place)) in jobs.iter().zip(&places).enumerate().filter(|(_, (j, _))| j.gradient.is_some() == with)
        {
            let words = [tables.address() + *place as u64, flags.address() + 4 * i as u64];
            push_blocks(&mut blocks, job, part, words)?;
        }
        let list = session.upload_u64(blocks.as_flattened())?;
        session.launch(kernel, (blocks.len() as u32, 1), THREADS, &[list.arg()])?;
    }
    let held = |flags: u32| match flags {
        f if f & NON_FINITE != 0 => Ok(false),
        f if f & NO_BIN != 0 => Err(DeviceError::Unsupported("an empty codebook where a number needs a bin")),
        _ => Ok(true),
    };
    session.download_u32(flags.view())?.into_iter().map(held).collect()
}

fn failed(why: &str) -> DeviceError {
    DeviceError::Failed(why.to_owned())
}

/// The words of `RestoreJob` for every block of a tensor.
fn push_blocks(out: &mut Vec<[u64; 8]>, job: &Job<'_>, part: usize, [table, flags]: [u64; 2]) -> Result<()> {
    let size = job.weights.0.size();
    let len = job.weights.1.len() / size;
    if job.out.len() != job.weights.1.len() {
        return Err(failed("the reconstruction is as long as the tensor"));
    }
    if job.gradient.is_some_and(|(dtype, view)| view.len() / dtype.size() != len) {
        return Err(failed("a gradient for every weight is needed"));
    }
    let kinds = kind(job.weights)? | job.gradient.map_or(Ok(0), kind)? << 32;
    let floats =
        u64::from(job.cuts.protect_sensitivity.to_bits()) | u64::from(job.cuts.prune_sensitivity.to_bits()) << 32;
    let step = part / size;
    out.extend((0..len).step_by(step).map(|at| {
        let address = |(dtype, view): Numbers<'_>| view.address() + (at * dtype.size()) as u64;
        [
            address(job.weights),
            job.gradient.map_or(0, address),
            job.out.address() + (at * size) as u64,
            table,
            flags,
            kinds,
            step.min(len - at) as u64,
            floats,
        ]
    }));
    Ok(())
}

/// The tables of all jobs, one after the other, and where each job's begins. Tensors of one role share one.
fn tables(jobs: &[Job<'_>]) -> Result<(Vec<u8>, Vec<usize>)> {
    let mut made: Vec<(Dtype, &Cuts, &Codebook)> = Vec::new();
    let (mut all, mut places) = (Vec::new(), Vec::with_capacity(jobs.len()));
    for job in jobs {
        kind(job.weights)?;
        let wanted = (job.weights.0, job.cuts, job.codebook);
        let at = match made.iter().position(|m| *m == wanted) {
            Some(at) => at,
            None => {
                made.push(wanted);
                all.extend(
                    table(job.weights.0, job.cuts, job.codebook)
                        .ok_or_else(|| failed("a codebook of too many runs"))?,
                );
                made.len() - 1
            }
        };
        places.push(at * table::BYTES);
    }
    Ok((all, places))
}
