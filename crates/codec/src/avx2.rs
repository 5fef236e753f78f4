//! The same work as `rans`, `bitplane`, `float` and `low`, eight to 32 elements at a time. Neighbours: only `simd` calls
//! this, and only where the processor has AVX2. It must not give other bytes than its portable doubles: tests compare.
//!
//! All `unsafe` of the crate is here and at the calls in `simd`. Two invariants carry it: the processor has AVX2 (the
//! caller checked), and every pointer stays inside its slice (checked once per group, stated at each loop).

use crate::float::Cut;
use crate::low;
use crate::rans::{DecTable, EncTable, LANES};
use crate::tables::PROB_BITS;
use std::arch::x86_64::*;

/// For every mask of lanes that need a word: byte shuffle that deals the next 16-bit words to those lanes, in order.
static DEAL: [[u8; 16]; 256] = deal();

const fn deal() -> [[u8; 16]; 256] {
    let mut t = [[0x80u8; 16]; 256];
    let mut mask = 0;
    while mask < 256 {
        let (mut lane, mut word) = (0, 0);
        while lane < 8 {
            if mask >> lane & 1 == 1 {
                t[mask][2 * lane] = 2 * word;
                t[mask][2 * lane + 1] = 2 * word + 1;
                word += 1;
            }
            lane += 1;
        }
        mask += 1;
    }
    t
}

/// For every mask of lanes that give a word away: byte shuffle that moves those words to the end, in order.
static COLLECT: [[u8; 16]; 256] = collect();

const fn collect() -> [[u8; 16]; 256] {
    let mut t = [[0x80u8; 16]; 256];
    let mut mask = 0;
    while mask < 256 {
        let (mut lane, mut to) = (8, 8);
        while lane > 0 {
            lane -= 1;
            if mask >> lane & 1 == 1 {
                to -= 1;
                t[mask][2 * to] = 2 * lane as u8;
                t[mask][2 * to + 1] = 2 * lane as u8 + 1;
            }
        }
        mask += 1;
    }
    t
}

/// Encodes whole groups, last first; words go below `at` in `room`. Returns where they start.
///
/// # Safety
/// AVX2; `symbols` is whole groups; with `CTX`, `ctx` is at least as long and below the table's contexts; the table has a
/// context; `symbols.len() * 2 + 16 <= at <= room.len()`.
#[target_feature(enable = "avx2")]
pub(crate) unsafe fn rans_encode<const CTX: bool>(
    table: &EncTable,
    state: &mut [u32; LANES],
    symbols: &[u8],
    ctx: &[u8],
    room: &mut [u8],
    mut at: usize,
) -> usize {
    let packed = table.packed().as_ptr().cast::<i64>();
    let low16 = _mm256_set1_epi32(0xffff);
    // SAFETY: 32 states are 128 bytes.
    let mut x: [__m256i; 4] = unsafe { std::array::from_fn(|v| _mm256_loadu_si256(state.as_ptr().add(8 * v).cast())) };
    for g in (0..symbols.len() / LANES).rev() {
        for v in (0..4).rev() {
            let first = g * LANES + 8 * v;
            // Loads one by one: four-lane gathers of words take about twice as long on Zen.
            // SAFETY: eight symbols (and contexts) from `first` on are inside the slices; symbols are below 256, contexts
            // below the table's.
            let entry = |lane: usize| unsafe {
                let row = if CTX {
                    usize::from(*ctx.get_unchecked(first + lane)) << 8
                } else {
                    0
                };
                *packed.add(row | usize::from(*symbols.get_unchecked(first + lane)))
            };
            // Lanes 0 1 4 5 and 2 3 6 7, so that one shuffle puts the halves in order.
            let a = _mm256_set_epi64x(entry(5), entry(4), entry(1), entry(0));
            let b = _mm256_set_epi64x(entry(7), entry(6), entry(3), entry(2));
            let (a, b) = (_mm256_castsi256_ps(a), _mm256_castsi256_ps(b));
            let reciprocal = _mm256_castps_si256(_mm256_shuffle_ps::<0x88>(a, b));
            let rest = _mm256_castps_si256(_mm256_shuffle_ps::<0xdd>(a, b));
            let (freq, cum) = (_mm256_and_si256(rest, low16), _mm256_srli_epi32::<16>(rest));
            // Stays unless x >> 20 reaches the frequency.
            let stays = _mm256_cmpgt_epi32(freq, _mm256_srli_epi32::<20>(x[v]));
            let mask = !_mm256_movemask_ps(_mm256_castsi256_ps(stays)) as usize & 255;
            let low = _mm256_and_si256(x[v], low16);
            let words = _mm_packus_epi32(_mm256_castsi256_si128(low), _mm256_extracti128_si256::<1>(low));
            // SAFETY: a mask is below 256; `at` keeps 16 bytes and two for every symbol to come below it.
            unsafe {
                let words = _mm_shuffle_epi8(words, _mm_loadu_si128(COLLECT.as_ptr().add(mask).cast()));
                _mm_storeu_si128(room.as_mut_ptr().add(at - 16).cast(), words);
            }
            at -= 2 * mask.count_ones() as usize;
            let y = _mm256_blendv_epi8(_mm256_srli_epi32::<16>(x[v]), x[v], stays);
            // The quotient by the rounded-down reciprocal is right or one too small.
            let even = _mm256_srli_epi64::<32>(_mm256_mul_epu32(y, reciprocal));
            let odd = _mm256_mul_epu32(_mm256_srli_epi64::<32>(y), _mm256_srli_epi64::<32>(reciprocal));
            let q = _mm256_blend_epi32::<0xaa>(even, odd);
            let r = _mm256_sub_epi32(y, _mm256_mullo_epi32(q, freq));
            let fits = _mm256_cmpgt_epi32(freq, r);
            let q = _mm256_sub_epi32(q, _mm256_andnot_si256(fits, _mm256_set1_epi32(-1)));
            let r = _mm256_sub_epi32(r, _mm256_andnot_si256(fits, freq));
            x[v] = _mm256_add_epi32(_mm256_slli_epi32::<12>(q), _mm256_add_epi32(r, cum));
        }
    }
    // SAFETY: as at the load.
    x.iter()
        .enumerate()
        .for_each(|(v, x)| unsafe { _mm256_storeu_si256(state.as_mut_ptr().add(8 * v).cast(), *x) });
    at
}

/// Decodes whole groups while at least 32 words are left; returns symbols done and bytes of `words` used.
///
/// # Safety
/// AVX2; every value of `ctx` is below `table.contexts()`, and `ctx` is as long as `out`.
#[target_feature(enable = "avx2")]
pub(crate) unsafe fn rans_decode<const CTX: bool>(
    table: &DecTable,
    state: &mut [u32; LANES],
    words: &[u8],
    ctx: &[u8],
    out: &mut [u8],
) -> (usize, usize) {
    let slots = table.slots().as_ptr().cast::<i32>();
    let low12 = _mm256_set1_epi32((1 << PROB_BITS) - 1);
    let one = _mm256_set1_epi32(1);
    let byte = _mm256_set1_epi32(255);
    let order = _mm256_setr_epi32(0, 4, 1, 5, 2, 6, 3, 7);
    let (mut done, mut used) = (0usize, 0usize);
    // SAFETY: 32 states are 128 bytes.
    let mut x: [__m256i; 4] = unsafe { std::array::from_fn(|v| _mm256_loadu_si256(state.as_ptr().add(8 * v).cast())) };
    while out.len() - done >= LANES && words.len() - used >= 2 * LANES {
        let mut symbols = [_mm256_setzero_si256(); 4];
        for v in 0..4 {
            let mut slot = _mm256_and_si256(x[v], low12);
            if CTX {
                // SAFETY: `ctx` is as long as `out`, so 32 more contexts are there.
                let c = unsafe { _mm_loadl_epi64(ctx.as_ptr().add(done + 8 * v).cast()) };
                slot = _mm256_or_si256(slot, _mm256_slli_epi32::<12>(_mm256_cvtepu8_epi32(c)));
            }
            // SAFETY: a slot is below 4096 within a context that the table has.
            let e = unsafe { _mm256_i32gather_epi32::<4>(slots, slot) };
            symbols[v] = _mm256_and_si256(e, byte);
            let freq = _mm256_add_epi32(_mm256_srli_epi32::<20>(e), one);
            let bias = _mm256_and_si256(_mm256_srli_epi32::<8>(e), low12);
            let y = _mm256_add_epi32(_mm256_mullo_epi32(freq, _mm256_srli_epi32::<12>(x[v])), bias);
            let needs = _mm256_cmpeq_epi32(_mm256_srli_epi32::<16>(y), _mm256_setzero_si256());
            let mask = _mm256_movemask_ps(_mm256_castsi256_ps(needs)) as usize;
            // SAFETY: 64 bytes were left at the start of the group; earlier vectors used at most 16 each.
            let next = unsafe { _mm_loadu_si128(words.as_ptr().add(used).cast()) };
            // SAFETY: a mask of eight lanes is below 256.
            let dealt = unsafe { _mm_shuffle_epi8(next, _mm_loadu_si128(DEAL.as_ptr().add(mask).cast())) };
            let refilled = _mm256_or_si256(_mm256_slli_epi32::<16>(y), _mm256_cvtepu16_epi32(dealt));
            x[v] = _mm256_blendv_epi8(y, refilled, needs);
            used += 2 * mask.count_ones() as usize;
        }
        let low = _mm256_packus_epi32(symbols[0], symbols[1]);
        let high = _mm256_packus_epi32(symbols[2], symbols[3]);
        let bytes = _mm256_permutevar8x32_epi32(_mm256_packus_epi16(low, high), order);
        // SAFETY: `out` has 32 more bytes.
        unsafe { _mm256_storeu_si256(out.as_mut_ptr().add(done).cast(), bytes) };
        done += LANES;
    }
    // SAFETY: as at the load.
    x.iter()
        .enumerate()
        .for_each(|(v, x)| unsafe { _mm256_storeu_si256(state.as_mut_ptr().add(8 * v).cast(), *x) });
    (done, used)
}

/// Writes the planes of whole groups of 32 fields to `out`, which has room for exactly them.
///
/// # Safety
/// AVX2.
#[target_feature(enable = "avx2")]
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
/// AVX2.
#[target_feature(enable = "avx2")]
pub(crate) unsafe fn heads(cut: Cut, symbols: &[u8], planes: &[u8], out: &mut [u16]) {
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
    for ((group, words), heads) in groups.zip(out.as_chunks_mut::<32>().0) {
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
            // SAFETY: the group has 32 symbols, `heads` 32 places.
            let s = unsafe { _mm256_cvtepu8_epi16(_mm_loadu_si128(group.as_ptr().add(16 * h).cast())) };
            let zero = _mm256_cmpeq_epi16(s, _mm256_setzero_si256());
            let key = _mm256_andnot_si256(zero, _mm256_add_epi16(s, lo));
            let sign = _mm256_sll_epi16(_mm256_srl_epi16(f, up), top);
            let rest = _mm256_or_si256(_mm256_sll_epi16(key, up), _mm256_and_si256(f, mask));
            unsafe { _mm256_storeu_si256(heads.as_mut_ptr().add(16 * h).cast(), _mm256_or_si256(sign, rest)) };
        }
    }
}

/// [`Cut::symbols`], compiled for AVX2.
///
/// # Safety
/// AVX2.
#[target_feature(enable = "avx2")]
pub(crate) unsafe fn symbols(cut: Cut, raw: &[u8], out: &mut [u8]) {
    cut.symbols(raw, out);
}

/// [`Cut::fields`], compiled for AVX2.
///
/// # Safety
/// AVX2.
#[target_feature(enable = "avx2")]
pub(crate) unsafe fn fields(cut: Cut, raw: &[u8], out: &mut [u8]) {
    cut.fields(raw, out);
}

/// [`low::low_halves`], compiled for AVX2.
///
/// # Safety
/// AVX2.
#[target_feature(enable = "avx2")]
pub(crate) unsafe fn low_halves(group: &[u8], out: &mut [u8]) {
    low::low_halves(group, out);
}

/// [`low::join_halves`], compiled for AVX2.
///
/// # Safety
/// AVX2.
#[target_feature(enable = "avx2")]
pub(crate) unsafe fn join_halves(data: &[u8], heads: &[u16], group: &mut [u8]) {
    low::join_halves(data, heads, group);
}
