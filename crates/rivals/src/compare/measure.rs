//! Measures one compression system on one checkpoint.

use crate::{
    compare::Checkpoint,
    systems::{State, System},
};
use mdl_codec::{Dtype, quant::Values};
use mdl_store::{RepoError, Result};
use std::time::Instant;

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

/// Encodes, decodes and compares, on all threads of the current pool; times are of this one run.
///
/// # Errors
/// A system that refuses its input, or does not read what it wrote.
pub fn measure(system: &System, checkpoint: &Checkpoint, parent: Option<&State>) -> Result<Measured> {
    let broken = |e| RepoError::User { message: format!("{}: {e}", system.name()), hint: "".into() };
    let (views, logical_bytes) = (checkpoint.views(), checkpoint.logical_bytes());
    let start = Instant::now();
    let coded = system.encode(&views, parent).map_err(broken)?;
    let encode_seconds = start.elapsed().as_secs_f64();
    let start = Instant::now();
    let state = system.decode(&coded, parent, logical_bytes as usize).map_err(broken)?;
    let decode_seconds = start.elapsed().as_secs_f64();
    let (max_error, relative_error) = errors(checkpoint, &state);
    Ok(Measured {
        system: system.name().to_owned(),
        logical_bytes,
        stored_bytes: coded.len() as u64,
        max_error,
        relative_error,
        encode_seconds,
        decode_seconds,
        state,
    })
}

/// Largest and relative error of floats; sums in f64, in the order of the elements.
fn errors(checkpoint: &Checkpoint, state: &State) -> (f64, f64) {
    let (mut worst, mut square, mut whole) = (0f64, 0f64, 0f64);
    for t in &checkpoint.tensors {
        let Some(back) = state.tensors.get(&t.name) else {
            continue;
        };
        if t.dtype == Dtype::F64 {
            let number = |b: &[u8; 8]| f64::from_le_bytes(*b);
            let pairs = t.bytes.as_chunks().0.iter().zip(back.bytes.as_chunks().0);
            pairs.for_each(|(a, b)| add(number(a), number(b), &mut worst, &mut square, &mut whole));
            continue;
        }
        let (Ok(a), Ok(b)) = (Values::new(t.dtype, &t.bytes), Values::new(back.dtype, &back.bytes)) else {
            continue;
        };
        for (a, b) in a.to_f32().into_iter().zip(b.to_f32()) {
            add(f64::from(a), f64::from(b), &mut worst, &mut square, &mut whole);
        }
    }
    (worst, if whole > 0.0 { (square / whole).sqrt() } else { square.sqrt() })
}

fn add(a: f64, b: f64, worst: &mut f64, square: &mut f64, whole: &mut f64) {
    if a.is_finite() {
        let off = (a - b).abs();
        *worst = worst.max(off);
        *square += off * off;
        *whole += a * a;
    }
}
