//! Benchmark data: tensors that look like a trained network's, and what they were some steps before.

use crate::{Buffer, Result, Session, View};
use mdl_codec::{
    Dtype,
    quant::{numbers::put_all, uniform},
};
use rayon::prelude::*;

/// Most numbers that are made; longer tensors repeat them.
const PATTERN: usize = 1 << 23;
/// Numbers of a piece of work.
const PIECE: usize = 1 << 14;

/// A number of a normal distribution (Box and Muller).
fn normal(seed: u64, i: u64) -> f64 {
    // The logarithm is of no zero.
    let radius = (-2.0 * (1.0 - uniform(seed, 2 * i)).ln()).sqrt();
    radius * (std::f64::consts::TAU * uniform(seed, 2 * i + 1)).cos()
}

/// How wide the numbers of a tensor are spread: from 0.01 to 0.06.
pub(super) fn scale(tensor: u64) -> f64 {
    0.01 * 6f64.powf(uniform(0x5ca1e, tensor))
}

/// Numbers of variance 1: nine of ten from one normal distribution, the tenth from one twice as wide.
fn shape(seed: u64, i: u64) -> f64 {
    normal(seed, i) * if uniform(!seed, i) < 0.1 { 2.0 } else { 1.0 } / 1.3f64.sqrt()
}

/// A tensor of `n` numbers (or a pattern that it repeats), `steps` steps into training: each moves every number by
/// about `step` times the tensor's spread.
pub(super) fn tensor(dtype: Dtype, n: usize, seed: u64, steps: u32, step: f64) -> Vec<u8> {
    let n = n.min(PATTERN);
    let scale = scale(seed);
    let size = dtype.size();
    let mut out = vec![0; n * size];
    out.par_chunks_mut(PIECE * size).enumerate().for_each(|(piece, out)| {
        for (j, element) in out.chunks_exact_mut(size).enumerate() {
            let i = (piece * PIECE + j) as u64;
            let moved: f64 = (1..=steps).map(|k| step * normal(seed ^ u64::from(k) << 20, i)).sum();
            let x = (scale * (shape(seed, i) + moved)) as f32;
            put_all(dtype, &[x], element);
        }
    });
    out
}

/// Fills a place with a pattern, again and again.
pub(super) fn fill(session: &Session, to: View<'_>, pattern: &[u8]) -> Result<()> {
    let mut there = pattern.len().min(to.len());
    session.write(to.part(0..there), &pattern[..there])?;
    while there < to.len() {
        let more = there.min(to.len() - there);
        session.copy(to.part(0..more), to.part(there..there + more))?;
        there += more;
    }
    session.wait()
}

/// A tensor of `bytes` bytes on the device.
pub(super) fn there(
    session: &Session,
    dtype: Dtype,
    bytes: usize,
    seed: u64,
    steps: u32,
    step: f64,
) -> Result<Buffer<'_>> {
    let buffer = session.buffer(bytes)?;
    fill(session, buffer.view(), &tensor(dtype, bytes / dtype.size(), seed, steps, step))?;
    Ok(buffer)
}
