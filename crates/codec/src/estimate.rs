//! Estimates which scheme is smallest, from a sample and with integers only.

use crate::{
    Dtype,
    entropy::{ByExponent, COST_BITS, Counts, entropy},
    schemes::{Cut, Numbers, PlanesPlan, Shape, delta, head_at, low, palette},
    simd::Simd,
};
use std::ops::Range;

/// Elements of a run that the sample takes whole.
const RUN: usize = 512;
/// Bits that an exception takes: position and key.
const EXCEPTION_BITS: u64 = 32;

/// Samples of fewer elements are sorted: clearing a count of every magnitude would take longer.
const FEW: usize = 2048;

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
    let (k, lo, cost, tables) = best_cut(shape, part);
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

/// The heads' magnitudes that occur, rising, and how often each does.
fn magnitudes(shape: Shape, part: &[u8]) -> Vec<(u16, u32)> {
    let n = part.len() / shape.size;
    let mask = (1u16 << (shape.head_bits - 1)) - 1;
    let all = (0..n).map(|i| head_at(part, shape.size, i) & mask);
    if n < FEW {
        let mut all: Vec<u16> = all.collect();
        all.sort_unstable();
        return all.chunk_by(|a, b| a == b).map(|same| (same[0], same.len() as u32)).collect();
    }
    let mut counts = vec![0u32; usize::from(mask) + 1];
    all.for_each(|m| counts[usize::from(m)] += 1);
    counts.iter().enumerate().filter(|(_, c)| **c > 0).map(|(m, &c)| (m as u16, c)).collect()
}

/// Tries every number of mantissa bits in the symbol: (k, window, cost of the sample, cost of the table).
fn best_cut(shape: Shape, part: &[u8]) -> (u32, u16, u64, u64) {
    let n = part.len() / shape.size;
    let mags = magnitudes(shape, part);
    let ends = mags.first().zip(mags.last());
    let (least, most) = ends.map_or((0, 0), |(a, b)| (usize::from(a.0), usize::from(b.0)));
    let mut best = None;
    for k in 0..=3u32.min(shape.head_bits - 1 - shape.exponent) {
        let cut = Cut { shape, k, lo: 1 };
        if cut.field_bits() > 8 {
            continue;
        }
        let below = cut.field_bits() - 1;
        let mut keys = vec![0u32; (most >> below) + 1];
        mags.iter().for_each(|&(m, count)| keys[usize::from(m) >> below] += count);
        let (lo, cost, distinct) = window(cut, least >> below, &keys);
        let cost = cost + ((n as u64 * u64::from(cut.field_bits())) << COST_BITS);
        let tables = table_cost(distinct);
        if best.is_none_or(|(_, _, c, t)| cost + tables < c + t) {
            best = Some((k, lo, cost, tables));
        }
    }
    best.unwrap_or((0, 1, u64::MAX / 4, 0))
}

/// The window of 254 keys that holds most elements (the lowest such), the cost of coding the keys and the symbols used.
fn window(cut: Cut, least: usize, keys: &[u32]) -> (u16, u64, usize) {
    if !cut.windowed() {
        return (1, entropy(keys), keys.iter().filter(|&&c| c > 0).count());
    }
    let last = (1usize << (cut.shape.exponent + cut.k)) - 255;
    let get = |k: usize| u64::from(keys.get(k).copied().unwrap_or(0));
    let first = least.clamp(1, last);
    let mut held: u64 = (first..first + 254).map(get).sum();
    let (mut lo, mut most) = (first, held);
    // Where the first window has all keys, no other one has more.
    let end = if keys.len() <= first + 254 { first } else { last.min(keys.len().max(first)) };
    for start in first + 1..=end {
        held = held + get(start + 253) - get(start - 1);
        if held > most {
            (lo, most) = (start, held);
        }
    }
    let total: u64 = keys.iter().map(|&c| u64::from(c)).sum();
    let outside = total - most - get(0);
    let mut symbols: Vec<u32> = (lo..lo + 254).map(|k| get(k) as u32).collect();
    symbols.extend([get(0) as u32, outside as u32]);
    let cost = entropy(&symbols) + ((outside * EXCEPTION_BITS) << COST_BITS);
    (lo as u16, cost, symbols.iter().filter(|&&c| c > 0).count())
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
    let changed = (0..n).filter(|&i| numbers.load(part, i) != numbers.load(base, i)).count();
    let by: ByExponent = delta::count(simd, numbers, part, base);
    let cost = delta::cost(numbers, &by);
    // Below 1 change in 32 both take the same room; the list is then faster and has no floor.
    if changed * 32 < n { (Choice::Sparse, scale(cost)) } else { (Choice::Delta, scale(cost)) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn few_magnitudes_are_counted_as_many() {
        for dtype in [Dtype::F32, Dtype::BF16, Dtype::F8E4M3] {
            let Some(shape) = Shape::from_dtype(dtype) else { continue };
            let raw: Vec<u8> = (0..FEW * shape.size).map(|i| (i * i * 40_503 + i * 977) as u8).collect();
            let (most, last) = raw.split_at((FEW - 1) * shape.size);
            let mut few = magnitudes(shape, most);
            for (m, n) in magnitudes(shape, last) {
                match few.binary_search_by_key(&m, |f| f.0) {
                    Ok(i) => few[i].1 += n,
                    Err(i) => few.insert(i, (m, n)),
                }
            }
            assert_eq!(few, magnitudes(shape, &raw), "{dtype}");
        }
    }
}
