//! Delta-DNN (ICPP '20): the difference to the parent's reconstruction in uniform steps whose size bounds the error,
//! then a strong general compressor.
//!
//! `M = floor((A - B) / (2 log(1 + bound)) + 1/2)` (its section 4.2), so that no number is further than `log(1 +
//! bound)` away: here that is checked and numbers that rounding carries beyond it are kept whole. The paper chooses
//! among zstd and LZMA; this is zstd at a level near LZMA's strength. Its search for the bound is the caller's
//! (`--at-error`). Without a parent B is 0.

use crate::systems::{Coder, Kept, SystemPlan, Tensor, count, get_f32, kept, lc::before, numbers};
use mdl_codec::{
    CodecError, Dtype, Result,
    engine_internals::{Cursor, put_varint},
    quant::{Values, numbers::put_all},
};

#[derive(Debug)]
pub(super) struct DeltaDnn {
    /// Absolute; positive.
    pub(super) bound: f64,
    /// Of zstd.
    pub(super) level: i32,
}

/// Marks a number that is kept whole.
const WHOLE: i32 = i32::MIN;

/// The number `q` steps from `base`, as the dtype holds it.
fn numbers_of(dtype: Dtype, base: &[f32], q: &[i32], step: f64) -> Result<Vec<f32>> {
    let far = |(&b, &q): (&f32, &i32)| (f64::from(b) + f64::from(q) * step) as f32;
    let values: Vec<f32> =
        base.iter().zip(q).map(far).map(|x| if x.is_nan() { 0.0 } else { x.clamp(f32::MIN, f32::MAX) }).collect();
    let mut bytes = vec![0; values.len() * dtype.size()];
    put_all(dtype, &values, &mut bytes);
    Ok(Values::new(dtype, &bytes)?.to_f32())
}

impl Coder for DeltaDnn {
    fn takes(&self, t: &Tensor<'_>) -> bool {
        // An f64 is not what is quantised here: the bound would not be about it.
        t.quantisable() && t.dtype != Dtype::F64
    }

    fn encode(&self, t: &Tensor<'_>, _: &SystemPlan, parent: Option<&Kept>) -> Result<Option<Vec<u8>>> {
        let Some(values) = numbers(t)? else { return Ok(None) };
        let base = before(parent, values.len())?;
        let (most, step) = (self.bound.ln_1p(), 2.0 * self.bound.ln_1p());
        let level = |(&x, &b): (&f32, &f32)| ((f64::from(x) - f64::from(b)) / step + 0.5).floor() as i32;
        let mut q: Vec<i32> = values.iter().zip(&base).map(level).collect();
        let back = numbers_of(t.dtype, &base, &q, step)?;
        let mut whole = Vec::new();
        for ((q, &y), &x) in q.iter_mut().zip(&back).zip(&values) {
            let near = (f64::from(y) - f64::from(x)).abs() <= most;
            if !near || q.unsigned_abs() > i32::MAX as u32 {
                *q = WHOLE;
                whole.extend_from_slice(&x.to_bits().to_le_bytes());
            }
        }
        let size = byte_size(&q);
        let mut raw = Vec::with_capacity(q.len() * size);
        for byte in 0..size {
            raw.extend(q.iter().map(|&q| narrow(q, size).to_le_bytes()[byte]));
        }
        raw.extend_from_slice(&whole);
        let frame = zstd::bulk::compress(&raw, self.level).map_err(|_| CodecError::BadInput("zstd refused"))?;
        let mut out = step.to_le_bytes().to_vec();
        out.push(size as u8);
        put_varint(&mut out, (whole.len() / 4) as u64);
        out.extend_from_slice(&frame);
        Ok(Some(out))
    }

    fn decode(&self, body: &[u8], dtype: Dtype, shape: &[usize], parent: Option<&Kept>) -> Result<Kept> {
        const BAD: CodecError = CodecError::Corrupt("bad differences");
        let (mut cursor, n) = (Cursor::new(body), count(shape));
        let step = cursor.take(8)?.try_into().map_or(f64::NAN, f64::from_le_bytes);
        let (size, whole) = (usize::from(cursor.u8()?), cursor.varint()?);
        if !step.is_finite() || ![1, 2, 4].contains(&size) || whole > n {
            return Err(BAD);
        }
        let raw = zstd::bulk::decompress(cursor.rest(), n * size + 4 * whole).map_err(|_| BAD)?;
        if raw.len() != n * size + 4 * whole {
            return Err(BAD);
        }
        let (planes, rest) = raw.split_at(n * size);
        let q: Vec<i32> = (0..n)
            .map(|i| {
                let mut bytes = [0; 4];
                (0..size).for_each(|b| bytes[b] = planes[b * n + i]);
                widen(i32::from_le_bytes(bytes), size)
            })
            .collect();
        let mut values = numbers_of(dtype, &before(parent, n)?, &q, step)?;
        let mut rest = Cursor::new(rest);
        for (x, _) in values.iter_mut().zip(&q).filter(|(_, q)| **q == WHOLE) {
            *x = get_f32(&mut rest)?;
        }
        rest.done()?;
        Ok(kept(dtype, shape, &values, None))
    }
}

/// Bytes that hold every level, its own mark included.
fn byte_size(q: &[i32]) -> usize {
    let most = q.iter().filter(|q| **q != WHOLE).map(|q| q.unsigned_abs()).max();
    match most.unwrap_or(0) {
        0..=127 => 1,
        128..=32767 => 2,
        _ => 4,
    }
}

/// The mark is the least number of every size.
fn narrow(q: i32, size: usize) -> i32 {
    match (q, size) {
        (WHOLE, 1) => i32::from(i8::MIN),
        (WHOLE, 2) => i32::from(i16::MIN),
        _ => q,
    }
}

fn widen(bits: i32, size: usize) -> i32 {
    let q = match size {
        1 => i32::from(bits as i8),
        2 => i32::from(bits as i16),
        _ => bits,
    };
    match (q, size) {
        (-128, 1) | (-32768, 2) => WHOLE,
        _ => q,
    }
}
