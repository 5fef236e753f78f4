//! Check-N-Run's quantiser (NSDI '22; "Adaptive" in Inshrinkerator's comparison): an asymmetric uniform quantiser whose
//! range each row finds by greedy search, packed. It uses no parent: the paper's delta is for embedding tables whose
//! rows are mostly untouched, which other networks' are not (A.2).
//!
//! The search is that of Guan et al., "Post-training 4-bit quantization on embedding tables" (arXiv 1911.02079),
//! section 3, which Check-N-Run names: from the row's extremes, the end is moved in by one of `steps` parts whose move
//! gives the smaller squared error, until the range has shrunk by the share `range`; the best range seen is taken.

use crate::systems::{Coder, Kept, SystemPlan, Tensor, count, get_f32, kept, numbers, packed, row};
use mdl_codec::{CodecError, Dtype, Result, engine_internals::Cursor};
use rayon::prelude::*;

#[derive(Debug)]
pub(super) struct Adaptive {
    /// Bits of a level, 1 to 8.
    pub(super) bits: u32,
    /// Parts of the first range ("number of step bins").
    pub(super) steps: u32,
    /// Share of the first range that may be cut off.
    pub(super) range: f32,
}

impl Coder for Adaptive {
    fn encode(&self, t: &Tensor<'_>, _: &SystemPlan, _: Option<&Kept>) -> Result<Option<Vec<u8>>> {
        let Some(values) = numbers(t)? else { return Ok(None) };
        let row = row(t.shape);
        let ranges: Vec<Range> = values.par_chunks(row).map(|r| self.search(r)).collect();
        let mut out = vec![self.bits as u8];
        for r in &ranges {
            out.extend_from_slice(&r.low.to_bits().to_le_bytes());
            out.extend_from_slice(&r.step.to_bits().to_le_bytes());
        }
        let levels = values.chunks(row).zip(&ranges);
        let levels = levels.flat_map(|(row, r)| row.iter().map(|&x| r.level(x) as u16));
        packed::put(&mut out, levels, self.bits);
        Ok(Some(out))
    }

    fn decode(&self, body: &[u8], dtype: Dtype, shape: &[usize], _: Option<&Kept>) -> Result<Kept> {
        let mut cursor = Cursor::new(body);
        let (bits, row, n) = (u32::from(cursor.u8()?), row(shape), count(shape));
        if !(1..=8).contains(&bits) {
            return Err(CodecError::Corrupt("a level has 1 to 8 bits"));
        }
        let mut ranges = Vec::new();
        for _ in 0..n.div_ceil(row) {
            ranges.push(Range {
                low: get_f32(&mut cursor)?,
                step: get_f32(&mut cursor)?,
                most: ((1u32 << bits) - 1) as f32,
            });
        }
        let levels = packed::get(&mut cursor, n, bits)?;
        cursor.done()?;
        let rows = levels.chunks(row).zip(&ranges);
        let values: Vec<f32> = rows.flat_map(|(row, r)| row.iter().map(|&l| r.value(f32::from(l)))).collect();
        Ok(kept(dtype, shape, &values, None))
    }
}

impl Adaptive {
    fn search(&self, row: &[f32]) -> Range {
        let low = row.iter().copied().fold(f32::INFINITY, f32::min);
        let high = row.iter().copied().fold(f32::NEG_INFINITY, f32::max);
        let range = |low: f32, high: f32| Range::new(low, high, self.bits);
        let mut best = range(low, high);
        let part = (high - low) / self.steps as f32;
        if !(part.is_normal() && part.is_finite()) {
            return best;
        }
        let (mut loss, mut ends) = (best.loss(row), (low, high));
        for _ in 0..(self.steps as f32 * self.range) as u32 {
            let (a, b) = (range(ends.0 + part, ends.1), range(ends.0, ends.1 - part));
            let (la, lb) = (a.loss(row), b.loss(row));
            let (next, l) = if la < lb { (a, la) } else { (b, lb) };
            ends = if la < lb { (ends.0 + part, ends.1) } else { (ends.0, ends.1 - part) };
            if l < loss {
                (best, loss) = (next, l);
            }
        }
        best
    }
}

/// Levels of a row.
#[derive(Clone, Copy, Debug)]
struct Range {
    low: f32,
    step: f32,
    most: f32,
}

impl Range {
    fn new(low: f32, high: f32, bits: u32) -> Range {
        let most = ((1u32 << bits) - 1) as f32;
        // The quotients first: the range of finite numbers may be none.
        let step = high / most - low / most;
        Range { low, step, most }
    }

    fn level(self, x: f32) -> f32 {
        // Not a number where both are 0: then the level is 0.
        ((x - self.low) / self.step).round_ties_even().max(0.0).min(self.most)
    }

    fn value(self, level: f32) -> f32 {
        (level * self.step + self.low).clamp(f32::MIN, f32::MAX)
    }

    fn loss(self, row: &[f32]) -> f64 {
        let inverse = if self.step > 0.0 { 1.0 / self.step } else { 0.0 };
        let error = |x: f32| {
            let level = ((x - self.low) * inverse).round_ties_even().max(0.0).min(self.most);
            let e = x - (level * self.step + self.low);
            e * e
        };
        // Eight sums, so that the compiler may keep them side by side.
        let (eights, rest) = row.as_chunks::<8>();
        let mut sums = [0f32; 8];
        for part in eights {
            sums.iter_mut().zip(part).for_each(|(s, &x)| *s += error(x));
        }
        let sum: f64 = sums.iter().map(|&s| f64::from(s)).sum();
        sum + rest.iter().map(|&x| f64::from(error(x))).sum::<f64>()
    }
}
