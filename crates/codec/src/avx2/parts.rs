//! Splits floats into symbol, raw field and low bytes, and their fields into bit planes, 32 elements at a time.

use crate::schemes::Cut;
use std::{arch::x86_64::*, mem::MaybeUninit};

/// Appends the planes of whole groups of 32 fields to `out`.
///
/// # Safety
/// The processor has AVX2.
#[target_feature(enable = "avx2,popcnt")]
pub(crate) unsafe fn put_planes(fields: &[u8], bits: u32, out: &mut Vec<u8>) {
    let shift = _mm_cvtsi32_si128(8 - bits as i32);
    let groups = fields.as_chunks::<32>().0;
    let bytes = groups.len() * bits as usize * 4;
    out.reserve(bytes);
    let words = &mut out.spare_capacity_mut()[..bytes];
    for (group, words) in groups.iter().zip(words.chunks_exact_mut(bits as usize * 4)) {
        // SAFETY: the group has 32 bytes.
        let mut v = unsafe { _mm256_loadu_si256(group.as_ptr().cast()) };
        v = _mm256_sll_epi16(v, shift);
        for w in words.as_chunks_mut::<4>().0.iter_mut().rev() {
            *w = _mm256_movemask_epi8(v).to_le_bytes().map(MaybeUninit::new);
            v = _mm256_add_epi8(v, v);
        }
    }
    // SAFETY: every group has written its words.
    unsafe { out.set_len(out.len() + bytes) };
}

/// Heads of whole groups of 32 elements, two bytes each, from their symbols and the planes of their fields.
///
/// # Safety
/// The processor has AVX2; `out` has two bytes for every symbol of a whole group, `planes` its planes.
#[target_feature(enable = "avx2,popcnt")]
pub(crate) unsafe fn heads(cut: Cut, symbols: &[u8], planes: &[u8], out: &mut [u8]) {
    // SAFETY: the caller's promise.
    unsafe {
        match cut.field_bits() {
            1 => heads_of::<1>(cut, symbols, planes, out),
            2 => heads_of::<2>(cut, symbols, planes, out),
            3 => heads_of::<3>(cut, symbols, planes, out),
            4 => heads_of::<4>(cut, symbols, planes, out),
            5 => heads_of::<5>(cut, symbols, planes, out),
            6 => heads_of::<6>(cut, symbols, planes, out),
            7 => heads_of::<7>(cut, symbols, planes, out),
            _ => heads_of::<8>(cut, symbols, planes, out),
        }
    }
}

/// [`heads`] with `BITS` bits in the field, so that the loop over its planes is unrolled.
///
/// # Safety
/// As for [`heads`].
#[target_feature(enable = "avx2,popcnt")]
unsafe fn heads_of<const BITS: usize>(cut: Cut, symbols: &[u8], planes: &[u8], out: &mut [u8]) {
    let below = BITS as u32 - 1;
    let spread = _mm256_setr_epi8(
        0, 0, 0, 0, 0, 0, 0, 0, 1, 1, 1, 1, 1, 1, 1, 1, 2, 2, 2, 2, 2, 2, 2, 2, 3, 3, 3, 3, 3, 3, 3, 3,
    );
    let pick = _mm256_set1_epi64x(0x8040_2010_0804_0201u64 as i64);
    let (lo, mask) = (_mm256_set1_epi16(cut.lo as i16 - 1), _mm256_set1_epi16((1 << below) - 1));
    let (up, top) = (_mm_cvtsi32_si128(below as i32), _mm_cvtsi32_si128(cut.shape.head_bits as i32 - 1));
    let groups = symbols.as_chunks::<32>().0.iter().zip(planes.as_chunks::<4>().0.as_chunks::<BITS>().0);
    for ((group, words), heads) in groups.zip(out.as_chunks_mut::<64>().0) {
        let mut field = _mm256_setzero_si256();
        let mut weight = _mm256_set1_epi8(1);
        for w in words {
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
