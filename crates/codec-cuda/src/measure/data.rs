//! Benchmark data: tensors that look like a trained network's, and what they were some steps before.

use crate::{
    device::session::{Buffer, Session, View},
    error::Result,
};
use mdl_codec::Dtype;
use rayon::prelude::*;

/// Most numbers that are made; longer tensors repeat them.
const PATTERN: usize = 1 << 23;
/// Numbers of a piece of work.
const PIECE: usize = 1 << 14;

/// Splitmix64: number `i` of a seed's.
fn hash(seed: u64, i: u64) -> u64 {
    let mut z = (seed << 40 ^ i).wrapping_mul(0x9e37_79b9_7f4a_7c15);
    z = (z ^ z >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    z = (z ^ z >> 27).wrapping_mul(0x94d0_49bb_1331_11eb);
    z ^ z >> 31
}

/// Between 0 and 1, neither of them.
fn uniform(bits: u64) -> f64 {
    ((bits >> 40) as f64 + 0.5) / f64::from(1 << 24)
}

/// A number of a normal distribution (Box and Muller).
fn normal(seed: u64, i: u64) -> f64 {
    let radius = (-2.0 * uniform(hash(seed, 2 * i)).ln()).sqrt();
    radius * (std::f64::consts::TAU * uniform(hash(seed, 2 * i + 1))).cos()
}

/// How wide the numbers of a tensor are spread: from 0.01 to 0.06.
pub(super) fn scale(tensor: u64) -> f64 {
    0.01 * 6f64.powf(uniform(hash(0x5ca1e, tensor)))
}

/// Numbers of variance 1: nine of ten from one normal distribution, the tenth from one twice as wide.
fn shape(seed: u64, i: u64) -> f64 {
    let wide = hash(!seed, i).is_multiple_of(10);
    normal(seed, i) * if wide { 2.0 } else { 1.0 } / 1.3f64.sqrt()
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
            match size {
                4 => element.copy_from_slice(&x.to_le_bytes()),
                _ => element.copy_from_slice(&to_bf16(x).to_le_bytes()),
            }
        }
    });
    out
}

/// The nearest bf16 of a finite number, the even one of two.
fn to_bf16(x: f32) -> u16 {
    let bits = x.to_bits();
    (bits.wrapping_add(0x7FFF + (bits >> 16 & 1)) >> 16) as u16
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
