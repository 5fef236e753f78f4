//! LC-Checkpoint (ICML '20, "On efficient constructions of checkpoints"): the difference to the parent's reconstruction
//! in buckets by sign and exponent, the buckets of the largest exponents promoted, Huffman.
//!
//! A bucket stands for the middle between its least and largest number; "priority promotion" to b bits keeps 2^b - 1
//! buckets and makes the rest 0. Without a parent the difference is the tensor itself.

use crate::systems::{Coder, Kept, SystemPlan, Tensor, count, get_f32, kept, numbers};
use mdl_codec::{
    CodecError, Dtype, Result,
    engine_internals::{Cursor, put_varint},
    quant::{
        Values,
        paper::{Levels, Variant, decode, encode},
    },
};
use std::collections::BTreeMap;

#[derive(Debug)]
pub(super) struct Lc {
    /// Of a bucket's number before Huffman, 1 to 8.
    pub(super) bits: u32,
}

/// The parent's numbers, or zeros.
pub(super) fn before(parent: Option<&Kept>, n: usize) -> Result<Vec<f32>> {
    parent.map_or_else(|| Ok(vec![0.0; n]), |p| Ok(Values::new(p.dtype, &p.bytes)?.to_f32()))
}

/// Exponent above sign, so that larger buckets have larger numbers; 0 is below all.
fn bucket(x: f32) -> u32 {
    (x.to_bits() >> 23 & 0xFF) << 1 | x.to_bits() >> 31
}

impl Coder for Lc {
    fn encode(&self, t: &Tensor<'_>, _: &SystemPlan, parent: Option<&Kept>) -> Result<Option<Vec<u8>>> {
        let Some(values) = numbers(t)? else { return Ok(None) };
        let base = before(parent, values.len())?;
        let delta: Vec<f32> = values.iter().zip(&base).map(|(x, p)| x - p).collect();
        let mut ends = BTreeMap::<u32, (f32, f32)>::new();
        for &d in &delta {
            if !d.is_finite() {
                return Ok(None);
            }
            let e = ends.entry(bucket(d)).or_insert((d, d));
            *e = (e.0.min(d), e.1.max(d));
        }
        // Zeros need no bucket.
        let promoted: Vec<(u32, f32)> = ends
            .iter()
            .rev()
            .filter(|(b, _)| **b > 1)
            .take((1 << self.bits) - 1)
            .map(|(&b, &(low, high))| (b, low / 2.0 + high / 2.0))
            .collect();
        let levels: BTreeMap<u32, u16> = promoted.iter().zip(1..).map(|(&(b, _), l)| (b, l)).collect();
        let symbols: Vec<u16> = delta.iter().map(|&d| levels.get(&bucket(d)).copied().unwrap_or(0)).collect();
        let mut out = Vec::new();
        put_varint(&mut out, promoted.len() as u64);
        for (_, middle) in &promoted {
            out.extend_from_slice(&middle.to_bits().to_le_bytes());
        }
        let bins = promoted.len() as u16 + 1;
        out.extend(encode(Variant::He, Levels::new(&symbols, bins)?, None)?);
        Ok(Some(out))
    }

    fn decode(&self, body: &[u8], dtype: Dtype, shape: &[usize], parent: Option<&Kept>) -> Result<Kept> {
        let (mut cursor, n) = (Cursor::new(body), count(shape));
        let k = cursor.varint()?;
        let middles = (0..k).map(|_| get_f32(&mut cursor)).collect::<Result<Vec<_>, _>>()?;
        let symbols = decode(cursor.rest(), n, None)?;
        let mut values = before(parent, n)?;
        for (x, &s) in values.iter_mut().zip(&symbols) {
            if s > 0 {
                let middle = middles.get(usize::from(s) - 1);
                let sum = *x + *middle.ok_or(CodecError::Corrupt("a bucket that is not there"))?;
                *x = sum.clamp(f32::MIN, f32::MAX);
            }
        }
        Ok(kept(dtype, shape, &values, None))
    }
}
