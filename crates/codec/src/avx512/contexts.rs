//! Tables of raw contexts, 32 lookups at a time in a list of 1024 bytes.

use crate::{entropy::LANES, quant::lattice::decode::CONTEXTS};
use std::arch::x86_64::*;

/// Bytes of the list that one instruction looks up in.
const PART: usize = 128;

/// `map[raw % 1024]` of each.
///
/// # Safety
/// AVX-512.
#[target_feature(enable = "avx512f,avx512bw,avx512cd,avx512dq,avx512vl,avx512vbmi,avx512vbmi2,popcnt")]
#[inline]
pub(crate) unsafe fn tables_of(map: &[u8; CONTEXTS], raw: &[u16; LANES], out: &mut [u8; LANES]) {
    // SAFETY: 64 bytes.
    let raw = unsafe { _mm512_loadu_si512(raw.as_ptr().cast()) };
    let places = _mm512_castsi256_si512(_mm512_cvtepi16_epi8(raw));
    let parts = _mm512_cvtepi16_epi8(_mm512_and_si512(_mm512_srli_epi16::<7>(raw), _mm512_set1_epi16(7)));
    let mut found = _mm256_setzero_si256();
    for p in 0..CONTEXTS / PART {
        // SAFETY: twice 64 of the part's bytes.
        let list = [0, 64].map(|at| unsafe { _mm512_loadu_si512(map.as_ptr().add(p * PART + at).cast()) });
        // The lowest seven bits count.
        let here = _mm512_castsi512_si256(_mm512_permutex2var_epi8(list[0], places, list[1]));
        found = _mm256_mask_mov_epi8(found, _mm256_cmpeq_epi8_mask(parts, _mm256_set1_epi8(p as i8)), here);
    }
    // SAFETY: 32 bytes.
    unsafe { _mm256_storeu_si256(out.as_mut_ptr().cast(), found) };
}
