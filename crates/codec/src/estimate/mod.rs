//! Estimates which scheme is smallest, from a sample and with integers only.

mod cut;

use crate::{
    Dtype,
    entropy::{ByExponent, COST_BITS, Counts, entropy},
    schemes::{Cut, Numbers, PlanesPlan, Shape, delta, low, palette},
    simd::Simd,
};
use std::ops::Range;

/// Elements of a run that the sample takes whole.
const RUN: usize = 512;

/// Decides how to encode.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Choice {
    /// Try zstd.
    Zstd,
    /// Planes by this plan.
    Planes(PlanesPlan),
    /// Difference, every element coded.
    Delta,
    /// Difference, changes listed.
    Sparse,
    /// Table and indices, with or without the base.
    Palette,
}

/// Evenly spread runs of `RUN` elements of `size` bytes: at most 32Ki elements, at least a 16th of a small segment.
pub fn sample_ranges(bytes: usize, size: usize) -> Vec<Range<usize>> {
    let n = bytes / size;
    let wanted = (n / 16).clamp(4096, 32768);
    if n <= wanted + RUN {
        return std::iter::once(0..n * size).collect();
    }
    let runs = wanted / RUN;
    let stride = (n - RUN) / (runs - 1);
    (0..runs).map(|r| r * stride * size..(r * stride + RUN) * size).collect()
}

fn sample(data: &[u8], ranges: &[Range<usize>]) -> Vec<u8> {
    let mut part = Vec::with_capacity(ranges.iter().map(|r| r.len()).sum());
    ranges.iter().for_each(|r| part.extend_from_slice(&data[r.clone()]));
    part
}

/// Chooses for elements of `dtype`. Also says the estimate, in 1/1024 bits.
pub(crate) fn choose(simd: Simd, dtype: Dtype, raw: &[u8], base: Option<&[u8]>) -> (Choice, u64) {
    let size = Numbers::from_dtype(dtype).size;
    let ranges = sample_ranges(raw.len(), size);
    let pieces = || sample(raw, &zstd_ranges(raw.len(), size));
    let base = base.map(|b| sample(b, &ranges));
    choose_with(simd, dtype, raw.len(), &sample(raw, &ranges), base.as_deref(), pieces)
}

/// Chooses for a segment of `len` bytes of which only a sample is at hand: what lies in [`sample_ranges`], of its base
/// too, and, where it is asked for, in [`zstd_ranges`]. The smallest estimate wins, the first of equals in the order
/// delta or sparse, planes, zstd.
pub fn choose_by(
    dtype: Dtype,
    len: usize,
    part: &[u8],
    base: Option<&[u8]>,
    pieces: impl FnOnce() -> Vec<u8>,
) -> (Choice, u64) {
    choose_with(Simd::detect(), dtype, len, part, base, pieces)
}

fn choose_with(
    simd: Simd,
    dtype: Dtype,
    len: usize,
    part: &[u8],
    base: Option<&[u8]>,
    pieces: impl FnOnce() -> Vec<u8>,
) -> (Choice, u64) {
    let size = Numbers::from_dtype(dtype).size;
    // Costs of the sample are scaled to the segment in 1/1024 bits; tables are not scaled, they are paid once.
    let scale = |cost: u64| (u128::from(cost) * len as u128 / part.len().max(1) as u128) as u64;
    let (plan, cost, tables) = match Shape::from_dtype(dtype) {
        Some(shape) => float_plan(shape, part),
        None => (PlanesPlan::BYTES, 0, 0),
    };
    let stored = (len as u64 * 8) << COST_BITS;
    let mut best = (Choice::Planes(plan), scale(cost) + tables);
    // Floats whose heads do not shrink are not really floats: their bytes may still be skewed one by one.
    if plan.cut.is_none() || best.1 > stored - stored / 32 {
        let bytes = byte_planes(part, size, size);
        if plan.cut.is_none() || scale(bytes.0) + bytes.1 < best.1 {
            best = (Choice::Planes(PlanesPlan::BYTES), scale(bytes.0) + bytes.1);
        }
    }
    // zstd is only tried where it has a chance: never on the noise of ordinary float weights.
    if plan.cut.is_none() || best.1 < stored / 8 * 5 {
        let z = zstd_cost(&pieces(), len);
        if z < best.1 - best.1 / 64 {
            best = (Choice::Zstd, z);
        }
    }
    if let Some(base) = base {
        let (choice, cost) = against(simd, dtype, part, base, scale);
        if cost <= best.1 {
            best = (choice, cost);
        }
    }
    if let Some((coded, fixed)) = palette::cost(Numbers::from_dtype(dtype), part, base, best.1)
        && scale(coded) + fixed < best.1
    {
        best = (Choice::Palette, scale(coded) + fixed);
    }
    best
}

/// The elements that stand for the segment.
pub fn sampled(dtype: Dtype, raw: &[u8]) -> Vec<u8> {
    sample(raw, &sample_ranges(raw.len(), Numbers::from_dtype(dtype).size))
}

/// The plan for planes, whether they are worth it or not.
pub fn plan(dtype: Dtype, raw: &[u8]) -> PlanesPlan {
    let part = sampled(dtype, raw);
    Shape::from_dtype(dtype).map_or(PlanesPlan::BYTES, |shape| float_plan(shape, &part).0)
}

/// The best cut and low mode for a sample of floats: plan, cost of the sample, cost of tables.
fn float_plan(shape: Shape, part: &[u8]) -> (PlanesPlan, u64, u64) {
    let (k, lo, cost, tables) = cut::best_cut(shape, part);
    let cut = Cut { shape, k, lo };
    let low = shape.low_bytes();
    let n = part.len() / shape.size;
    if low == 0 {
        return (PlanesPlan { cut: Some(cut), low_planes: false }, cost, tables);
    }
    let grouped = (low::stored_size(&low::counts(part, shape.size, low), n, low) as u64 * 8) << COST_BITS;
    let (planes, low_tables) = byte_planes(part, shape.size, low);
    // Planes decode more slowly than groups: they must save a 32nd of the low bytes.
    if planes + low_tables < grouped - grouped / 32 {
        (PlanesPlan { cut: Some(cut), low_planes: true }, cost + planes, tables + low_tables)
    } else {
        (PlanesPlan { cut: Some(cut), low_planes: false }, cost + grouped, tables)
    }
}

/// Cost of the first `low` bytes of each element as planes, and of their tables.
fn byte_planes(part: &[u8], size: usize, low: usize) -> (u64, u64) {
    let (mut cost, mut tables) = (0, 0);
    for b in 0..low {
        let mut counts: Counts = [0; 256];
        part.iter().skip(b).step_by(size).for_each(|&v| counts[usize::from(v)] += 1);
        let coded = entropy(&counts);
        let raw = (part.len() as u64 / size as u64 * 8) << COST_BITS;
        let table = table_cost(counts.iter().filter(|&&c| c > 0).count());
        if coded + table < raw {
            cost += coded;
            tables += table;
        } else {
            cost += raw;
        }
    }
    (cost, tables)
}

fn table_cost(distinct: usize) -> u64 {
    (8 * distinct as u64 + 24) << COST_BITS
}

/// The contiguous pieces of a segment that zstd is tried on.
pub fn zstd_ranges(bytes: usize, size: usize) -> Vec<Range<usize>> {
    let wanted = (bytes / 64).clamp(8192, 65536) / size * size;
    let pieces = if bytes <= wanted { 1 } else { 4 };
    let len = (wanted / pieces / size * size).min(bytes);
    let stride = if pieces == 1 { 0 } else { (bytes - len) / (pieces - 1) };
    (0..pieces).map(|p| p * stride..p * stride + len).collect()
}

/// What zstd makes of those pieces, scaled to the `bytes` of the segment, in 1/1024 bits.
fn zstd_cost(part: &[u8], bytes: usize) -> u64 {
    let coded = zstd::bulk::compress(part, 1).map_or(usize::MAX / 1024, |z| z.len());
    ((coded as u128 * bytes as u128 / part.len().max(1) as u128) as u64 * 8) << COST_BITS
}

/// Delta or sparse, and its cost scaled to the segment.
fn against(simd: Simd, dtype: Dtype, part: &[u8], base: &[u8], scale: impl Fn(u64) -> u64) -> (Choice, u64) {
    let numbers = Numbers::from_dtype(dtype);
    let n = part.len() / numbers.size;
    let by: ByExponent = delta::count(simd, numbers, part, base);
    // The symbol of no difference is 0.
    let changed = n - by.total(0) as usize;
    let cost = delta::cost(numbers, &by);
    // Below 1 change in 32 both take the same room; the list is then faster and has no floor.
    if changed * 32 < n { (Choice::Sparse, scale(cost)) } else { (Choice::Delta, scale(cost)) }
}
