//! Where the heads of floats are best cut, from a sample.

use crate::{
    entropy::{COST_BITS, entropy_of},
    estimate::table_cost,
    schemes::{Cut, Shape, head_at},
};

/// Samples of fewer elements are sorted: clearing a count of every magnitude would take longer.
const FEW: usize = 2048;

/// Bits that an exception takes: position and key.
const EXCEPTION_BITS: u64 = 32;

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
pub(super) fn best_cut(shape: Shape, part: &[u8]) -> (u32, u16, u64, u64) {
    let n = part.len() / shape.size;
    let mags = magnitudes(shape, part);
    let (mut best, mut keys) = (None, Vec::with_capacity(mags.len()));
    for k in 0..=3u32.min(shape.head_bits - 1 - shape.exponent) {
        let cut = Cut { shape, k, lo: 1 };
        if cut.field_bits() > 8 {
            continue;
        }
        let below = cut.field_bits() - 1;
        keys.clear();
        for same in mags.chunk_by(|a, b| a.0 >> below == b.0 >> below) {
            keys.push((same[0].0 >> below, same.iter().map(|&(_, count)| count).sum::<u32>()));
        }
        let (lo, cost, distinct) = window(cut, &keys);
        let cost = cost + ((n as u64 * u64::from(cut.field_bits())) << COST_BITS);
        let tables = table_cost(distinct);
        if best.is_none_or(|(_, _, c, t)| cost + tables < c + t) {
            best = Some((k, lo, cost, tables));
        }
    }
    best.unwrap_or((0, 1, u64::MAX / 4, 0))
}

/// The window of 254 keys that holds most elements (the lowest such), the cost of coding the keys and the symbols used.
/// The keys that occur, rising, and their counts.
fn window(cut: Cut, keys: &[(u16, u32)]) -> (u16, u64, usize) {
    let all = || (entropy_of(keys.iter().map(|k| k.1)), keys.len());
    let Some((&(least, _), &(most, _))) = keys.first().zip(keys.last()).filter(|_| cut.windowed()) else {
        let (cost, distinct) = all();
        return (1, cost, distinct);
    };
    let last = (1usize << (cut.shape.exponent + cut.k)) - 255;
    let (first, end) = (usize::from(least).clamp(1, last), usize::from(most) + 1);
    if end <= first + 254 {
        // All keys are in the first window, and no other one has more.
        let (cost, distinct) = all();
        return (first as u16, cost, distinct);
    }
    let mut dense = vec![0u32; end];
    keys.iter().for_each(|&(key, count)| dense[usize::from(key)] = count);
    let get = |k: usize| u64::from(dense.get(k).copied().unwrap_or(0));
    let mut held: u64 = (first..first + 254).map(get).sum();
    let (mut lo, mut most) = (first, held);
    for start in first + 1..=last.min(end.max(first)) {
        held = held + get(start + 253) - get(start - 1);
        if held > most {
            (lo, most) = (start, held);
        }
    }
    let total: u64 = keys.iter().map(|k| u64::from(k.1)).sum();
    let outside = total - most - get(0);
    let kept = (lo..lo + 254).map(|k| get(k) as u32);
    let symbols = kept.chain([get(0) as u32, outside as u32]);
    let cost = entropy_of(symbols.clone()) + ((outside * EXCEPTION_BITS) << COST_BITS);
    (lo as u16, cost, symbols.filter(|&c| c > 0).count())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Dtype;

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
