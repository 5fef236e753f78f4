//! Rows of a tensor: how far each is from its reconstruction, and which are left out of a lattice.

use crate::{
    bounds::Bounds,
    bounds::yardstick::{Change, Yardstick},
};
use mdl_codec::quant::Deviation;
use mdl_store::write::TensorError;

/// How far a reconstruction is from its tensor, as a whole and by rows.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(crate) struct RowErrors {
    pub all: Deviation,
    /// Largest error of a row relative to it, squared.
    pub worst_row: f64,
    /// Squared error of rows whose update is known, and squared norm of these updates.
    pub moved: (f64, f64),
    /// Largest error of such a row relative to its update, squared.
    pub worst_update: Option<f64>,
    /// Rows that are exact because of a bound.
    pub exact_rows: u64,
    /// Rows whose update cannot be seen beside the earlier version's error.
    pub hidden_rows: u64,
}

impl RowErrors {
    pub fn new(mut all: Deviation, yard: &Yardstick, errors: &[f64], exact_rows: usize) -> RowErrors {
        if all.deviation.is_nan() || all.weight.is_nan() {
            // Exact rows may hold what is no number.
            let weights = yard.rows.iter().map(|row| row.weight).filter(|w| w.is_finite());
            (all.deviation, all.weight) = (errors.iter().sum(), weights.sum());
        }
        let mut out = RowErrors { all, exact_rows: exact_rows as u64, ..RowErrors::default() };
        for (row, &error) in yard.rows.iter().zip(errors) {
            let part = |of: f64| if error == 0.0 { 0.0 } else { error / of };
            out.worst_row = out.worst_row.max(part(row.weight));
            match row.change {
                Change::Moved(update) => {
                    out.moved = (out.moved.0 + error, out.moved.1 + update);
                    out.worst_update = Some(part(update).max(out.worst_update.unwrap_or(0.0)));
                }
                Change::Hidden(_) => out.hidden_rows += 1,
                Change::Still | Change::Kept(_) | Change::Unknown | Change::Since(_) => {}
            }
        }
        out
    }

    /// Of both together.
    pub fn and(self, other: RowErrors) -> RowErrors {
        RowErrors {
            all: self.all.and(other.all),
            worst_row: self.worst_row.max(other.worst_row),
            moved: (self.moved.0 + other.moved.0, self.moved.1 + other.moved.1),
            worst_update: self.worst_update.into_iter().chain(other.worst_update).reduce(f64::max),
            exact_rows: self.exact_rows + other.exact_rows,
            hidden_rows: self.hidden_rows + other.hidden_rows,
        }
    }

    /// Error relative to the update; none where no update is known.
    pub fn of_update(&self) -> Option<f64> {
        (self.moved.1 > 0.0).then(|| (self.moved.0 / self.moved.1).sqrt())
    }
}

impl From<RowErrors> for TensorError {
    fn from(e: RowErrors) -> TensorError {
        TensorError {
            max_abs: e.all.max_abs,
            rel_l2: e.all.rel_l2(),
            worst_row: e.worst_row.sqrt(),
            update_error: e.of_update(),
            worst_row_update: e.worst_update.map(f64::sqrt),
        }
    }
}

/// Rows whose error is larger than the bounds allow.
pub(crate) fn over(yard: &Yardstick, bounds: &Bounds, errors: &[f64]) -> Vec<usize> {
    let rows = yard.rows.iter().zip(errors).enumerate();
    // An error that is no number is over any bound.
    rows.filter(|(_, (row, error))| error.is_nan() || **error > row.allowance(bounds)).map(|(i, _)| i).collect()
}

/// Rows of a tensor's bytes.
pub(crate) struct Rows<'a> {
    pub width: usize,
    pub rows: &'a [usize],
}

impl Rows<'_> {
    fn slice<'b>(&self, bytes: &'b mut [u8], row: usize) -> &'b mut [u8] {
        let end = ((row + 1) * self.width).min(bytes.len());
        &mut bytes[row * self.width..end]
    }

    /// A copy with zeros in these rows, which a quantiser can hold; none where there are no rows.
    pub fn zeroed(&self, raw: &[u8]) -> Option<Vec<u8>> {
        let mut copy = (!self.rows.is_empty()).then(|| raw.to_vec())?;
        self.rows.iter().for_each(|&row| self.slice(&mut copy, row).fill(0));
        Some(copy)
    }

    /// Copies these rows.
    pub fn copy(&self, from: &[u8], to: &mut [u8]) {
        for &row in self.rows {
            let start = row * self.width;
            let to = self.slice(to, row);
            to.copy_from_slice(&from[start..start + to.len()]);
        }
    }
}
