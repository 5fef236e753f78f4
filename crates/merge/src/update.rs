//! Applies the change between two versions to a third: what a revert and a cherry-pick do to weights.

use crate::{
    MergeError,
    blocks::ELEMENTS,
    element::{check_float, round, widen},
};
use mdl_codec::Dtype;
use rayon::prelude::*;

/// `current + scale * (to - from)`, for each element in f64 and rounded once, as the crate says.
///
/// Two cases are exact whatever the bytes mean, so that what nothing else touched comes back bit for bit: where `to`
/// has the bytes of `from`, `current` stays; where `current` has the bytes of `from` and `scale` is 1, it becomes
/// `to`. Elements that are no floats (integers, booleans, bytes) can only be changed so.
///
/// All three are little-endian elements of `dtype`, of one length.
///
/// # Errors
/// The lengths differ; `scale` is not finite; elements that are no floats changed on both sides.
pub fn apply_update(dtype: Dtype, current: &[u8], from: &[u8], to: &[u8], scale: f64) -> Result<Vec<u8>, MergeError> {
    if let Some(other) = [from, to].iter().find(|bytes| bytes.len() != current.len()) {
        return Err(MergeError::Length { expected: current.len(), found: other.len() });
    }
    if !scale.is_finite() {
        return Err(MergeError::Parameter { parameter: "scale", value: scale, range: "among finite numbers" });
    }
    if from == to {
        return Ok(current.to_vec());
    }
    if current == from && scale == 1.0 {
        return Ok(to.to_vec());
    }
    check_float(dtype)?;
    let block = ELEMENTS * dtype.size();
    let mut out = current.to_vec();
    out.par_chunks_mut(block)
        .zip(from.par_chunks(block).zip(to.par_chunks(block)))
        .for_each(|(current, (from, to))| apply_block(dtype, current, from, to, scale));
    Ok(out)
}

fn apply_block(dtype: Dtype, current: &mut [u8], from: &[u8], to: &[u8], scale: f64) {
    let size = dtype.size();
    let values = |bytes: &[u8]| {
        let mut out = vec![0.0; bytes.len() / size];
        widen(dtype, bytes, &mut out);
        out
    };
    let mut sums = values(current);
    for (sum, (from, to)) in sums.iter_mut().zip(values(from).iter().zip(values(to))) {
        *sum += scale * (to - from);
    }
    let mut rounded = vec![0; current.len()];
    round(dtype, &sums, &mut rounded);
    let elements = from.chunks_exact(size).zip(to.chunks_exact(size)).zip(rounded.chunks_exact(size));
    for (current, ((from, to), rounded)) in current.chunks_exact_mut(size).zip(elements) {
        if from == to {
            continue;
        }
        let becomes_to = scale == 1.0 && current == from;
        current.copy_from_slice(if becomes_to { to } else { rounded });
    }
}
