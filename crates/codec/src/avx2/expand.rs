//! Listed differences added to levels by masks, eight levels at a time.

use crate::quant::lattice::moves::{GROUP, MASKS};
use std::arch::x86_64::*;

/// For every mask of eight: byte shuffle that deals the next bytes to the bits that are set, zeros to the others.
static DEAL: [[u8; 8]; 256] = {
    let mut t = [[0x80u8; 8]; 256];
    let mut mask = 0;
    while mask < 256 {
        let (mut bit, mut dealt) = (0, 0);
        while bit < 8 {
            if mask >> bit & 1 == 1 {
                t[mask][bit] = dealt;
                dealt += 1;
            }
            bit += 1;
        }
        mask += 1;
    }
    t
};

/// [`crate::quant::lattice::moves::expand_plain`]. `steps` has at least `GROUP + 8` more.
///
/// # Safety
/// AVX2 and POPCNT; every mask is below 16.
#[target_feature(enable = "avx2,popcnt")]
#[inline]
pub(crate) unsafe fn expand(masks: &[u8; MASKS], steps: &[i8; GROUP + 8], levels: &mut [i32; GROUP]) -> usize {
    let mut taken = 0usize;
    for (pair, levels) in masks.as_chunks::<2>().0.iter().zip(levels.as_chunks_mut::<8>().0) {
        let mask = usize::from(pair[0] | pair[1] << 4);
        // SAFETY: at most eight steps are taken for each of 16 pairs, so that eight more are there; eight levels are 32
        // bytes; a byte is below 256.
        unsafe {
            let next = _mm_loadl_epi64(steps.as_ptr().add(taken).cast());
            let dealt = _mm_shuffle_epi8(next, _mm_loadl_epi64(DEAL.as_ptr().add(mask).cast()));
            let at = levels.as_mut_ptr().cast();
            let sum = _mm256_add_epi32(_mm256_loadu_si256(at), _mm256_cvtepi8_epi32(dealt));
            _mm256_storeu_si256(at, sum);
        }
        taken += mask.count_ones() as usize;
    }
    taken
}
