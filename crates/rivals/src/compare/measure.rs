//! Measures one compression system on one checkpoint.

use crate::{
    compare::Checkpoint,
    systems::{State, System},
};
use mdl_codec::{Dtype, quant::Values};
use mdl_store::{RepoError, Result};
use std::time::Instant;

/// The largest error of a row that mdl's own lossy commits allow by default, relative to the row.
pub const WEIGHT_BOUND: f64 = 0.15;

/// What came out.
#[derive(Debug)]
pub struct Measured {
    /// The system and its settings.
    pub system: String,
    /// Bytes of the tensors.
    pub logical_bytes: u64,
    /// Bytes that the system emitted, table of names and all.
    pub stored_bytes: u64,
    /// Largest |reconstruction - original| over all finite float elements.
    pub max_error: f64,
    /// ||reconstruction - original|| / ||original|| over the same.
    pub relative_error: f64,
    /// The same of the worst row (an index of all axes but the last; a tensor of one axis is one row); infinite where
    /// only the original is zero.
    pub worst_row: f64,
    /// Rows for which it is above `WEIGHT_BOUND`.
    pub rows_beyond: u64,
    /// ||reconstruction - original|| / ||original - checkpoint before||, over tensors that both checkpoints have; none
    /// for the first one, and where nothing changed.
    pub update_error: Option<f64>,
    /// Seconds to encode and to decode.
    pub encode_seconds: f64,
    /// Likewise.
    pub decode_seconds: f64,
    /// What was decoded: the parent of the next checkpoint.
    pub state: State,
}

impl Measured {
    /// How many times smaller.
    pub fn ratio(&self) -> f64 {
        self.logical_bytes as f64 / (self.stored_bytes as f64).max(1.0)
    }

    /// Millions of the tensors' bytes a second.
    pub fn encode_speed(&self) -> f64 {
        self.logical_bytes as f64 / 1e6 / self.encode_seconds.max(1e-9)
    }

    /// Likewise.
    pub fn decode_speed(&self) -> f64 {
        self.logical_bytes as f64 / 1e6 / self.decode_seconds.max(1e-9)
    }
}

/// Encodes, decodes and compares, on all threads of the current pool; times are of this one run. `before` is the
/// checkpoint before, and what the system decoded of it.
///
/// # Errors
/// A system that refuses its input, or does not read what it wrote.
pub fn measure(system: &System, checkpoint: &Checkpoint, before: Option<(&Checkpoint, &State)>) -> Result<Measured> {
    let parent = before.map(|(_, state)| state);
    let broken = |e| RepoError::User { message: format!("{}: {e}", system.name()), hint: "".into() };
    let (views, logical_bytes) = (checkpoint.views(), checkpoint.logical_bytes());
    let start = Instant::now();
    let coded = system.encode(&views, parent).map_err(broken)?;
    let encode_seconds = start.elapsed().as_secs_f64();
    let start = Instant::now();
    let state = system.decode(&coded, parent, logical_bytes as usize).map_err(broken)?;
    let decode_seconds = start.elapsed().as_secs_f64();
    let errors = Errors::new(checkpoint, before.map(|(exact, _)| exact), &state);
    Ok(Measured {
        system: system.name().to_owned(),
        logical_bytes,
        stored_bytes: coded.len() as u64,
        max_error: errors.worst,
        relative_error: relative(errors.square, errors.whole).unwrap_or(0.0),
        worst_row: errors.worst_row,
        rows_beyond: errors.rows_beyond,
        update_error: relative(errors.of_updates, errors.updates),
        encode_seconds,
        decode_seconds,
        state,
    })
}

/// The root of a sum of squares over another; infinite over zero, none where both are.
fn relative(square: f64, whole: f64) -> Option<f64> {
    (square > 0.0 || whole > 0.0).then(|| (square / whole).sqrt())
}

/// Errors of floats; sums in f64, in the order of the elements.
#[derive(Default)]
struct Errors {
    worst: f64,
    square: f64,
    whole: f64,
    worst_row: f64,
    rows_beyond: u64,
    /// Squares of the errors of tensors whose update is known, and of the updates.
    of_updates: f64,
    updates: f64,
}

impl Errors {
    fn new(checkpoint: &Checkpoint, before: Option<&Checkpoint>, state: &State) -> Errors {
        let mut out = Errors::default();
        for t in &checkpoint.tensors {
            let Some(back) = state.tensors.get(&t.name) else { continue };
            let (Some(now), Some(back)) = (numbers(t.dtype, &t.bytes), numbers(back.dtype, &back.bytes)) else {
                continue;
            };
            let square = out.add(&now, &back, t.shape.last().copied().unwrap_or(1).max(1));
            let old = before.and_then(|c| c.tensors.iter().find(|o| o.name == t.name && o.shape == t.shape));
            if let Some(old) = old.and_then(|o| numbers(o.dtype, &o.bytes)) {
                out.of_updates += square;
                out.updates += squares(&now, &old).0;
            }
        }
        out
    }

    /// Adds a tensor; the square of its error.
    fn add(&mut self, now: &[f64], back: &[f64], cols: usize) -> f64 {
        let mut all = 0.0;
        for (now, back) in now.chunks(cols).zip(back.chunks(cols)) {
            let (square, whole, worst) = squares(now, back);
            self.worst = self.worst.max(worst);
            self.whole += whole;
            all += square;
            let error = relative(square, whole).unwrap_or(0.0);
            self.worst_row = self.worst_row.max(error);
            self.rows_beyond += u64::from(error > WEIGHT_BOUND);
        }
        self.square += all;
        all
    }
}

/// Of finite numbers: the sum of squares of the differences, that of the numbers, and the largest difference.
fn squares(now: &[f64], other: &[f64]) -> (f64, f64, f64) {
    let finite = now.iter().zip(other).filter(|(a, _)| a.is_finite());
    finite.fold((0.0, 0.0, 0.0), |(square, whole, worst): (f64, f64, f64), (a, b)| {
        let off = (a - b).abs();
        (square + off * off, whole + a * a, worst.max(off))
    })
}

/// The elements of a tensor; none where they are no floats.
fn numbers(dtype: Dtype, bytes: &[u8]) -> Option<Vec<f64>> {
    if dtype == Dtype::F64 {
        return Some(bytes.as_chunks().0.iter().map(|b| f64::from_le_bytes(*b)).collect());
    }
    let values = Values::new(dtype, bytes).ok()?;
    Some(values.to_f32().into_iter().map(f64::from).collect())
}
