//! Interleaved rANS, eight lanes a vector and four vectors a group.
//!
//! A group's four steps are written out one by one: as a loop over an array the compiler keeps the states in memory.

use crate::entropy::{DecTable, EncTable, LANES, PROB_BITS};
use std::arch::x86_64::*;

/// Groups that are given room for at a time.
const RESERVE: usize = 128;

/// For every mask of lanes that need a word: byte shuffle that deals 16-bit words to those lanes, the last word first.
static DEAL: [[u8; 16]; 256] = shuffles(true);

/// For every mask of lanes that give a word away: byte shuffle that moves those words to the front, the last lane's
/// first.
static COLLECT: [[u8; 16]; 256] = shuffles(false);

const fn shuffles(deal: bool) -> [[u8; 16]; 256] {
    let mut t = [[0x80u8; 16]; 256];
    let mut mask = 0;
    while mask < 256 {
        let (mut lane, mut dealt, mut kept) = (0, 0, (mask as u32).count_ones() as usize);
        while lane < 8 {
            if mask >> lane & 1 == 1 {
                let (to, from) = if deal { (lane, 7 - dealt) } else { (kept - 1, lane) };
                t[mask][2 * to] = 2 * from as u8;
                t[mask][2 * to + 1] = 2 * from as u8 + 1;
                dealt += 1;
                kept -= 1;
            }
            lane += 1;
        }
        mask += 1;
    }
    t
}

/// The states of a stream in four vectors.
#[target_feature(enable = "avx2,popcnt")]
#[inline]
fn load(state: &[u32; LANES]) -> [__m256i; 4] {
    // SAFETY: 32 states are 128 bytes.
    std::array::from_fn(|v| unsafe { _mm256_loadu_si256(state.as_ptr().add(8 * v).cast()) })
}

/// Puts the states back.
#[target_feature(enable = "avx2,popcnt")]
#[inline]
fn store(state: &mut [u32; LANES], x: [__m256i; 4]) {
    for (v, x) in x.into_iter().enumerate() {
        // SAFETY: 32 states are 128 bytes.
        unsafe { _mm256_storeu_si256(state.as_mut_ptr().add(8 * v).cast(), x) };
    }
}

/// Encodes whole groups, last first, and appends their words to `out`.
///
/// # Safety
/// AVX2 and POPCNT; `symbols` is whole groups; with `CTX`, `ctx` is at least as long and below the table's contexts;
/// the table has a context.
#[target_feature(enable = "avx2,popcnt")]
pub(crate) unsafe fn rans_encode<const CTX: bool>(
    table: &EncTable,
    state: &mut [u32; LANES],
    symbols: &[u8],
    ctx: &[u8],
    out: &mut Vec<u8>,
) {
    let packed = table.packed().as_ptr();
    let [mut x0, mut x1, mut x2, mut x3] = load(state);
    let mut at = out.len();
    for g in (0..symbols.len() / LANES).rev() {
        if out.capacity() - at < 2 * LANES + 16 {
            // SAFETY: the words up to `at` are written.
            unsafe { out.set_len(at) };
            out.reserve(2 * LANES * RESERVE + 16);
        }
        // SAFETY: 32 symbols (and contexts) from the group's start on are inside the slices; the group has room for two
        // bytes a symbol and 16 more, and each step takes at most 16.
        unsafe {
            let s = symbols.as_ptr().add(g * LANES);
            let c = if CTX { ctx.as_ptr().add(g * LANES) } else { s };
            let room = out.as_mut_ptr();
            x3 = encode_step::<CTX>(packed, s.add(24), c.add(24), x3, room, &mut at);
            x2 = encode_step::<CTX>(packed, s.add(16), c.add(16), x2, room, &mut at);
            x1 = encode_step::<CTX>(packed, s.add(8), c.add(8), x1, room, &mut at);
            x0 = encode_step::<CTX>(packed, s, c, x0, room, &mut at);
        }
    }
    store(state, [x0, x1, x2, x3]);
    // SAFETY: the words up to `at` are written.
    unsafe { out.set_len(at) };
}

/// Encodes one symbol on each of eight lanes `x`; their words go to `room[*at..]`. Returns the new states.
///
/// # Safety
/// AVX2 and POPCNT; eight symbols at `symbols` and, with `CTX`, contexts at `ctx`, all with entries in `packed`; 16
/// bytes of room.
#[target_feature(enable = "avx2,popcnt")]
#[inline]
unsafe fn encode_step<const CTX: bool>(
    packed: *const u64,
    symbols: *const u8,
    ctx: *const u8,
    x: __m256i,
    room: *mut u8,
    at: &mut usize,
) -> __m256i {
    let low16 = _mm256_set1_epi32(0xffff);
    // Loads one by one: four-lane gathers of words take about twice as long on Zen.
    // SAFETY: the caller's promise.
    let entry = |lane: usize| unsafe {
        let row = if CTX { usize::from(*ctx.add(lane)) << 8 } else { 0 };
        *packed.add(row | usize::from(*symbols.add(lane))) as i64
    };
    // Lanes 0 1 4 5 and 2 3 6 7, so that one shuffle puts the halves in order.
    let a = _mm256_set_epi64x(entry(5), entry(4), entry(1), entry(0));
    let b = _mm256_set_epi64x(entry(7), entry(6), entry(3), entry(2));
    let (a, b) = (_mm256_castsi256_ps(a), _mm256_castsi256_ps(b));
    let reciprocal = _mm256_castps_si256(_mm256_shuffle_ps::<0x88>(a, b));
    let rest = _mm256_castps_si256(_mm256_shuffle_ps::<0xdd>(a, b));
    let (freq, cum) = (_mm256_and_si256(rest, low16), _mm256_srli_epi32::<16>(rest));
    // Stays unless x >> 20 reaches the frequency.
    let stays = _mm256_cmpgt_epi32(freq, _mm256_srli_epi32::<20>(x));
    let mask = !_mm256_movemask_ps(_mm256_castsi256_ps(stays)) as usize & 255;
    let low = _mm256_and_si256(x, low16);
    let words = _mm_packus_epi32(_mm256_castsi256_si128(low), _mm256_extracti128_si256::<1>(low));
    // SAFETY: a mask is below 256; the caller promises the room.
    unsafe {
        let words = _mm_shuffle_epi8(words, _mm_loadu_si128(COLLECT.as_ptr().add(mask).cast()));
        _mm_storeu_si128(room.add(*at).cast(), words);
    }
    *at += 2 * mask.count_ones() as usize;
    let y = _mm256_blendv_epi8(_mm256_srli_epi32::<16>(x), x, stays);
    // The quotient by the rounded-down reciprocal is right or one too small.
    let even = _mm256_srli_epi64::<32>(_mm256_mul_epu32(y, reciprocal));
    let odd = _mm256_mul_epu32(_mm256_srli_epi64::<32>(y), _mm256_srli_epi64::<32>(reciprocal));
    let q = _mm256_blend_epi32::<0xaa>(even, odd);
    let r = _mm256_sub_epi32(y, _mm256_mullo_epi32(q, freq));
    let fits = _mm256_cmpgt_epi32(freq, r);
    let q = _mm256_sub_epi32(q, _mm256_andnot_si256(fits, _mm256_set1_epi32(-1)));
    let r = _mm256_sub_epi32(r, _mm256_andnot_si256(fits, freq));
    _mm256_add_epi32(_mm256_slli_epi32::<12>(q), _mm256_add_epi32(r, cum))
}

/// Decodes whole groups while at least 32 words are left; returns symbols done and bytes of `words` left.
///
/// # Safety
/// AVX2 and POPCNT; every value of `ctx` is below `table.contexts()`, and `ctx` is as long as `out`.
#[target_feature(enable = "avx2,popcnt")]
pub(crate) unsafe fn rans_decode<const CTX: bool>(
    table: &DecTable,
    state: &mut [u32; LANES],
    words: &[u8],
    ctx: &[u8],
    out: &mut [u8],
) -> (usize, usize) {
    let slots = table.slots().as_ptr();
    let order = _mm256_setr_epi32(0, 4, 1, 5, 2, 6, 3, 7);
    let (mut done, mut left) = (0usize, words.len());
    let [mut x0, mut x1, mut x2, mut x3] = load(state);
    while out.len() - done >= LANES && left >= 2 * LANES {
        // SAFETY: `ctx` is as long as `out`, which has 32 more bytes; 64 bytes of words are left, and each step takes
        // at most 16 of them.
        unsafe {
            let c = if CTX { ctx.as_ptr().add(done) } else { words.as_ptr() };
            let (s0, s1, s2, s3);
            (s0, x0) = decode_step::<CTX>(slots, c, x0, words, &mut left);
            (s1, x1) = decode_step::<CTX>(slots, c.add(8), x1, words, &mut left);
            (s2, x2) = decode_step::<CTX>(slots, c.add(16), x2, words, &mut left);
            (s3, x3) = decode_step::<CTX>(slots, c.add(24), x3, words, &mut left);
            let packed = _mm256_packus_epi16(_mm256_packus_epi32(s0, s1), _mm256_packus_epi32(s2, s3));
            let bytes = _mm256_permutevar8x32_epi32(packed, order);
            _mm256_storeu_si256(out.as_mut_ptr().add(done).cast(), bytes);
        }
        done += LANES;
    }
    store(state, [x0, x1, x2, x3]);
    (done, left)
}

/// Decodes one symbol on each of eight lanes `x`, words taken from the end of `words[..*left]`. Returns symbols and new
/// states.
///
/// # Safety
/// AVX2 and POPCNT; with `CTX`, eight contexts at `ctx` that the table has; at least 16 bytes left.
#[target_feature(enable = "avx2,popcnt")]
#[inline]
unsafe fn decode_step<const CTX: bool>(
    slots: *const u32,
    ctx: *const u8,
    x: __m256i,
    words: &[u8],
    left: &mut usize,
) -> (__m256i, __m256i) {
    let low12 = _mm256_set1_epi32((1 << PROB_BITS) - 1);
    let mut slot = _mm256_and_si256(x, low12);
    if CTX {
        // SAFETY: the caller's promise.
        let c = unsafe { _mm_loadl_epi64(ctx.cast()) };
        slot = _mm256_or_si256(slot, _mm256_slli_epi32::<12>(_mm256_cvtepu8_epi32(c)));
    }
    // SAFETY: a slot is below 4096 within a context that the table has.
    let e = unsafe { entries(slots, slot) };
    let freq = _mm256_add_epi32(_mm256_srli_epi32::<20>(e), _mm256_set1_epi32(1));
    let bias = _mm256_and_si256(_mm256_srli_epi32::<8>(e), low12);
    let y = _mm256_add_epi32(_mm256_mullo_epi32(freq, _mm256_srli_epi32::<12>(x)), bias);
    let needs = _mm256_cmpeq_epi32(_mm256_srli_epi32::<16>(y), _mm256_setzero_si256());
    let mask = _mm256_movemask_ps(_mm256_castsi256_ps(needs)) as usize;
    // SAFETY: 16 bytes are left; a mask of eight lanes is below 256.
    let dealt = unsafe {
        let next = _mm_loadu_si128(words.as_ptr().add(*left - 16).cast());
        _mm_shuffle_epi8(next, _mm_loadu_si128(DEAL.as_ptr().add(mask).cast()))
    };
    let refilled = _mm256_or_si256(_mm256_slli_epi32::<16>(y), _mm256_cvtepu16_epi32(dealt));
    *left -= 2 * mask.count_ones() as usize;
    let symbols = _mm256_and_si256(e, _mm256_set1_epi32(255));
    (symbols, _mm256_blendv_epi8(y, refilled, needs))
}

/// The entries of eight slots. A gather takes a sixth longer on Zen 3 than loads one by one; moving each lane to a
/// general register on its own is slower, too: two move at once, and the empty barrier keeps the compiler from
/// splitting them.
///
/// # Safety
/// AVX2 and POPCNT; the table at `slots` has every one of the slots.
#[target_feature(enable = "avx2,popcnt")]
#[inline]
unsafe fn entries(slots: *const u32, slot: __m256i) -> __m256i {
    let (low, high) = (_mm256_castsi256_si128(slot), _mm256_extracti128_si256::<1>(slot));
    let (mut a, mut b) = (_mm_cvtsi128_si64(low) as u64, _mm_extract_epi64::<1>(low) as u64);
    let (mut c, mut d) = (_mm_cvtsi128_si64(high) as u64, _mm_extract_epi64::<1>(high) as u64);
    // SAFETY: the assembly has no instruction; the caller promises the slots.
    unsafe {
        // Miri runs no assembly, and splits nothing.
        if !cfg!(miri) {
            std::arch::asm!("/* {} {} {} {} */", inout(reg) a, inout(reg) b, inout(reg) c, inout(reg) d,
                options(pure, nomem, nostack, preserves_flags));
        }
        let first = |q: u64| *slots.add(q as u32 as usize) as i32;
        let second = |q: u64| *slots.add((q >> 32) as usize) as i32;
        _mm256_setr_epi32(first(a), second(a), first(b), second(b), first(c), second(c), first(d), second(d))
    }
}
