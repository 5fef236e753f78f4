//! Bit-packed indices, and a tensor's numbers as f32 and back.

use crate::systems::{Kept, Tensor};
use mdl_codec::{
    CodecError, Dtype, Result,
    engine_internals::{BitReader, BitWriter, Cursor},
    quant::{Values, numbers::put_all},
};

/// Bits that tell `bins` indices apart; 0 for one.
pub(super) fn width(bins: usize) -> u32 {
    bins.max(1).next_power_of_two().trailing_zeros()
}

/// The finite numbers of a tensor as f32; `None` where one is not.
pub(super) fn numbers(t: &Tensor<'_>) -> Result<Option<Vec<f32>>> {
    let wide = Values::new(t.dtype, t.bytes)?.to_f32();
    Ok(wide.iter().all(|x| x.is_finite()).then_some(wide))
}

/// Appends indices of `width` bits each, at most 16.
pub(super) fn put(out: &mut Vec<u8>, indices: impl Iterator<Item = u16>, width: u32) {
    let mut w = BitWriter::default();
    indices.for_each(|i| w.put(u64::from(i), width));
    out.extend_from_slice(&w.finish());
}

/// Reads `n` indices of `width` bits each; the bytes they took are gone from the cursor.
pub(super) fn get(cursor: &mut Cursor<'_>, n: usize, width: u32) -> Result<Vec<u16>> {
    let bits = n.checked_mul(width as usize).ok_or(CodecError::Corrupt("truncated"))?;
    let mut r = BitReader::new(cursor.take(bits.div_ceil(8))?);
    Ok((0..n).map(|_| r.get(width) as u16).collect())
}

/// An f32 of the stream, which is finite.
pub(super) fn get_f32(cursor: &mut Cursor<'_>) -> Result<f32> {
    let x = f32::from_bits(cursor.u32()?);
    x.is_finite().then_some(x).ok_or(CodecError::Corrupt("a number that is not finite"))
}

/// A tensor of these finite numbers.
pub(super) fn kept(dtype: Dtype, shape: &[usize], values: &[f32], levels: Option<(Vec<u16>, u16)>) -> Kept {
    let mut bytes = vec![0; values.len() * dtype.size()];
    put_all(dtype, values, &mut bytes);
    Kept { dtype, shape: shape.to_vec(), bytes, levels }
}

/// Elements of a shape whose product is known to fit.
pub(super) fn count(shape: &[usize]) -> usize {
    shape.iter().product()
}

/// The length of a row: of the first axis.
pub(super) fn row(shape: &[usize]) -> usize {
    shape.iter().skip(1).fold(1usize, |n, &d| n.saturating_mul(d)).max(1)
}
