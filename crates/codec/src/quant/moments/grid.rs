//! Logarithmic grid of magnitudes over the whole number line. Bits and integers only: the same on every machine.

use crate::quant::moments::Bits;

/// Mantissa of the square root of 2: from here on a number is nearer, as a ratio, to the next power of 2.
const ROOT: u32 = 0x35_04f3;
/// An octave's level stands at 1.0234 times the power of 2: the mean of numbers between 2^-1/2 and 2^1/2 whose
/// logarithm is evenly spread is 1.0201; this is the bf16 next to it, so that no low byte has to be stored.
const OCTAVE_MEAN: u32 = 0x3f83_0000;
/// Exponent field of 1.0.
const ONE: u32 = 127;
/// The least normal number.
const LEAST: u32 = 1 << 23;
/// Mantissa bits that are dropped to keep 3.
const DROP: u32 = 20;

/// Index of a positive finite magnitude: ascending, one more for each level up. Subnormals count as the least normal
/// number.
#[inline(always)]
pub(super) fn index(bits: Bits, magnitude: f32) -> u32 {
    let x = magnitude.to_bits().max(LEAST);
    match bits {
        Bits::Four => ((x >> 23) + u32::from(x & (LEAST - 1) >= ROOT)).min(254),
        Bits::Eight => {
            let half = (1 << (DROP - 1)) - 1;
            ((x + half + (x >> DROP & 1)) >> DROP).min((255 << 3) - 1)
        }
    }
}

/// The number at an index that [`index`] gave, or less by any count of levels: never below the least normal number.
#[inline(always)]
pub(super) fn value(bits: Bits, index: u32) -> f32 {
    f32::from_bits(match bits {
        // The mean is below 2, so that the exponent may be set as it is.
        Bits::Four => OCTAVE_MEAN - (ONE << 23) + (index.max(1) << 23),
        Bits::Eight => index.max(1 << 3) << DROP,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_magnitude_finds_its_nearest_level() {
        for bits in [Bits::Four, Bits::Eight] {
            let mut last = 0;
            for x in (1..0x7f80_0000u32).step_by(9_973) {
                let x = f32::from_bits(x);
                let i = index(bits, x);
                assert!(i >= last && value(bits, i).is_finite());
                last = i;
                assert_eq!(index(bits, value(bits, i)), i, "{x:e}: a level is its own");
                if x.is_normal() && x < 2e38 {
                    let ratio = f64::from(value(bits, i)) / f64::from(x);
                    let most = if bits == Bits::Four { 1.4474 } else { 1.0626 };
                    assert!(ratio < most && ratio > 1.0 / most, "{x:e}: {ratio}");
                }
            }
        }
    }
}
