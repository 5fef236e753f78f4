//! Dither offsets of the lattice, eight at a time.

use crate::quant::kmeans::{MIX_FACTORS, MIX_STEP};
use std::arch::x86_64::*;

/// The offsets of whole groups of four pairs from pair `first` on; returns how many pairs.
///
/// # Safety
/// The processor has AVX2.
#[target_feature(enable = "avx2,popcnt")]
#[inline]
pub(crate) unsafe fn offsets(seed: u64, first: u64, out: &mut [[f32; 2]]) -> usize {
    let at = |i: u64| seed.wrapping_add(first.wrapping_add(i + 1).wrapping_mul(MIX_STEP)) as i64;
    let mut state = _mm256_setr_epi64x(at(0), at(1), at(2), at(3));
    let step = _mm256_set1_epi64x(MIX_STEP.wrapping_mul(4) as i64);
    let unit = _mm256_set1_ps(1.0 / 16_777_216.0);
    let groups = out.as_chunks_mut::<4>().0;
    for group in groups.iter_mut() {
        let z = multiplied(_mm256_xor_si256(state, _mm256_srli_epi64::<30>(state)), MIX_FACTORS[0]);
        let z = multiplied(_mm256_xor_si256(z, _mm256_srli_epi64::<27>(z)), MIX_FACTORS[1]);
        let z = _mm256_xor_si256(z, _mm256_srli_epi64::<31>(z));
        // Bits 32 to 63 for the first of a pair, 8 to 39 for the second; the lowest eight of each fall away.
        let top = _mm256_blend_epi32::<0xaa>(_mm256_srli_epi64::<32>(z), _mm256_slli_epi64::<24>(z));
        let units = _mm256_cvtepi32_ps(_mm256_srai_epi32::<8>(top));
        // SAFETY: four pairs are 32 bytes.
        unsafe { _mm256_storeu_ps(group.as_mut_ptr().cast(), _mm256_mul_ps(units, unit)) };
        state = _mm256_add_epi64(state, step);
    }
    4 * groups.len()
}

/// The low 64 bits of each product.
#[target_feature(enable = "avx2,popcnt")]
#[inline]
fn multiplied(a: __m256i, b: u64) -> __m256i {
    let (low, high) = (_mm256_set1_epi64x(b as i64), _mm256_set1_epi64x((b >> 32) as i64));
    let across = _mm256_add_epi64(_mm256_mul_epu32(_mm256_srli_epi64::<32>(a), low), _mm256_mul_epu32(a, high));
    _mm256_add_epi64(_mm256_mul_epu32(a, low), _mm256_slli_epi64::<32>(across))
}
