//! Dither offsets of the lattice, sixteen at a time.

use crate::quant::kmeans::{MIX_FACTORS, MIX_STEP};
use std::arch::x86_64::*;

/// The offsets of whole groups of eight pairs from pair `first` on; returns how many pairs.
///
/// # Safety
/// AVX-512.
#[target_feature(enable = "avx512f,avx512bw,avx512cd,avx512dq,avx512vl,avx512vbmi,avx512vbmi2,popcnt")]
#[inline]
pub(crate) unsafe fn offsets(seed: u64, first: u64, out: &mut [[f32; 2]]) -> usize {
    let at = |i: usize| seed.wrapping_add(first.wrapping_add(i as u64 + 1).wrapping_mul(MIX_STEP)) as i64;
    let first: [i64; 8] = std::array::from_fn(at);
    // SAFETY: eight of 64 bits.
    let mut state = unsafe { _mm512_loadu_si512(first.as_ptr().cast()) };
    let step = _mm512_set1_epi64(MIX_STEP.wrapping_mul(8) as i64);
    let factors = MIX_FACTORS.map(|f| _mm512_set1_epi64(f as i64));
    let unit = _mm512_set1_ps(1.0 / 16_777_216.0);
    let groups = out.as_chunks_mut::<8>().0;
    for group in groups.iter_mut() {
        let z = _mm512_mullo_epi64(_mm512_xor_si512(state, _mm512_srli_epi64::<30>(state)), factors[0]);
        let z = _mm512_mullo_epi64(_mm512_xor_si512(z, _mm512_srli_epi64::<27>(z)), factors[1]);
        let z = _mm512_xor_si512(z, _mm512_srli_epi64::<31>(z));
        // Bits 32 to 63 for the first of a pair, 8 to 39 for the second; the lowest eight of each fall away.
        let top = _mm512_mask_blend_epi32(0xaaaa, _mm512_srli_epi64::<32>(z), _mm512_slli_epi64::<24>(z));
        let units = _mm512_cvtepi32_ps(_mm512_srai_epi32::<8>(top));
        // SAFETY: eight pairs are 64 bytes.
        unsafe { _mm512_storeu_ps(group.as_mut_ptr().cast(), _mm512_mul_ps(units, unit)) };
        state = _mm512_add_epi64(state, step);
    }
    8 * groups.len()
}
