//! Inherited rows: those that did not move, and keep their reconstruction, and those that hardly moved, and are the
//! stored base's times one factor but for rounding.
//!
//! AdamW decays every weight, also the rows of an embedding that no gradient reached: by a few millionths, which no
//! lattice is fine enough for. What is left of such a row beside the base times the tensor's factor is rounding.

use crate::{
    bounds::Bounds,
    bounds::yardstick::{Change, HIDDEN, Row, Yardstick},
};
use mdl_codec::{Dtype, quant::times};
use mdl_store::values::to_f64;
use rayon::prelude::*;
use std::collections::HashSet;

/// The largest change of an inherited row, relative to it. Rows that training moves stay on lattices: a copy of the
/// base would drop what it did.
const STILL: f64 = 1e-4;
/// The largest error of an inherited row, relative to its update. (A copy has an error of 1. Each step of a small decay
/// rounds a number by one place or by none, so that a factor tells only a part of it.)
const FIT: f64 = 0.9;

/// The rows of a tensor that it inherits from its base.
#[derive(Debug, PartialEq)]
pub(crate) struct Inherited {
    factor: f32,
    /// Row numbers, with the squared errors.
    pub rows: Vec<(usize, f64)>,
    /// Those among them that are copies.
    copies: HashSet<usize>,
}

/// How a row lies beside the base's: with `d` their difference, `d·b` and `b·b`.
struct Beside {
    dot: f64,
    base: f64,
    /// Squared norm of the difference.
    apart: f64,
}

impl Beside {
    fn new(dtype: Dtype, row: &[u8], base: &[u8]) -> Beside {
        let [mut x, mut b] = [Vec::new(), Vec::new()];
        to_f64(dtype, row, &mut x);
        to_f64(dtype, base, &mut b);
        let mut sums = Beside { dot: 0.0, base: 0.0, apart: 0.0 };
        for (x, b) in x.iter().zip(&b) {
            let d = x - b;
            sums.dot += d * b;
            sums.base += b * b;
            sums.apart += d * d;
        }
        sums
    }

    /// The factor of least squares, and the squared error that it leaves.
    fn fit(&self) -> (f64, f64) {
        let grown = self.dot / self.base;
        (1.0 + grown, self.apart - grown * self.dot)
    }
}

impl Inherited {
    /// Looks for them; none where there are none.
    pub fn find(dtype: Dtype, yard: &Yardstick, bounds: &Bounds, raw: &[u8], base: &[u8]) -> Option<Inherited> {
        if raw.len() != base.len() || bounds.update.is_infinite() {
            return None;
        }
        let width = yard.cols * dtype.size();
        let row = |i: usize| i * width..((i + 1) * width).min(raw.len());
        let limit = |i: usize| limit(&yard.rows[i], bounds);
        let all: Vec<usize> = (0..yard.rows.len()).filter(|&i| limit(i) > 0.0).collect();
        let (kept, moved): (Vec<_>, Vec<_>) = all.into_iter().partition(|&i| is_kept(&yard.rows[i]));
        let copy = |&i: &usize| {
            let error = Beside::new(dtype, &raw[row(i)], &base[row(i)]).apart;
            (error <= limit(i)).then_some((i, error))
        };
        let mut rows: Vec<(usize, f64)> = kept.par_iter().filter_map(copy).collect();
        let copies = rows.iter().map(|row| row.0).collect();
        let near = |&i: &usize| {
            let (factor, error) = Beside::new(dtype, &raw[row(i)], &base[row(i)]).fit();
            (error <= limit(i)).then_some(factor)
        };
        // Halves are too coarse for what decay does to such rows.
        let mut factors: Vec<f64> = match dtype {
            Dtype::F32 => moved.par_iter().filter_map(near).collect(),
            _ => Vec::new(),
        };
        factors.sort_by(f64::total_cmp);
        let factor = factors.get(factors.len() / 2).map_or(1.0, |f| *f as f32);
        let error = |&i: &usize| {
            let mut made = vec![0; row(i).len()];
            times(dtype, &base[row(i)], factor, &mut made);
            let error = Beside::new(dtype, &raw[row(i)], &made).apart;
            (error <= limit(i)).then_some((i, error))
        };
        if !factors.is_empty() {
            rows.par_extend(moved.par_iter().filter_map(error));
        }
        rows.sort_unstable_by_key(|row| row.0);
        (!rows.is_empty()).then_some(Inherited { factor, rows, copies })
    }

    /// Writes the rows to a reconstruction.
    pub fn write(&self, dtype: Dtype, cols: usize, base: &[u8], rec: &mut [u8]) {
        let width = cols * dtype.size();
        for &(row, _) in &self.rows {
            let bytes = row * width..((row + 1) * width).min(rec.len());
            match self.copies.contains(&row) {
                true => rec[bytes.clone()].copy_from_slice(&base[bytes]),
                false => times(dtype, &base[bytes.clone()], self.factor, &mut rec[bytes]),
            }
        }
    }
}

fn is_kept(row: &Row) -> bool {
    matches!(row.change, Change::Kept(_))
}

/// The largest squared error of an inherited row; 0 for one that is not.
fn limit(row: &Row, bounds: &Bounds) -> f64 {
    let slow = |squared: f64| squared <= STILL * STILL * row.weight;
    let most = match row.change {
        Change::Moved(update) if slow(update) => FIT * FIT * update,
        // What was inherited before, and moved even less now.
        Change::Hidden(noise) if slow(noise) => HIDDEN * noise,
        Change::Kept(noise) => HIDDEN * noise,
        _ => 0.0,
    };
    most.min(row.allowance(bounds))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::bounds::yardstick::Earlier;

    fn bytes(values: &[f32]) -> Vec<u8> {
        values.iter().flat_map(|v| v.to_le_bytes()).collect()
    }

    #[test]
    fn rows_that_only_decay_are_inherited_and_others_are_not() {
        let before: Vec<f32> = (0..5 * 64).map(|i| ((i * 37 % 101) as f32 - 50.0) * 1e-3).collect();
        let decayed = |v: f32| (0..20).fold(v, |v, _| v * (1.0 - 3e-7));
        let now: Vec<f32> = before
            .iter()
            .enumerate()
            .map(|(i, &v)| match i / 64 {
                // Decayed so far that a lattice serves; unchanged; decayed, with one number that moved.
                1 => v * 0.99,
                2 => v,
                3 if i % 64 == 5 => v + 1e-3,
                _ => decayed(v),
            })
            .collect();
        let (raw, base) = (bytes(&now), bytes(&before));
        let yard = Yardstick::new(
            Dtype::F32,
            64,
            &raw,
            Some(&Earlier { bytes: &base, steps: None, kept: None, outside: false }),
        );
        let bounds = Bounds::default();
        let found = Inherited::find(Dtype::F32, &yard, &bounds, &raw, &base).expect("rows that decayed");
        assert_eq!(found.rows.iter().map(|r| r.0).collect::<Vec<_>>(), [0, 4]);
        assert!((found.factor - (1.0 - 6e-6)).abs() < 2e-7, "{found:?}");
        let mut rec = raw.clone();
        found.write(Dtype::F32, 64, &base, &mut rec);
        let errors = yard.errors(Dtype::F32, &raw, &rec);
        assert!(found.rows.iter().all(|&(i, error)| errors[i] == error && error > 0.0), "{errors:?} {found:?}");
        let open = Bounds { update: f64::INFINITY, ..bounds };
        assert_eq!(Inherited::find(Dtype::F32, &yard, &open, &raw, &base), None);
        // Nothing fits another tensor.
        let other: Vec<f32> = before.iter().rev().copied().collect();
        assert_eq!(Inherited::find(Dtype::F32, &yard, &bounds, &raw, &bytes(&other)), None);
    }
}
