//! Rows that are the base's times one factor: what decoupled weight decay (AdamW) makes of rows without a gradient.

use crate::{
    Dtype,
    quant::lattice::half::{narrow, widen},
};
use std::collections::BTreeMap;

/// Elements that are widened at a time.
const PIECE: usize = 1024;
/// Bytes of the shortest row that is thought to be another one times a factor.
const SHORTEST: usize = 32;

/// Writes the elements of `base` times `factor` to `out`: the product in f32, rounded to nearest, ties to even, then
/// to the dtype (f32, bf16 or f16). Elements that are not finite stay as they are.
pub fn times(dtype: Dtype, base: &[u8], factor: f32, out: &mut [u8]) {
    let (size, bytes) = (dtype.size(), PIECE * dtype.size());
    let [mut wide, mut scaled] = [[0f32; PIECE]; 2];
    for (base, out) in base.chunks(bytes).zip(out.chunks_mut(bytes)) {
        let n = base.len() / size;
        widen(dtype, base, &mut wide[..n]);
        for (scaled, v) in scaled.iter_mut().zip(&wide[..n]) {
            *scaled = v * factor;
        }
        narrow(dtype, &scaled[..n], out);
        for (i, _) in wide[..n].iter().enumerate().filter(|(_, v)| !v.is_finite()) {
            out[i * size..(i + 1) * size].copy_from_slice(&base[i * size..(i + 1) * size]);
        }
    }
}

/// Whether a row is the base's times the factor.
pub(super) fn is_scaled(dtype: Dtype, row: &[u8], base: &[u8], factor: f32) -> bool {
    let bytes = PIECE * dtype.size();
    let mut made = [0; 4 * PIECE];
    row.chunks(bytes).zip(base.chunks(bytes)).all(|(row, base)| {
        times(dtype, base, factor, &mut made[..base.len()]);
        made[..base.len()] == *row
    })
}

/// The factor that most elements of these rows, each beside the base's, are the base's times; none where no row is.
/// Only f32 is looked at: in halves what decay does is lost in rounding. Short rows are not looked at: any number is
/// another one times a factor.
pub(super) fn find<'a>(dtype: Dtype, rows: impl Iterator<Item = (&'a [u8], &'a [u8])>) -> Option<f32> {
    if dtype != Dtype::F32 {
        return None;
    }
    let mut votes: BTreeMap<u32, usize> = BTreeMap::new();
    for (row, base) in rows {
        if row.len() < SHORTEST {
            continue;
        }
        let factor = ratio(row, base);
        // A factor of zero would make one row of zeros of any base.
        if factor.is_finite() && factor != 0.0 && is_scaled(dtype, row, base, factor) {
            *votes.entry(factor.to_bits()).or_default() += row.len();
        }
    }
    // Of equals the first.
    votes.into_iter().rev().max_by_key(|(_, len)| *len).map(|(bits, _)| f32::from_bits(bits))
}

/// The factor of least squares of f32 elements: sums in f64, in the order of the elements.
fn ratio(row: &[u8], base: &[u8]) -> f32 {
    let (mut both, mut square) = (0.0, 0.0);
    for (x, b) in row.as_chunks::<4>().0.iter().zip(base.as_chunks::<4>().0) {
        let (x, b) = (f64::from(f32::from_le_bytes(*x)), f64::from(f32::from_le_bytes(*b)));
        both += x * b;
        square += b * b;
    }
    (both / square) as f32
}

#[cfg(test)]
mod tests {
    use super::*;

    fn bytes(values: &[f32]) -> Vec<u8> {
        values.iter().flat_map(|v| v.to_le_bytes()).collect()
    }

    #[test]
    fn a_product_is_rounded_once_and_what_is_not_finite_stays() {
        let odd = f32::from_bits(0x7fa0_1234);
        let base = [1.0, -3.5, 0.0, f32::MAX, f32::INFINITY, odd, 1e-45];
        let mut out = vec![0; 28];
        times(Dtype::F32, &bytes(&base), 1.5, &mut out);
        assert_eq!(out, bytes(&[1.5, -5.25, 0.0, f32::INFINITY, f32::INFINITY, odd, 3e-45]));
        // bf16: 1.0 and 1.0078125 times 1.01 are 1.0078125 and 1.015625.
        let mut out = vec![0; 4];
        times(Dtype::BF16, &[0x80, 0x3f, 0x81, 0x3f], 1.01, &mut out);
        assert_eq!(out, [0x81, 0x3f, 0x82, 0x3f]);
    }

    #[test]
    fn the_factor_of_most_rows_is_found() {
        let base: Vec<Vec<u8>> = (0..9u16)
            .map(|r| bytes(&(1..40u16).map(|i| (f32::from(r * 40 + i)).sin() * 0.05).collect::<Vec<_>>()))
            .collect();
        let factors = [0.999_994, 0.5, 0.999_994, 1.25, 0.999_994];
        let rows: Vec<Vec<u8>> = base
            .iter()
            .enumerate()
            .map(|(i, base)| {
                let mut row = vec![0; base.len()];
                times(Dtype::F32, base, factors.get(i).copied().unwrap_or(2.0), &mut row);
                // One number of the others is off.
                if i >= factors.len() {
                    row[0] ^= 1;
                }
                row
            })
            .collect();
        let pairs = || rows.iter().zip(&base).map(|(r, b)| (r.as_slice(), b.as_slice()));
        assert_eq!(find(Dtype::F32, pairs()), Some(0.999_994));
        assert_eq!(find(Dtype::F32, pairs().skip(5)), None);
        assert_eq!(find(Dtype::BF16, pairs()), None);
        let zeros = vec![0; 16];
        assert_eq!(find(Dtype::F32, [(zeros.as_slice(), zeros.as_slice())].into_iter()), None);
    }
}
