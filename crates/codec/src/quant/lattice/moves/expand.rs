//! Differences that are listed, added to the levels that masks name.

use super::{GROUP, MASKS, QUAD};

/// Adds the next of `steps` to every one of `levels` whose bit is set in `masks` (each below 16); returns how many that
/// took. Steps past the end are 0. The plain form of [`crate::simd::Simd::expand`].
#[inline(always)]
pub(crate) fn expand_plain(masks: &[u8; MASKS], steps: &[i8], levels: &mut [i32; GROUP]) -> usize {
    let mut taken = 0;
    for (mask, levels) in masks.iter().zip(levels.as_chunks_mut::<QUAD>().0) {
        for (bit, level) in levels.iter_mut().enumerate() {
            let set = usize::from(mask >> bit & 1);
            let step = steps.get(taken).copied().unwrap_or(0);
            *level = level.wrapping_add(i32::from(step) * set as i32);
            taken += set;
        }
    }
    taken
}

/// The place in its group of the move that is `nth` in it.
pub(super) fn place_of(masks: &[u8; MASKS], nth: usize) -> Option<usize> {
    let bits = masks.iter().enumerate().flat_map(|(m, mask)| (0..QUAD).map(move |b| (m * QUAD + b, mask >> b & 1)));
    bits.filter(|(_, set)| *set == 1).map(|(place, _)| place).nth(nth)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::simd::Simd;

    #[test]
    fn every_path_adds_the_same() {
        let mut x = 1u32;
        let mut noise = || {
            x ^= x << 13;
            x ^= x >> 17;
            x ^= x << 5;
            x
        };
        for density in [0u32, 1, 3, 8, 16] {
            let masks: [u8; MASKS] =
                std::array::from_fn(|_| (0..4).map(|b| u8::from(noise() % 16 < density) << b).sum());
            let steps: Vec<i8> = (0..GROUP + 8).map(|_| noise() as i8).collect();
            let start: [i32; GROUP] = std::array::from_fn(|_| noise() as i32);
            let mut plain = start;
            let taken = expand_plain(&masks, &steps, &mut plain);
            for all in [&steps[..], &steps[..taken]] {
                let mut fast = start;
                assert_eq!(Simd::detect().expand(&masks, all, &mut fast), taken);
                assert_eq!(plain, fast);
            }
            let moved = (0..GROUP).filter(|&i| masks[i / 4] >> (i % 4) & 1 == 1);
            moved.enumerate().for_each(|(nth, i)| assert_eq!(place_of(&masks, nth), Some(i)));
            assert_eq!(place_of(&masks, taken), None);
        }
    }
}
