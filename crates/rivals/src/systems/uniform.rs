//! QD-compressor (ICCD '21), as Inshrinkerator compares with it ("Uniform", section 8.2 and appendix A.2): as many
//! uniform bins as a layer's entropy asks for, cyclic differences to the parent's bins, Huffman.
//!
//! Readings: a layer's entropy is that of its histogram in `max` uniform bins between its extremes; the layer of least
//! entropy gets `min` bins, the one of most `max`, the others powers of two in between by interpolation. Where the bin
//! count of a layer changes, the ring has the larger count (the fix of A.2). Without a parent the levels are
//! Huffman-coded, too; `coder=packed` leaves them in whole bits, which is what the papers' one-shot ratios (4.00, 4.57:
//! 8 and 7 bits) say was done there.

use crate::systems::{Coder, Kept, SystemPlan, Tensor, count, get_f32, kept, numbers, packed};
use mdl_codec::{
    Dtype, Result,
    engine_internals::Cursor,
    quant::paper::{Levels, Variant, bins_of, decode, encode},
};
use std::collections::BTreeMap;

#[derive(Debug)]
pub(super) struct Uniform {
    /// Fewest and most bins of a layer, powers of two, 2 to 256.
    pub(super) min: u16,
    pub(super) max: u16,
    /// Whole bits, no Huffman, no parent.
    pub(super) packed: bool,
}

impl Coder for Uniform {
    fn plan(&self, tensors: &[&Tensor<'_>]) -> Result<SystemPlan> {
        let mut entropies = BTreeMap::new();
        for t in tensors {
            if let Some(values) = numbers(t)? {
                let grid = Grid::from_values(&values, self.max);
                entropies.insert(t.name.to_owned(), entropy(&grid.levels(&values), self.max));
            }
        }
        let least = entropies.values().copied().fold(f64::INFINITY, f64::min);
        let spread = entropies.values().copied().fold(0.0, f64::max) - least;
        let octaves = f64::from((self.max / self.min).max(1).ilog2());
        let bins = |h: f64| {
            let share = if spread > 0.0 { (h - least) / spread } else { 1.0 };
            self.min << (share * octaves).round() as u32
        };
        Ok(SystemPlan {
            bins: entropies.into_iter().map(|(name, h)| (name, bins(h))).collect(),
            ..SystemPlan::default()
        })
    }

    fn encode(&self, t: &Tensor<'_>, plan: &SystemPlan, parent: Option<&Kept>) -> Result<Option<Vec<u8>>> {
        let (Some(values), Some(&bins)) = (numbers(t)?, plan.bins.get(t.name)) else {
            return Ok(None);
        };
        let grid = Grid::from_values(&values, bins);
        let levels = grid.levels(&values);
        let mut out = vec![u8::from(self.packed)];
        out.extend_from_slice(&grid.low.to_bits().to_le_bytes());
        out.extend_from_slice(&grid.step.to_bits().to_le_bytes());
        if self.packed {
            out.extend_from_slice(&bins.to_le_bytes());
            packed::put(&mut out, levels.into_iter(), packed::width(usize::from(bins)));
        } else {
            let before = parent.and_then(|p| p.levels.as_ref());
            let before = before.map(|(l, b)| Levels::new(l, *b)).transpose()?;
            out.extend(encode(Variant::He, Levels::new(&levels, bins)?, before)?);
        }
        Ok(Some(out))
    }

    fn decode(&self, body: &[u8], dtype: Dtype, shape: &[usize], parent: Option<&Kept>) -> Result<Kept> {
        let mut cursor = Cursor::new(body);
        let in_bits = cursor.u8()? == 1;
        let (low, step) = (get_f32(&mut cursor)?, get_f32(&mut cursor)?);
        let n = count(shape);
        let (levels, bins) = if in_bits {
            let bins = cursor.u16()?;
            (packed::get(&mut cursor, n, packed::width(usize::from(bins)))?, bins)
        } else {
            let before = parent.and_then(|p| p.levels.as_ref());
            let before = before.map(|(l, b)| Levels::new(l, *b)).transpose()?;
            (decode(cursor.rest(), n, before)?, bins_of(cursor.rest())?)
        };
        let grid = Grid { low, step, bins };
        let values: Vec<f32> = levels.iter().map(|&l| grid.value(l)).collect();
        Ok(kept(dtype, shape, &values, Some((levels, bins))))
    }
}

/// Levels from the least number to the largest.
#[derive(Clone, Copy, Debug)]
struct Grid {
    low: f32,
    step: f32,
    bins: u16,
}

impl Grid {
    fn from_values(values: &[f32], bins: u16) -> Grid {
        let low = values.iter().copied().reduce(f32::min).unwrap_or(0.0);
        let high = values.iter().copied().reduce(f32::max).unwrap_or(0.0);
        let step = (f64::from(high) - f64::from(low)) / f64::from(bins.max(2) - 1);
        Grid { low, step: step as f32, bins }
    }

    fn levels(self, values: &[f32]) -> Vec<u16> {
        let (low, step) = (f64::from(self.low), f64::from(self.step));
        let level = |&x: &f32| match step > 0.0 {
            // A cast saturates.
            true => (((f64::from(x) - low) / step).round_ties_even() as u16).min(self.bins - 1),
            false => 0,
        };
        values.iter().map(level).collect()
    }

    fn value(self, level: u16) -> f32 {
        let x = f64::from(self.low) + f64::from(self.step) * f64::from(level);
        (x as f32).clamp(f32::MIN, f32::MAX)
    }
}

/// Bits a level.
fn entropy(levels: &[u16], bins: u16) -> f64 {
    let mut counts = vec![0u64; usize::from(bins)];
    levels.iter().for_each(|&l| counts[usize::from(l)] += 1);
    let n = levels.len() as f64;
    let term = |&c: &u64| {
        if c > 0 { c as f64 / n * (n / c as f64).log2() } else { 0.0 }
    };
    counts.iter().map(term).sum()
}
