//! Yardsticks: how long each row of a tensor is and how far it moved since the parent, and so what error it may have.

use crate::{
    allocate::{mean_square_of_columns, step_of_row},
    bounds::Bounds,
};
use mdl_codec::{Dtype, quant::lattice::Params};
use mdl_store::values::to_f64;
use rayon::prelude::*;

/// What is known of a row's change since the version that the yardstick begins at.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) enum Change {
    /// There is no earlier version.
    Unknown,
    /// Not a bit of it changed.
    Still,
    /// Not a bit of it changed since an exact version whose approximation of it stands, with an error of this squared
    /// norm.
    Kept(f64),
    /// It cannot be told from the earlier version's own error, whose squared norm this is.
    Hidden(f64),
    /// Squared norm of the change.
    Moved(f64),
    /// Squared norm of the change since a checkpoint that is not in the repository.
    Since(f64),
}

/// A row of a tensor.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Row {
    /// Squared norm.
    pub weight: f64,
    /// Largest magnitude of an element.
    pub peak: f64,
    pub change: Change,
}

impl Row {
    /// The largest squared error that the bounds allow.
    pub fn allowance(&self, bounds: &Bounds) -> f64 {
        let part = |bound: f64, of: f64| if bound.is_infinite() { f64::INFINITY } else { bound * bound * of };
        let by_weight = part(bounds.weight, self.weight);
        let by_update = |update: f64| part(bounds.of_update((update / self.weight).sqrt()), update);
        by_weight.min(match self.change {
            Change::Unknown => part(bounds.first, self.weight),
            Change::Still => part(bounds.update, 0.0),
            Change::Kept(_) => f64::INFINITY,
            // Where no update can be seen the earlier version's reconstruction stands, as far off as it was.
            Change::Hidden(_) if bounds.update.is_infinite() => f64::INFINITY,
            Change::Hidden(noise) => HIDDEN * noise,
            Change::Moved(update) => by_update(update),
            // Nothing that is stored is that close: the bound of a first version is close enough.
            Change::Since(update) => by_update(update).max(part(bounds.first, self.weight)),
        })
    }
}

/// What a row without a visible update may have of the earlier version's squared error: it has that error again, give
/// or take chance.
pub(crate) const HIDDEN: f64 = 2.0;
/// A change is visible if its squared norm is this many standard deviations of the earlier version's error away from
/// it.
const VISIBLE: f64 = 4.0;
/// Variance of the square of a number that is uniform around 0, relative to the square of the square's mean.
const VARIANCE: f64 = 0.8;

/// The rows of a tensor.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Yardstick {
    /// Elements of a row.
    pub cols: usize,
    pub rows: Vec<Row>,
}

/// The version of a tensor that a yardstick begins at.
pub(crate) struct Earlier<'a> {
    /// Its bytes.
    pub bytes: &'a [u8],
    /// The steps of its lattice, if it is a reconstruction; none if it is what training had.
    pub steps: Option<&'a Params>,
    /// The steps of the approximation beside it, if it is what training had.
    pub kept: Option<&'a Params>,
    /// Whether it is a file outside of the repository.
    pub outside: bool,
}

impl Yardstick {
    /// Of a tensor of a float dtype, seen as a matrix of so many columns.
    pub fn new(dtype: Dtype, cols: usize, raw: &[u8], earlier: Option<&Earlier<'_>>) -> Yardstick {
        let cols = cols.max(1);
        let width = cols * dtype.size();
        let row = |(i, now): (usize, &[u8])| {
            let before = earlier.map(|e| &e.bytes[i * width..i * width + now.len()]);
            let (weight, peak) = length(dtype, now);
            let noise = earlier.and_then(|e| e.steps).map_or(0.0, |steps| noise(steps, i, cols));
            let change = match before {
                None => Change::Unknown,
                Some(before) if earlier.is_some_and(|e| e.outside) => Change::Since(squared_error(dtype, now, before)),
                Some(before) if noise == 0.0 && before == now => match earlier.and_then(|e| e.kept) {
                    Some(steps) if step_of_row(steps, i).is_some() => Change::Kept(self::noise(steps, i, cols)),
                    _ => Change::Still,
                },
                Some(before) => change(squared_error(dtype, now, before), noise, cols),
            };
            Row { weight, peak, change }
        };
        let mut rows: Vec<Row> = raw.par_chunks(width).enumerate().map(row).collect();
        let moved = rows.iter().map(|row| match row.change {
            Change::Moved(update) | Change::Since(update) => update,
            _ => 0.0,
        });
        if moved.sum::<f64>() > rows.iter().map(|row| row.weight).sum() {
            // A distance that is longer than the tensor is no update: the earlier version is of another run.
            rows.iter_mut().for_each(|row| row.change = Change::Unknown);
        }
        Yardstick { cols, rows }
    }

    /// Squared errors of a reconstruction, row by row; equal bytes have none, numbers or not.
    pub fn errors(&self, dtype: Dtype, raw: &[u8], rec: &[u8]) -> Vec<f64> {
        let width = self.cols * dtype.size();
        let error = |(a, b): (&[u8], &[u8])| if a == b { 0.0 } else { squared_error(dtype, a, b) };
        raw.par_chunks(width).zip(rec.par_chunks(width)).map(error).collect()
    }
}

/// From the squared distance to a version with an error of its own: independent errors add up as squares.
fn change(distance: f64, noise: f64, cols: usize) -> Change {
    let chance = VISIBLE * noise * (VARIANCE / cols as f64).sqrt();
    match distance - noise {
        // An error that is larger than the distance is not this row's.
        moved if moved < -chance => Change::Moved(distance),
        moved if noise > 0.0 && moved <= chance => Change::Hidden(noise.min(distance)),
        moved => Change::Moved(moved),
    }
}

/// Squared norm of the error that a lattice of these steps is expected to leave in a row.
fn noise(steps: &Params, row: usize, cols: usize) -> f64 {
    let Some(step) = step_of_row(steps, row) else { return 0.0 };
    let step = (f64::from(step) / 16.0).exp2();
    step * step / 12.0 * mean_square_of_columns(steps) * cols as f64
}

/// Squared norm and largest magnitude.
fn length(dtype: Dtype, row: &[u8]) -> (f64, f64) {
    let (mut sum, mut peak) = (0.0, 0.0f64);
    pieces(dtype, row, |values| {
        sum += lanes(values.iter().map(|v| v * v));
        peak = values.iter().fold(peak, |peak, v| peak.max(v.abs()));
    });
    (sum, peak)
}

fn squared_error(dtype: Dtype, a: &[u8], b: &[u8]) -> f64 {
    let mut sum = 0.0;
    let (mut left, mut right) = (Vec::new(), Vec::new());
    for (a, b) in a.chunks(PIECE * dtype.size()).zip(b.chunks(PIECE * dtype.size())) {
        to_f64(dtype, a, &mut left);
        to_f64(dtype, b, &mut right);
        sum += lanes(left.iter().zip(&right).map(|(a, b)| (a - b) * (a - b)));
    }
    sum
}

/// Elements that are widened at a time.
const PIECE: usize = 4096;

fn pieces(dtype: Dtype, row: &[u8], mut each: impl FnMut(&[f64])) {
    let mut wide = Vec::new();
    for part in row.chunks(PIECE * dtype.size()) {
        to_f64(dtype, part, &mut wide);
        each(&wide);
    }
}

/// A sum in eight partial sums, the same on every machine.
fn lanes(values: impl Iterator<Item = f64>) -> f64 {
    let mut sums = [0.0; 8];
    for (i, v) in values.enumerate() {
        sums[i % 8] += v;
    }
    sums.iter().sum()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn bytes(values: &[f32]) -> Vec<u8> {
        values.iter().flat_map(|v| v.to_le_bytes()).collect()
    }

    #[test]
    fn a_row_is_as_long_and_moved_as_its_numbers_say() {
        let (now, before) = (bytes(&[3.0, 4.0, 1.0, 0.0, 5.0, -5.0]), bytes(&[3.0, 4.0, 0.5, 0.0, 5.0, -4.0]));
        let earlier = Earlier { bytes: &before, steps: None, kept: None, outside: false };
        let yard = Yardstick::new(Dtype::F32, 2, &now, Some(&earlier));
        let row = |weight, peak, change| Row { weight, peak, change };
        assert_eq!(
            yard.rows,
            [row(25.0, 4.0, Change::Still), row(1.0, 1.0, Change::Moved(0.25)), row(50.0, 5.0, Change::Moved(1.0))]
        );
        assert_eq!(yard.errors(Dtype::F32, &now, &before), [0.0, 0.25, 1.0]);
        let alone = Yardstick::new(Dtype::F32, 6, &now, None);
        assert_eq!((alone.cols, alone.rows.len(), alone.rows[0].change), (6, 1, Change::Unknown));
    }

    #[test]
    fn the_tighter_bound_counts_and_nothing_over_nothing_is_exact() {
        let bounds = Bounds { weight: 0.1, update: 2.0, fast: 1.0, first: 0.01 };
        let row = |change| Row { weight: 100.0, peak: 1.0, change }.allowance(&bounds);
        assert_eq!(row(Change::Unknown), 0.01 * 0.01 * 100.0);
        assert_eq!(row(Change::Still), 0.0);
        assert_eq!(row(Change::Moved(0.04)), 0.16);
        assert_eq!(row(Change::Moved(4.0)), 0.1 * 0.1 * 100.0);
        // Without a version that is stored, the looser of the two that tell something of a first one.
        assert_eq!(row(Change::Since(0.04)), 0.16);
        assert_eq!(row(Change::Since(0.001)), 0.01 * 0.01 * 100.0);
        // Slow up to 1 %, fast from 2 % on, and so much in between.
        let fast = Bounds { fast: 2.0, ..bounds };
        let of = |rate: f64| fast.of_update(rate);
        assert_eq!([0.0, 0.01, 0.015, 0.02, 0.5, f64::NAN].map(of), [2.0, 2.0, 3.0, 4.0, 4.0, 2.0]);
        assert_eq!(Row { weight: 100.0, peak: 1.0, change: Change::Moved(0.04) }.allowance(&fast), 4.0 * 4.0 * 0.04);
        assert_eq!(Row { weight: 0.0, peak: 0.0, change: Change::Moved(1.0) }.allowance(&bounds), 0.0);
        let open = Bounds { weight: f64::INFINITY, update: f64::INFINITY, fast: 1.0, first: f64::INFINITY };
        assert_eq!(Row { weight: 0.0, peak: 0.0, change: Change::Still }.allowance(&open), f64::INFINITY);
    }

    #[test]
    fn a_change_below_the_earlier_versions_own_error_is_hidden() {
        assert_eq!(change(1.0, 0.0, 100), Change::Moved(1.0));
        assert_eq!(change(1.1, 1.0, 100), Change::Hidden(1.0));
        assert_eq!(change(3.0, 1.0, 100), Change::Moved(2.0));
        // The longer the row, the smaller the change that is seen.
        assert_eq!(change(1.1, 1.0, 1_000_000), Change::Moved(1.1 - 1.0));
        // A record that claims more error than there is distance is not believed.
        assert_eq!(change(0.01, 1.0, 100), Change::Moved(0.01));
        assert_eq!(change(0.9, 1.0, 100), Change::Hidden(0.9));
    }

    #[test]
    fn another_runs_version_tells_no_update() {
        let (now, before) = (bytes(&[1.0, 2.0, 3.0, 4.0]), bytes(&[-4.0, 3.0, -2.0, 1.0]));
        let earlier = Earlier { bytes: &before, steps: None, kept: None, outside: false };
        let yard = Yardstick::new(Dtype::F32, 2, &now, Some(&earlier));
        assert!(yard.rows.iter().all(|row| row.change == Change::Unknown), "{yard:?}");
    }
}
