//! Interleaved rANS, sixteen lanes a vector: streams decoded side by side, and encoding with one table.
//!
//! What one stream takes to decode is the time from a state to the next one: look up, multiply, compare, take a word.
//! Several streams side by side fill that time; one alone is faster by AVX2.

use crate::entropy::{DecTable, LANES, Next, PROB_BITS, Planes};
use std::arch::x86_64::*;

/// Groups that are given room for at a time.
const RESERVE: usize = 128;

/// The states of a stream, and the bytes of words that are left.
#[derive(Clone, Copy)]
struct States {
    x: [__m512i; 2],
    left: usize,
}

/// Decodes whole groups of 32 symbols of each stream, as long as all want one and have 32 words left. Returns how many
/// symbols of each.
///
/// # Safety
/// AVX-512; the table has a context; with `CTX`, every `ctx` is as long as its `out`, every value below the table's
/// contexts.
#[target_feature(enable = "avx512f,avx512bw,avx512cd,avx512dq,avx512vl,avx512vbmi,avx512vbmi2,popcnt")]
pub(crate) unsafe fn rans_decode<const K: usize, const CTX: bool>(
    table: &DecTable,
    all: [&mut Next<'_, '_>; K],
) -> usize {
    let slots = table.slots().as_ptr();
    let mut states: [States; K] = std::array::from_fn(|i| {
        let from = all[i].stream.state.as_ptr();
        // SAFETY: twice 16 states.
        let x = [0, 16].map(|at| unsafe { _mm512_loadu_si512(from.add(at).cast()) });
        States { x, left: all[i].stream.words.len() }
    });
    let wanted = all.iter().map(|n| n.out.len()).min().unwrap_or(0);
    let places: [_; K] = std::array::from_fn(|i| {
        let n = &mut *all[i];
        (n.stream.words.as_ptr(), n.ctx.unwrap_or_default().as_ptr(), n.out.as_mut_ptr())
    });
    let mut done = 0;
    while wanted - done >= LANES && states.iter().all(|s| s.left >= 2 * LANES) {
        for i in 0..K {
            let ((words, ctx, out), states) = (places[i], &mut states[i]);
            // SAFETY: 32 symbols (and contexts) from `done` on are inside; 64 bytes of words are left.
            unsafe {
                let ctx = if CTX { ctx.add(done) } else { words };
                decode_step::<CTX>(slots, ctx, words.add(states.left - 2 * LANES), states, out.add(done));
            }
        }
        done += LANES;
    }
    for (states, n) in states.iter().zip(all) {
        n.stream.words = &n.stream.words[..states.left];
        for (v, x) in states.x.into_iter().enumerate() {
            // SAFETY: twice 16 states.
            unsafe { _mm512_storeu_si512(n.stream.state.as_mut_ptr().add(16 * v).cast(), x) };
        }
    }
    done
}

/// Decodes one symbol on each of 32 lanes.
///
/// # Safety
/// AVX-512; with `CTX`, 32 contexts at `ctx` that the table at `slots` has; 32 words at `words`, the last of them next;
/// room for 32 symbols at `out`.
#[target_feature(enable = "avx512f,avx512bw,avx512cd,avx512dq,avx512vl,avx512vbmi,avx512vbmi2,popcnt")]
#[inline]
unsafe fn decode_step<const CTX: bool>(
    slots: *const u32,
    ctx: *const u8,
    words: *const u8,
    states: &mut States,
    out: *mut u8,
) {
    let low12 = _mm512_set1_epi32((1 << PROB_BITS) - 1);
    let (one, low) = (_mm512_set1_epi32(1), _mm512_set1_epi32(1 << 16));
    // The next words in order, whichever states take them: off the way from state to state.
    // SAFETY: 64 bytes of each.
    let next = unsafe {
        let order = _mm512_loadu_si512(BACKWARDS.as_ptr().cast());
        _mm512_permutexvar_epi16(order, _mm512_loadu_si512(words.cast()))
    };
    let mut y = states.x;
    let mut needs = [0; 2];
    for v in 0..2 {
        let x = states.x[v];
        let mut slot = _mm512_and_si512(x, low12);
        if CTX {
            // SAFETY: 16 of the 32 contexts.
            let c = unsafe { _mm512_cvtepu8_epi32(_mm_loadu_si128(ctx.add(16 * v).cast())) };
            slot = _mm512_or_si512(slot, _mm512_slli_epi32::<12>(c));
        }
        // SAFETY: a slot is below 4096 within a context that the table has.
        let e = unsafe { _mm512_i32gather_epi32::<4>(slot, slots.cast()) };
        let freq = _mm512_add_epi32(_mm512_srli_epi32::<20>(e), one);
        let bias = _mm512_and_si512(_mm512_srli_epi32::<8>(e), low12);
        y[v] = _mm512_add_epi32(_mm512_mullo_epi32(freq, _mm512_srli_epi32::<12>(x)), bias);
        needs[v] = _mm512_cmplt_epu32_mask(y[v], low);
        // SAFETY: 16 of the 32 symbols.
        unsafe { _mm_storeu_si128(out.add(16 * v).cast(), _mm512_cvtepi32_epi8(e)) };
    }
    let mask = u32::from(needs[0]) | u32::from(needs[1]) << 16;
    let dealt = _mm512_maskz_expand_epi16(mask, next);
    let halves = [_mm512_castsi512_si256(dealt), _mm512_extracti64x4_epi64::<1>(dealt)];
    for v in 0..2 {
        let word = _mm512_cvtepu16_epi32(halves[v]);
        states.x[v] = _mm512_mask_or_epi32(y[v], needs[v], _mm512_slli_epi32::<16>(y[v]), word);
    }
    states.left -= 2 * mask.count_ones() as usize;
}

/// The last of 32 words first.
static BACKWARDS: [u16; LANES] = {
    let mut order = [0; LANES];
    let mut i = 0;
    while i < LANES {
        order[i] = (LANES - 1 - i) as u16;
        i += 1;
    }
    order
};

/// Symbols of two groups, so that bytes of their entries, unpacked twice, come as four vectors: lanes 31 to 16 of the
/// second group, 15 to 0, the same of the first.
static UNPACKED: [u8; 64] = {
    let mut order = [0; 64];
    let mut i = 0;
    while i < 64 {
        let (quarter, row, lane) = (i / 16, i / 4 % 4, i % 4);
        order[i] = (63 - (16 * row + 4 * quarter + lane)) as u8;
        i += 1;
    }
    order
};

/// The low words of the lanes in two vectors.
static WORDS: [u16; LANES] = {
    let mut order = [0; LANES];
    let mut i = 0;
    while i < LANES {
        order[i] = 2 * i as u16;
        i += 1;
    }
    order
};

/// Encodes whole pairs of groups with one table, last first, and appends their words to `out`.
///
/// # Safety
/// AVX-512; `symbols` is whole pairs of groups.
#[target_feature(enable = "avx512f,avx512bw,avx512cd,avx512dq,avx512vl,avx512vbmi,avx512vbmi2,popcnt")]
pub(crate) unsafe fn rans_encode(planes: &Planes, state: &mut [u32; LANES], symbols: &[u8], out: &mut Vec<u8>) {
    // States from the last lane to the first: words then leave in the order of the stream.
    let mut turned: [u32; LANES] = std::array::from_fn(|i| state[LANES - 1 - i]);
    // SAFETY: twice 16 states, 64 bytes of each order.
    let (mut x, unpacked, words) = unsafe {
        let x = [0, 16].map(|at| _mm512_loadu_si512(turned.as_ptr().add(at).cast()));
        (x, _mm512_loadu_si512(UNPACKED.as_ptr().cast()), _mm512_loadu_si512(WORDS.as_ptr().cast()))
    };
    let mut at = out.len();
    for pair in symbols.as_chunks::<64>().0.iter().rev() {
        if out.capacity() - at < 4 * 64 {
            // SAFETY: the words up to `at` are written.
            unsafe { out.set_len(at) };
            out.reserve(2 * LANES * RESERVE + 4 * 64);
        }
        // SAFETY: 64 symbols.
        let s = unsafe { _mm512_permutexvar_epi8(unpacked, _mm512_loadu_si512(pair.as_ptr().cast())) };
        let upper = _mm512_movepi8_mask(s);
        let bytes: [__m512i; 8] = std::array::from_fn(|p| {
            // SAFETY: 256 bytes a plane.
            let part = |i: usize| unsafe { _mm512_loadu_si512(planes[p].as_ptr().add(64 * i).cast()) };
            let low = _mm512_permutex2var_epi8(part(0), s, part(1));
            _mm512_mask_blend_epi8(upper, low, _mm512_permutex2var_epi8(part(2), s, part(3)))
        });
        let reciprocals = unpack([bytes[0], bytes[1], bytes[2], bytes[3]]);
        let rest = unpack([bytes[4], bytes[5], bytes[6], bytes[7]]);
        for g in 0..2 {
            let mut leaves = 0;
            let before = x;
            for v in 0..2 {
                let (leave, next) = encode_step(x[v], reciprocals[2 * g + v], rest[2 * g + v]);
                leaves |= u32::from(leave) << (16 * v);
                x[v] = next;
            }
            let low = _mm512_permutex2var_epi16(before[0], words, before[1]);
            // SAFETY: a pair has room for four vectors; each group stores one and keeps at most all of it.
            unsafe { _mm512_storeu_si512(out.as_mut_ptr().add(at).cast(), _mm512_maskz_compress_epi16(leaves, low)) };
            at += 2 * leaves.count_ones() as usize;
        }
    }
    // SAFETY: the words up to `at` are written; twice 16 states.
    unsafe {
        out.set_len(at);
        [0, 16].into_iter().zip(x).for_each(|(at, x)| _mm512_storeu_si512(turned.as_mut_ptr().add(at).cast(), x));
    }
    *state = std::array::from_fn(|i| turned[LANES - 1 - i]);
}

/// Four vectors of 32 bits, from their bytes.
#[target_feature(enable = "avx512f,avx512bw,avx512cd,avx512dq,avx512vl,avx512vbmi,avx512vbmi2,popcnt")]
#[inline]
fn unpack([a, b, c, d]: [__m512i; 4]) -> [__m512i; 4] {
    let (ab, cd) = (_mm512_unpacklo_epi8(a, b), _mm512_unpacklo_epi8(c, d));
    let (ab_high, cd_high) = (_mm512_unpackhi_epi8(a, b), _mm512_unpackhi_epi8(c, d));
    [
        _mm512_unpacklo_epi16(ab, cd),
        _mm512_unpackhi_epi16(ab, cd),
        _mm512_unpacklo_epi16(ab_high, cd_high),
        _mm512_unpackhi_epi16(ab_high, cd_high),
    ]
}

/// Encodes one symbol on each of 16 lanes: which of them give a word away, and their new states. `rest` is frequencies
/// and starts, 16 bits each. Signs decide instead of masks, which take longer from state to state.
#[target_feature(enable = "avx512f,avx512bw,avx512cd,avx512dq,avx512vl,avx512vbmi,avx512vbmi2,popcnt")]
#[inline]
fn encode_step(x: __m512i, reciprocal: __m512i, rest: __m512i) -> (u16, __m512i) {
    let (freq, start) = (_mm512_and_si512(rest, _mm512_set1_epi32(0xffff)), _mm512_srli_epi32::<16>(rest));
    // Negative where x >> 20 reaches the frequency.
    let stays = _mm512_sub_epi32(_mm512_sub_epi32(freq, _mm512_set1_epi32(1)), _mm512_srli_epi32::<20>(x));
    let down = _mm512_and_si512(_mm512_srai_epi32::<31>(stays), _mm512_set1_epi32(16));
    let y = _mm512_srlv_epi32(x, down);
    // The quotient by the rounded-down reciprocal is right or one too small.
    let even = _mm512_srli_epi64::<32>(_mm512_mul_epu32(y, reciprocal));
    let odd = _mm512_mul_epu32(_mm512_srli_epi64::<32>(y), _mm512_srli_epi64::<32>(reciprocal));
    let q = _mm512_mask_blend_epi32(0xaaaa, even, odd);
    // What is left, less the frequency: negative unless one more fits. Its upper bits then shift all of `more` out.
    let left = _mm512_sub_epi32(_mm512_sub_epi32(y, freq), _mm512_mullo_epi32(q, freq));
    let more = _mm512_sub_epi32(_mm512_set1_epi32(1 << PROB_BITS), freq);
    let more = _mm512_srlv_epi32(more, _mm512_srli_epi32::<26>(left));
    let sum = _mm512_add_epi32(_mm512_slli_epi32::<12>(q), _mm512_add_epi32(freq, start));
    (_mm512_movepi32_mask(stays), _mm512_add_epi32(_mm512_add_epi32(left, sum), more))
}
