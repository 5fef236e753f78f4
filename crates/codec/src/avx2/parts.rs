//! A float's parts and the bit planes of its fields, 32 elements at a time. Neighbours: `float`, `bitplane` and `low` are
//! the portable doubles, `simd` calls. It must not give other bytes than they do.

use crate::float::Cut;
use crate::low;
use std::arch::x86_64::*;

/// Writes the planes of whole groups of 32 fields to `out`, which has room for exactly them.
///
/// # Safety
/// The processor has AVX2.
#[target_feature(enable = "avx2,popcnt")]
pub(crate) unsafe fn put_planes(fields: &[u8], bits: u32, out: &mut [u8]) {
    let shift = _mm_cvtsi32_si128(8 - bits as i32);
    for (group, words) in fields
        .as_chunks::<32>()
        .0
        .iter()
        .zip(out.chunks_exact_mut(bits as usize * 4))
    {
        // SAFETY: the group has 32 bytes.
        let mut v = unsafe { _mm256_loadu_si256(group.as_ptr().cast()) };
        v = _mm256_sll_epi16(v, shift);
        for w in words.as_chunks_mut::<4>().0.iter_mut().rev() {
            *w = _mm256_movemask_epi8(v).to_le_bytes();
            v = _mm256_add_epi8(v, v);
        }
    }
}

/// Heads of whole groups of 32 elements from their symbols and the planes of their fields.
///
/// # Safety
/// The processor has AVX2.
#[target_feature(enable = "avx2,popcnt")]
pub(crate) unsafe fn heads(cut: Cut, symbols: &[u8], planes: &[u8], out: &mut [u8]) {
    let bits = cut.field_bits();
    let below = bits - 1;
    let spread = _mm256_setr_epi8(
        0, 0, 0, 0, 0, 0, 0, 0, 1, 1, 1, 1, 1, 1, 1, 1, 2, 2, 2, 2, 2, 2, 2, 2, 3, 3, 3, 3, 3, 3, 3, 3,
    );
    let pick = _mm256_set1_epi64x(0x8040_2010_0804_0201u64 as i64);
    let (lo, mask) = (
        _mm256_set1_epi16(cut.lo as i16 - 1),
        _mm256_set1_epi16((1 << below) - 1),
    );
    let (up, top) = (
        _mm_cvtsi32_si128(below as i32),
        _mm_cvtsi32_si128(cut.shape.head_bits as i32 - 1),
    );
    let groups = symbols
        .as_chunks::<32>()
        .0
        .iter()
        .zip(planes.chunks_exact(bits as usize * 4));
    for ((group, words), heads) in groups.zip(out.as_chunks_mut::<64>().0) {
        let mut field = _mm256_setzero_si256();
        let mut weight = _mm256_set1_epi8(1);
        for w in words.as_chunks::<4>().0 {
            let bytes = _mm256_shuffle_epi8(_mm256_set1_epi32(i32::from_le_bytes(*w)), spread);
            let set = _mm256_cmpeq_epi8(_mm256_and_si256(bytes, pick), pick);
            field = _mm256_or_si256(field, _mm256_and_si256(set, weight));
            weight = _mm256_add_epi8(weight, weight);
        }
        let halves = [_mm256_castsi256_si128(field), _mm256_extracti128_si256::<1>(field)];
        for (h, f) in halves.into_iter().enumerate() {
            let f = _mm256_cvtepu8_epi16(f);
            // SAFETY: the group has 32 symbols, `heads` 64 bytes.
            let s = unsafe { _mm256_cvtepu8_epi16(_mm_loadu_si128(group.as_ptr().add(16 * h).cast())) };
            let zero = _mm256_cmpeq_epi16(s, _mm256_setzero_si256());
            let key = _mm256_andnot_si256(zero, _mm256_add_epi16(s, lo));
            let sign = _mm256_sll_epi16(_mm256_srl_epi16(f, up), top);
            let rest = _mm256_or_si256(_mm256_sll_epi16(key, up), _mm256_and_si256(f, mask));
            unsafe { _mm256_storeu_si256(heads.as_mut_ptr().add(32 * h).cast(), _mm256_or_si256(sign, rest)) };
        }
    }
}

/// [`Cut::symbols`], compiled for AVX2.
///
/// # Safety
/// The processor has AVX2.
#[target_feature(enable = "avx2,popcnt")]
pub(crate) unsafe fn symbols(cut: Cut, raw: &[u8], out: &mut [u8]) {
    cut.symbols(raw, out);
}

/// [`Cut::fields`], compiled for AVX2.
///
/// # Safety
/// The processor has AVX2.
#[target_feature(enable = "avx2,popcnt")]
pub(crate) unsafe fn fields(cut: Cut, raw: &[u8], out: &mut [u8]) {
    cut.fields(raw, out);
}

/// [`low::low_halves`], compiled for AVX2.
///
/// # Safety
/// The processor has AVX2.
#[target_feature(enable = "avx2,popcnt")]
pub(crate) unsafe fn low_halves(group: &[u8], out: &mut [u8]) {
    low::low_halves(group, out);
}

/// [`low::join_halves`], compiled for AVX2.
///
/// # Safety
/// The processor has AVX2.
#[target_feature(enable = "avx2,popcnt")]
pub(crate) unsafe fn join_halves(data: &[u8], heads: &[u8], group: &mut [u8]) {
    low::join_halves(data, heads, group);
}
