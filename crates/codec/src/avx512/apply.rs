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

/// What the symbols of a group say, one entry a number.
#[derive(Clone, Copy)]
#[repr(align(64))]
struct Group {
    /// Raw bits, and those of the numbers before it in its eight.
    width: [u8; GROUP],
    before: [u8; GROUP],
    /// What stands above the raw bits.
    least: [u8; GROUP],
    /// Raw bits of each eight numbers, and of the group to their end.
    eights: [u64; 8],
    ends: [u64; 8],
    /// Whether a symbol is odd, a bit for each.
    odd: u64,
}

/// Groups whose symbols are looked at before their bits are: so many that places of bits are known by then.
const AHEAD: usize = 4;

#[target_feature(enable = "avx512f,avx512bw,avx512cd,avx512dq,avx512vl,avx512vbmi,avx512vbmi2,popcnt")]
#[inline]
fn look(t: u32, symbols: &[u8; GROUP], known: &mut Group) {
    let (zero, one) = (_mm512_setzero_si512(), _mm512_set1_epi8(1));
    let (shift, head) = (_mm_cvtsi32_si128(t as i32), _mm512_set1_epi8(1 << t));
    let (class_mask, under) = (_mm512_set1_epi8((0xff >> t) as i8), _mm512_set1_epi8((1 << t) - 1));
    // SAFETY: 64 symbols.
    let s = unsafe { _mm512_loadu_si512(symbols.as_ptr().cast()) };
    let c = _mm512_avg_epu8(s, zero);
    let row = _mm512_and_si512(_mm512_srl_epi16(c, shift), class_mask);
    let width = _mm512_subs_epu8(row, one);
    let least = _mm512_and_si512(c, under);
    let least = _mm512_mask_add_epi8(least, _mm512_test_epi8_mask(row, row), least, head);
    // Sums within each eight numbers, which fit a byte, then of whole eights.
    let mut sums = _mm512_add_epi8(width, _mm512_slli_epi64::<8>(width));
    sums = _mm512_add_epi8(sums, _mm512_slli_epi64::<16>(sums));
    sums = _mm512_add_epi8(sums, _mm512_slli_epi64::<32>(sums));
    let eights = _mm512_srli_epi64::<56>(sums);
    let mut ends = _mm512_add_epi64(eights, _mm512_alignr_epi64::<7>(eights, zero));
    ends = _mm512_add_epi64(ends, _mm512_alignr_epi64::<6>(ends, zero));
    ends = _mm512_add_epi64(ends, _mm512_alignr_epi64::<4>(ends, zero));
    known.odd = _mm512_test_epi8_mask(s, one);
    // SAFETY: each has 64 bytes.
    unsafe {
        _mm512_storeu_si512(known.width.as_mut_ptr().cast(), width);
        _mm512_storeu_si512(known.before.as_mut_ptr().cast(), _mm512_sub_epi8(sums, width));
        _mm512_storeu_si512(known.least.as_mut_ptr().cast(), least);
        _mm512_storeu_si512(known.eights.as_mut_ptr().cast(), eights);
        _mm512_storeu_si512(known.ends.as_mut_ptr().cast(), ends);
    }
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
    let none = [0; GROUP];
    let mut all = [Group { width: none, before: none, least: none, eights: [0; 8], ends: [0; 8], odd: 0 }; AHEAD];
    let mut done = 0;
    for groups in symbols.as_chunks::<GROUP>().0.chunks(AHEAD) {
        groups.iter().zip(&mut all).for_each(|(group, known)| look(t, group, known));
        for known in &all[..groups.len()] {
            if (pos >> 3) + REACH > bits.len() {
                return (done, pos);
            }
            // SAFETY: 64 numbers from `done` on are inside, `REACH` bytes of bits from this group's first one on.
            unsafe {
                let (base, out) = (base.as_ptr().add(done * SIZE), out.as_mut_ptr().add(done * SIZE));
                apply_group::<SIZE>(float, known, bits, pos, base, out);
            }
            pos += known.ends[7] as usize;
            done += GROUP;
        }
    }
    (done, pos)
}

/// [`apply`] of one group.
///
/// # Safety
/// AVX-512; 64 numbers at `base`, room for as many at `out`; [`REACH`] bytes of `bits` from the one with bit `pos` on.
#[target_feature(enable = "avx512f,avx512bw,avx512cd,avx512dq,avx512vl,avx512vbmi,avx512vbmi2,popcnt")]
#[inline]
unsafe fn apply_group<const SIZE: usize>(
    float: bool,
    known: &Group,
    bits: &[u8],
    pos: usize,
    base: *const u8,
    out: *mut u8,
) {
    let spread = table(|i| (i / 4 * 4) as u8 % 16);
    let flip = _mm512_set1_epi32(flip_of(SIZE, float));
    let froms = [0, known.ends[1], known.ends[3], known.ends[5]];
    for (v, from) in froms.into_iter().enumerate() {
        let from = pos + from as usize;
        // SAFETY: 16 of 64 bytes.
        let wide =
            |bytes: &[u8; GROUP]| unsafe { _mm512_cvtepu8_epi32(_mm_loadu_si128(bytes.as_ptr().add(16 * v).cast())) };
        let (width, least) = (wide(&known.width), wide(&known.least));
        // Bit of each number in the 64 bytes from the first one's byte on: at most 7 + 15 * 31.
        let bit = _mm512_add_epi32(wide(&known.before), _mm512_set1_epi32((from & 7) as i32));
        let bit = _mm512_mask_add_epi32(bit, 0xff00, bit, _mm512_set1_epi32(known.eights[2 * v] as i32));
        // SAFETY: the numbers before these take at most 186 bytes.
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
        // SAFETY: the caller promises the base of every symbol.
        let old = unsafe { load_top::<SIZE>(base.add(16 * v * SIZE)) };
        let mono = _mm512_xor_si512(old, _mm512_and_si512(_mm512_srai_epi32::<31>(old), flip));
        let turned = if float { _mm512_movepi32_mask(old) } else { 0 };
        let minus = !((known.odd >> (16 * v)) as u16) ^ turned;
        let sum = _mm512_mask_sub_epi32(_mm512_add_epi32(mono, d), minus, mono, d);
        let new = _mm512_xor_si512(sum, _mm512_and_si512(_mm512_srai_epi32::<31>(sum), flip));
        // SAFETY: the caller promises room for every symbol.
        unsafe {
            let to = out.add(16 * v * SIZE);
            match SIZE {
                1 => _mm_storeu_si128(to.cast(), _mm512_cvtepi32_epi8(_mm512_srli_epi32::<24>(new))),
                2 => _mm256_storeu_si256(to.cast(), _mm512_cvtepi32_epi16(_mm512_srli_epi32::<16>(new))),
                _ => _mm512_storeu_si512(to.cast(), new),
            }
        }
    }
}
