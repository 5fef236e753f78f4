//! Decoding differences to a base: contexts of the base's numbers; numbers from symbols, raw bits and the base.

use crate::avx512::{GROUP, flip_of, load_top, table};
use std::arch::x86_64::*;

/// Bytes of raw bits that a group looks at, at most: its own 248 and what a load reads beyond them.
pub(crate) const REACH: usize = 320;

/// The entry of `map` for the exponent of each number of `base`: `shift` bits up, under `mask`. Whole groups; returns
/// how many numbers.
///
/// # Safety
/// AVX-512; `SIZE` is 1, 2 or 4.
#[target_feature(enable = "avx512f,avx512bw,avx512cd,avx512dq,avx512vl,avx512vbmi,avx512vbmi2,popcnt")]
pub(crate) unsafe fn contexts<const SIZE: usize>(
    [shift, mask]: [u32; 2],
    map: &[u8; 256],
    base: &[u8],
    out: &mut [u8],
) -> usize {
    let (shift, mask) = (_mm_cvtsi32_si128(shift as i32), _mm512_set1_epi8(mask as i8));
    // SAFETY: four times 64 entries.
    let tables: [__m512i; 4] = std::array::from_fn(|i| unsafe { _mm512_loadu_si512(map.as_ptr().add(64 * i).cast()) });
    let groups = base.chunks_exact(GROUP * SIZE).zip(out.as_chunks_mut::<GROUP>().0);
    let mut done = 0;
    for (base, out) in groups {
        // SAFETY: the group has 64 numbers, `SIZE` vectors.
        let load = |v: usize| unsafe { _mm512_loadu_si512(base.as_ptr().add(64 * v).cast()) };
        let exponents = match SIZE {
            1 => _mm512_srl_epi16(load(0), shift),
            2 => {
                let narrow = |v| _mm512_cvtepi16_epi8(_mm512_srl_epi16(load(v), shift));
                _mm512_inserti64x4::<1>(_mm512_castsi256_si512(narrow(0)), narrow(1))
            }
            _ => {
                let narrow = |v| _mm512_cvtepi32_epi8(_mm512_srl_epi32(load(v), shift));
                let all = _mm512_inserti32x4::<1>(_mm512_castsi128_si512(narrow(0)), narrow(1));
                _mm512_inserti32x4::<3>(_mm512_inserti32x4::<2>(all, narrow(2)), narrow(3))
            }
        };
        let e = _mm512_and_si512(exponents, mask);
        let low = _mm512_permutex2var_epi8(tables[0], e, tables[1]);
        let found =
            _mm512_mask_blend_epi8(_mm512_movepi8_mask(e), low, _mm512_permutex2var_epi8(tables[2], e, tables[3]));
        // SAFETY: 64 bytes.
        unsafe { _mm512_storeu_si512(out.as_mut_ptr().cast(), found) };
        done += GROUP;
    }
    done
}

/// Numbers from their base's, their symbols and the raw bits from bit `pos` of `bits` on, with `t` bits in the class.
/// Whole groups, while there are [`REACH`] bytes of bits for each; returns how many numbers, and the bit after theirs.
///
/// # Safety
/// AVX-512; `SIZE` is 1, 2 or 4; `base` and `out` have `SIZE` bytes for every symbol; no symbol leaves more than 31 raw
/// bits.
#[target_feature(enable = "avx512f,avx512bw,avx512cd,avx512dq,avx512vl,avx512vbmi,avx512vbmi2,popcnt")]
pub(crate) unsafe fn apply<const SIZE: usize>(
    float: bool,
    t: u32,
    symbols: &[u8],
    bits: &[u8],
    mut pos: usize,
    base: &[u8],
    out: &mut [u8],
) -> (usize, usize) {
    let (zero, one) = (_mm512_setzero_si512(), _mm512_set1_epi8(1));
    let (shift, head) = (_mm_cvtsi32_si128(t as i32), _mm512_set1_epi8(1 << t));
    let (class_mask, under) = (_mm512_set1_epi8((0xff >> t) as i8), _mm512_set1_epi8((1 << t) - 1));
    let spread = table(|i| (i / 4 * 4) as u8 % 16);
    let sixteenths = [0, 16, 32, 48].map(|from| table(|i| from + (i / 4) as u8));
    // Of the starts of eights, 64 bits each, the lower halves of two, for eight numbers each.
    let eighths = [0, 4, 8, 12].map(|from| table(|i| if i % 4 == 0 { from + (i / 32 * 2) as u8 } else { 0 }));
    let mut done = 0;
    for group in symbols.as_chunks::<GROUP>().0 {
        if (pos >> 3) + REACH > bits.len() {
            break;
        }
        // SAFETY: 64 symbols.
        let s = unsafe { _mm512_loadu_si512(group.as_ptr().cast()) };
        // The class of each symbol, its raw bits, and what stands above them.
        let c = _mm512_avg_epu8(s, zero);
        let row = _mm512_and_si512(_mm512_srl_epi16(c, shift), class_mask);
        let width = _mm512_subs_epu8(row, one);
        let least = _mm512_and_si512(c, under);
        let least = _mm512_mask_add_epi8(least, _mm512_test_epi8_mask(row, row), least, head);
        // Places of the raw bits: sums of widths within each eight numbers, which fit a byte, and of whole eights.
        let mut sums = _mm512_add_epi8(width, _mm512_slli_epi64::<8>(width));
        sums = _mm512_add_epi8(sums, _mm512_slli_epi64::<16>(sums));
        sums = _mm512_add_epi8(sums, _mm512_slli_epi64::<32>(sums));
        let before = _mm512_sub_epi8(sums, width);
        let eights = _mm512_srli_epi64::<56>(sums);
        let mut ends = _mm512_add_epi64(eights, _mm512_alignr_epi64::<7>(eights, zero));
        ends = _mm512_add_epi64(ends, _mm512_alignr_epi64::<6>(ends, zero));
        ends = _mm512_add_epi64(ends, _mm512_alignr_epi64::<4>(ends, zero));
        let starts = _mm512_add_epi64(_mm512_sub_epi64(ends, eights), _mm512_set1_epi64(pos as i64));
        let mut to = [0u64; 8];
        // SAFETY: eight numbers of 64 bits.
        unsafe { _mm512_storeu_si512(to.as_mut_ptr().cast(), ends) };
        let odd = _mm512_test_epi8_mask(s, one);
        let from = [pos, pos + to[1] as usize, pos + to[3] as usize, pos + to[5] as usize];
        for (v, from) in from.into_iter().enumerate() {
            // Sixteen numbers: the bytes of each in the lowest byte of 32 bits.
            let wide = |bytes| _mm512_maskz_permutexvar_epi8(0x1111_1111_1111_1111, sixteenths[v], bytes);
            let (width, least) = (wide(width), wide(least));
            let eight = _mm512_permutexvar_epi32(eighths[v], starts);
            // Bit of each number in the 64 bytes from the first one's byte on: at most 7 + 15 * 31.
            let bit = _mm512_add_epi32(wide(before), _mm512_sub_epi32(eight, _mm512_set1_epi32((from & !7) as i32)));
            // SAFETY: `REACH` bytes follow byte `pos >> 3`, of which numbers before these take at most 186.
            let window = unsafe { _mm512_loadu_si512(bits.as_ptr().add(from >> 3).cast()) };
            let byte = _mm512_shuffle_epi8(_mm512_srli_epi32::<3>(bit), spread);
            let low = _mm512_permutexvar_epi8(_mm512_add_epi8(byte, _mm512_set1_epi32(0x0302_0100)), window);
            let high = _mm512_permutexvar_epi8(_mm512_add_epi8(byte, _mm512_set1_epi32(0x0706_0504)), window);
            let raw = _mm512_shrdv_epi32(low, high, _mm512_and_si512(bit, _mm512_set1_epi32(7)));
            // (least << width) | (raw & !above).
            let above = _mm512_sllv_epi32(_mm512_set1_epi32(-1), width);
            let size = _mm512_ternarylogic_epi32::<0xf2>(_mm512_sllv_epi32(least, width), above, raw);
            let d = match SIZE {
                1 => _mm512_slli_epi32::<24>(size),
                2 => _mm512_slli_epi32::<16>(size),
                _ => size,
            };
            let flip = _mm512_set1_epi32(flip_of(SIZE, float));
            // SAFETY: the caller promises the base of every symbol.
            let old = unsafe { load_top::<SIZE>(base.as_ptr().add((done + 16 * v) * SIZE)) };
            let mono = _mm512_xor_si512(old, _mm512_and_si512(_mm512_srai_epi32::<31>(old), flip));
            let turned = if float { _mm512_movepi32_mask(old) } else { 0 };
            let minus = !((odd >> (16 * v)) as u16) ^ turned;
            let sum = _mm512_mask_sub_epi32(_mm512_add_epi32(mono, d), minus, mono, d);
            let new = _mm512_xor_si512(sum, _mm512_and_si512(_mm512_srai_epi32::<31>(sum), flip));
            // SAFETY: the caller promises room for every symbol.
            unsafe {
                let to = out.as_mut_ptr().add((done + 16 * v) * SIZE);
                match SIZE {
                    1 => _mm_storeu_si128(to.cast(), _mm512_cvtepi32_epi8(_mm512_srli_epi32::<24>(new))),
                    2 => _mm256_storeu_si256(to.cast(), _mm512_cvtepi32_epi16(_mm512_srli_epi32::<16>(new))),
                    _ => _mm512_storeu_si512(to.cast(), new),
                }
            }
        }
        pos += to[7] as usize;
        done += GROUP;
    }
    (done, pos)
}
