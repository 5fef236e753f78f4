//! NeuZip's lossy variant: few mantissa bits, blocks scaled so that their largest number is exact.
//!
//! NeuZip (arXiv 2410.20650), section 2.3: the exponent is kept (and entropy-coded), sign and the k highest mantissa
//! bits take 1 + k bits, k of 0, 1 or 3 so that they fill bytes; a block is normalised by the mantissa of its largest
//! number, "while ignoring the exponent", so that the number that matters most suffers no rounding. The coefficient
//! takes 8 bits: it is a bf16's mantissa.

mod fields;
mod segment;

use crate::{
    CodecError, Dtype, Result,
    quant::{Values, put_all, to_bf16},
};
use rayon::prelude::*;
pub use segment::{CHUNK, decode, encode};

/// Mantissa bits that NeuZip keeps.
pub const KEPT: [u32; 3] = [0, 1, 3];
/// Elements that share a coefficient: NeuZip's Table 4; 512 is its default.
pub const BLOCKS: [usize; 5] = [32, 64, 128, 256, 512];

/// A number in lossy form.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Code {
    /// Biased exponent of the scaled f32, 1 to 254; 0 for zero (and what is subnormal).
    pub exponent: u8,
    /// Bit k is the sign, the k below it the mantissa's highest.
    pub rest: u8,
}

/// A tensor in lossy form: what NeuZip stores.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Coded {
    /// Of each element.
    pub codes: Vec<Code>,
    /// Of each block: the mantissa of its largest number, 7 bits, rounded; the coefficient is 1 + mantissa / 128.
    pub mantissas: Vec<u8>,
}

fn check(keep: u32, block: usize) -> Result<()> {
    if KEPT.contains(&keep) && BLOCKS.contains(&block) {
        return Ok(());
    }
    Err(CodecError::BadInput("NeuZip keeps 0, 1 or 3 mantissa bits in blocks of 32 to 512 elements"))
}

/// Exponents, signs and mantissas of a tensor (f64, f32, f16 or bf16). Numbers are rounded to nearest, ties to even;
/// the largest of a block keeps 8 significant bits. `None` for NaNs and infinities (as f32).
///
/// # Errors
/// [`CodecError::BadInput`] unless `keep` is in [`KEPT`] and `block` in [`BLOCKS`].
pub fn quantise(values: Values<'_>, keep: u32, block: usize) -> Result<Option<Coded>> {
    check(keep, block)?;
    let parts: Option<Vec<(Vec<Code>, u8)>> = (0..values.len().div_ceil(block))
        .into_par_iter()
        .with_min_len(64)
        .map_init(Vec::new, |wide, i| {
            values.part(i * block, block).widen(wide);
            quantise_block(wide, keep)
        })
        .collect();
    Ok(parts.map(|parts| {
        let mut coded = Coded::default();
        for (codes, mantissa) in parts {
            coded.codes.extend(codes);
            coded.mantissas.push(mantissa);
        }
        coded
    }))
}

fn quantise_block(values: &[f32], keep: u32) -> Option<(Vec<Code>, u8)> {
    if !values.iter().all(|x| x.is_finite()) {
        return None;
    }
    let mantissa = mantissa_of(values.iter().fold(0f32, |m, x| m.max(x.abs())));
    let scale = coefficient(mantissa);
    Some((values.iter().map(|&x| code(x / scale, keep)).collect(), mantissa))
}

/// The mantissa of a block's largest number, which is that of its coefficient.
#[inline(always)]
fn mantissa_of(largest: f32) -> u8 {
    (to_bf16(largest) & 0x7F) as u8
}

/// 1 to 1.992.
#[inline(always)]
fn coefficient(mantissa: u8) -> f32 {
    f32::from_bits(127 << 23 | u32::from(mantissa & 0x7F) << 16)
}

/// Rounds the mantissa to `keep` bits, to nearest, ties to even; it may carry into the exponent.
#[inline(always)]
fn code(x: f32, keep: u32) -> Code {
    let (sign, drop) = (x.to_bits() >> 31, 23 - keep);
    let magnitude = x.to_bits() & 0x7FFF_FFFF;
    let rounded = (magnitude + (1 << (drop - 1)) - 1 + (magnitude >> drop & 1)) >> drop;
    let rounded = rounded.min((255 << keep) - 1);
    let exponent = (rounded >> keep) as u8;
    // Below the normal numbers nothing is left of the mantissa but the sign.
    let mantissa = if exponent > 0 { rounded & ((1 << keep) - 1) } else { 0 };
    Code { exponent, rest: (sign << keep | mantissa) as u8 }
}

/// The numbers that codes stand for, as little-endian elements of `dtype`; zero has no sign.
///
/// # Errors
/// [`CodecError::BadInput`] for `keep` and `block` as in [`quantise`], dtypes that are no such floats, and as many
/// coefficients as there are not blocks.
pub fn reconstruct(dtype: Dtype, coded: &Coded, keep: u32, block: usize) -> Result<Vec<u8>> {
    check(keep, block)?;
    super::Grid::from_dtype(dtype)?;
    if coded.mantissas.len() != coded.codes.len().div_ceil(block) {
        return Err(CodecError::BadInput("a coefficient for each block is needed"));
    }
    let size = dtype.size();
    let mut out = vec![0; coded.codes.len() * size];
    let blocks = out.par_chunks_mut(block * size).zip(coded.codes.par_chunks(block)).zip(&coded.mantissas);
    blocks.for_each(|((out, codes), &mantissa)| {
        let scale = coefficient(mantissa);
        let values: Vec<f32> = codes.iter().map(|&c| number(c, keep, scale)).collect();
        put_all(dtype, &values, out);
    });
    Ok(out)
}

#[inline(always)]
fn number(code: Code, keep: u32, scale: f32) -> f32 {
    if code.exponent == 0 {
        return 0.0;
    }
    let (sign, mantissa) = (u32::from(code.rest) >> keep & 1, u32::from(code.rest) & ((1 << keep) - 1));
    let x = f32::from_bits(sign << 31 | u32::from(code.exponent) << 23 | mantissa << (23 - keep)) * scale;
    x.clamp(f32::MIN, f32::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::quant::uniform;

    fn run(values: &[f32], keep: u32, block: usize) -> Option<Vec<f32>> {
        let raw: Vec<u8> = values.iter().flat_map(|x| x.to_le_bytes()).collect();
        let coded = quantise(Values::new(Dtype::F32, &raw).unwrap(), keep, block).unwrap()?;
        let back = reconstruct(Dtype::F32, &coded, keep, block).unwrap();
        Some(back.as_chunks::<4>().0.iter().map(|b| f32::from_le_bytes(*b)).collect())
    }

    #[test]
    fn the_error_is_bounded_and_the_largest_of_a_block_is_kept() {
        let values: Vec<f32> =
            (0..5000).map(|i| (((uniform(1, i) - 0.5) * 20.0).exp2() * (uniform(2, i) - 0.5)) as f32).collect();
        for keep in KEPT {
            for block in BLOCKS {
                let back = run(&values, keep, block).unwrap();
                // Half a step of the mantissa at 1, which rounding to the next power of 2 makes half of 2^-k.
                let bound = 0.501 / f32::from(1u8 << keep) + 0.001;
                assert!(values.iter().zip(&back).all(|(x, y)| (x - y).abs() <= bound * x.abs()));
                for (x, y) in values.chunks(block).zip(back.chunks(block)) {
                    let top = x.iter().copied().max_by(|a, b| a.abs().total_cmp(&b.abs())).unwrap();
                    assert!(y.iter().any(|y| (y - top).abs() <= top.abs() / 255.0), "{keep} {block}");
                }
            }
        }
    }

    #[test]
    fn hostile_numbers() {
        assert!(run(&[1.0, f32::NAN], 3, 32).is_none() && run(&[f32::INFINITY], 0, 512).is_none());
        assert_eq!(run(&[], 1, 32).unwrap(), []);
        assert_eq!(run(&[-0.0, 0.0, f32::from_bits(1)], 0, 32).unwrap(), [0.0; 3]);
        assert!(run(&[f32::MAX, f32::MIN, 1e-38, 1.9e38], 0, 32).unwrap().iter().all(|x| x.is_finite()));
        let raw = [0u8; 4];
        let values = Values::new(Dtype::F32, &raw).unwrap();
        assert!(quantise(values, 2, 512).is_err() && quantise(values, 3, 48).is_err());
        let coded = quantise(values, 3, 32).unwrap().unwrap();
        assert!(reconstruct(Dtype::I32, &coded, 3, 32).is_err());
        let none = Coded { mantissas: vec![], ..coded };
        assert!(reconstruct(Dtype::F32, &none, 3, 32).is_err());
    }
}
