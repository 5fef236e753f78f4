//! Encoding differences to a base: symbols, and the raw bits under their classes.

use crate::avx512::{GROUP, flip_of, load_top};
use std::arch::x86_64::*;

/// Raw bits of a group, from the first on: fields of at most 56 bits, and their widths. A field has the bits of one
/// number, or of two or four one after the other.
#[derive(Debug)]
pub(crate) struct Fields {
    /// The fields.
    pub(crate) bits: [u64; GROUP],
    /// Their widths.
    pub(crate) widths: [u64; GROUP],
    /// How many there are.
    pub(crate) count: usize,
}

impl Fields {
    /// None.
    pub(crate) fn new() -> Self {
        Fields { bits: [0; GROUP], widths: [0; GROUP], count: 0 }
    }
}

/// Symbols of the differences of a group of numbers to their base's, with `t` bits in the class, and, with `RAW`, their
/// raw bits.
///
/// # Safety
/// AVX-512; `SIZE` is 1, 2 or 4; `raw` and `base` have 64 numbers.
#[target_feature(enable = "avx512f,avx512bw,avx512cd,avx512dq,avx512vl,avx512vbmi,avx512vbmi2,popcnt")]
pub(crate) unsafe fn differences<const SIZE: usize, const RAW: bool>(
    float: bool,
    t: u32,
    raw: &[u8],
    base: &[u8],
    symbols: &mut [u8; GROUP],
    fields: &mut Fields,
) {
    let flip = _mm512_set1_epi32(flip_of(SIZE, float));
    let (one, least) = (_mm512_set1_epi32(1), _mm512_set1_epi32(t as i32));
    fields.count = 0;
    for v in 0..4 {
        // SAFETY: the caller promises 64 numbers.
        let [new, old] = [raw, base].map(|n| unsafe { load_top::<SIZE>(n.as_ptr().add(16 * v * SIZE)) });
        let [a, b] = [new, old].map(|x| _mm512_xor_si512(x, _mm512_and_si512(_mm512_srai_epi32::<31>(x), flip)));
        let top = _mm512_sub_epi32(a, b);
        let d = match SIZE {
            1 => _mm512_srai_epi32::<24>(top),
            2 => _mm512_srai_epi32::<16>(top),
            _ => top,
        };
        let turned = if float { _mm512_movepi32_mask(old) } else { 0 };
        let plus = _mm512_test_epi32_mask(d, d) & !(_mm512_movepi32_mask(d) ^ turned);
        let size = _mm512_abs_epi32(d);
        let place = _mm512_sub_epi32(_mm512_set1_epi32(31), _mm512_lzcnt_epi32(_mm512_or_si512(size, one)));
        let width = _mm512_sub_epi32(_mm512_max_epu32(place, least), least);
        let class = _mm512_add_epi32(_mm512_sllv_epi32(width, least), _mm512_srlv_epi32(size, width));
        let twice = _mm512_add_epi32(class, class);
        let symbol = _mm512_mask_sub_epi32(twice, plus, twice, one);
        // SAFETY: 16 of 64 symbols.
        unsafe { _mm_storeu_si128(symbols.as_mut_ptr().add(16 * v).cast(), _mm512_cvtepi32_epi8(symbol)) };
        if RAW {
            let low = _mm512_andnot_si512(_mm512_sllv_epi32(_mm512_set1_epi32(-1), width), size);
            put(low, width, fields);
        }
    }
}

/// Adds fields of up to 31 bits, joined to as few as the 56 bits of a field allow.
#[target_feature(enable = "avx512f,avx512bw,avx512cd,avx512dq,avx512vl,avx512vbmi,avx512vbmi2,popcnt")]
#[inline]
fn put(low: __m512i, width: __m512i, fields: &mut Fields) {
    let under = _mm512_set1_epi64(0xffff_ffff);
    // Two by two.
    let first = _mm512_and_si512(width, under);
    let pairs = _mm512_or_si512(_mm512_and_si512(low, under), _mm512_sllv_epi64(_mm512_srli_epi64::<32>(low), first));
    let pair_widths = _mm512_add_epi64(first, _mm512_srli_epi64::<32>(width));
    // Four by four: what is in the upper half of each 128 bits goes above the lower half.
    let (above, above_widths) = (_mm512_unpackhi_epi64(pairs, pairs), _mm512_unpackhi_epi64(pair_widths, pair_widths));
    let fours = _mm512_or_si512(pairs, _mm512_sllv_epi64(above, pair_widths));
    let four_widths = _mm512_add_epi64(pair_widths, above_widths);
    let most = _mm512_set1_epi64(56);
    let at = fields.count;
    if _mm512_cmpgt_epu64_mask(four_widths, most) & 0x55 == 0 {
        let pack = |v| _mm512_castsi512_si256(_mm512_maskz_compress_epi64(0x55, v));
        let room = (fields.bits[at..at + 4].as_mut_ptr(), fields.widths[at..at + 4].as_mut_ptr());
        // SAFETY: four fields and four widths.
        unsafe {
            _mm256_storeu_si256(room.0.cast(), pack(fours));
            _mm256_storeu_si256(room.1.cast(), pack(four_widths));
        }
        fields.count += 4;
    } else if _mm512_cmpgt_epu64_mask(pair_widths, most) == 0 {
        let room = (fields.bits[at..at + 8].as_mut_ptr(), fields.widths[at..at + 8].as_mut_ptr());
        // SAFETY: eight fields and eight widths.
        unsafe {
            _mm512_storeu_si512(room.0.cast(), pairs);
            _mm512_storeu_si512(room.1.cast(), pair_widths);
        }
        fields.count += 8;
    } else {
        let (mut bits, mut widths) = ([0u32; 16], [0u32; 16]);
        // SAFETY: sixteen numbers of 32 bits.
        unsafe {
            _mm512_storeu_si512(bits.as_mut_ptr().cast(), low);
            _mm512_storeu_si512(widths.as_mut_ptr().cast(), width);
        }
        for i in 0..16 {
            (fields.bits[at + i], fields.widths[at + i]) = (bits[i].into(), widths[i].into());
        }
        fields.count += 16;
    }
}
