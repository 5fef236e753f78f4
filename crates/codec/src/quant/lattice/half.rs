//! Floats of 2 and 4 bytes to f32 and back.

use crate::Dtype;

/// The elements of `raw` (little-endian f32, f16 or bf16; at most as many as `out` holds) as f32.
#[inline(always)]
pub(crate) fn widen(dtype: Dtype, raw: &[u8], out: &mut [f32]) {
    let halves = raw.as_chunks::<2>().0;
    match dtype {
        Dtype::F32 => {
            for (o, b) in out.iter_mut().zip(raw.as_chunks::<4>().0) {
                *o = f32::from_le_bytes(*b);
            }
        }
        Dtype::F16 => {
            for (o, b) in out.iter_mut().zip(halves) {
                *o = from_f16(u16::from_le_bytes(*b));
            }
        }
        _ => {
            for (o, b) in out.iter_mut().zip(halves) {
                *o = f32::from_bits(u32::from(u16::from_le_bytes(*b)) << 16);
            }
        }
    }
}

/// Writes `values` as little-endian elements of `dtype` (f32, f16 or bf16).
#[inline(always)]
pub(crate) fn narrow(dtype: Dtype, values: &[f32], out: &mut [u8]) {
    match dtype {
        Dtype::F32 => {
            for (o, v) in out.as_chunks_mut::<4>().0.iter_mut().zip(values) {
                *o = v.to_le_bytes();
            }
        }
        Dtype::F16 => {
            for (o, v) in out.as_chunks_mut::<2>().0.iter_mut().zip(values) {
                *o = to_f16(*v).to_le_bytes();
            }
        }
        _ => {
            for (o, v) in out.as_chunks_mut::<2>().0.iter_mut().zip(values) {
                *o = to_bf16(*v).to_le_bytes();
            }
        }
    }
}

/// Upper half of an f32, rounded to nearest, ties to even; NaN stays NaN.
#[inline(always)]
pub(crate) fn to_bf16(v: f32) -> u16 {
    let b = v.to_bits();
    if b & 0x7fff_ffff > 0x7f80_0000 { (b >> 16) as u16 | 0x40 } else { ((b + 0x7fff + (b >> 16 & 1)) >> 16) as u16 }
}

/// The value of an f16; exact.
#[inline(always)]
pub(crate) fn from_f16(h: u16) -> f32 {
    let (sign, m) = (u32::from(h & 0x8000) << 16, u32::from(h & 0x7fff));
    let magnitude = if m >= 0x7c00 {
        0x7f80_0000 | (m & 0x3ff) << 13
    } else {
        // The exponents' biases differ by 112; a product with a power of two is exact, also from below the normal
        // range.
        (f32::from_bits(m << 13) * f32::from_bits((127 + 112) << 23)).to_bits()
    };
    f32::from_bits(sign | magnitude)
}

/// An f32 rounded to f16, to nearest, ties to even; NaN stays NaN.
#[inline(always)]
pub(crate) fn to_f16(v: f32) -> u16 {
    let b = v.to_bits();
    let (sign, m) = ((b >> 16) as u16 & 0x8000, b & 0x7fff_ffff);
    let magnitude = if m > 0x7f80_0000 {
        0x7e00
    } else if m >= 0x477f_f000 {
        0x7c00
    } else if m < 0x3880_0000 {
        // Below 2^-14: numbers next to 1/2 have the same spacing as subnormal halves, so the sum rounds as they do.
        (f32::from_bits(m) + 0.5).to_bits() - 0.5f32.to_bits()
    } else {
        (m + 0xfff + (m >> 13 & 1) - (112 << 23)) >> 13
    };
    sign | magnitude as u16
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_half_comes_back_and_ties_go_to_even() {
        for dtype in [Dtype::F16, Dtype::BF16] {
            let raw: Vec<u8> = (0..=u16::MAX).flat_map(u16::to_le_bytes).collect();
            let (mut wide, mut back) = (vec![0.0; 1 << 16], vec![0; raw.len()]);
            widen(dtype, &raw, &mut wide);
            narrow(dtype, &wide, &mut back);
            for (h, (a, b)) in raw.chunks(2).zip(back.chunks(2)).enumerate() {
                assert!(a == b || wide[h].is_nan(), "{dtype} {h:x}");
            }
            // Halfway between neighbours of one sign: the even one.
            for h in (0..0x7c00u16).filter(|h| wide[usize::from(*h) + 1].is_finite()) {
                let (a, b) = (wide[usize::from(h)], wide[usize::from(h) + 1]);
                let mut out = [0; 2];
                narrow(dtype, &[a + (b - a) / 2.0], &mut out);
                assert_eq!(u16::from_le_bytes(out), h + (h & 1), "{dtype} {h:x}");
            }
        }
        assert_eq!(
            (from_f16(0x3c00), from_f16(1), to_f16(65520.0), to_f16(f32::MAX)),
            (1.0, 2f32.powi(-24), 0x7c00, 0x7c00)
        );
    }
}
