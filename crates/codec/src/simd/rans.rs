//! rANS on the widest vectors there are.

#[cfg(target_arch = "x86_64")]
use crate::{avx2, avx512};
use crate::{
    entropy::{DecTable, EncTable, LANES, Next},
    simd::Simd,
};

/// Symbols from which on a table is worth being laid out in planes.
#[cfg(target_arch = "x86_64")]
const PLANED: usize = 4096;

impl Simd {
    /// Encodes whole groups of 32 symbols, last first, as [`crate::entropy::rans::encode`] does. False when there is no
    /// fast path: then nothing was done.
    pub(crate) fn rans_encode(
        self,
        table: &EncTable,
        state: &mut [u32; LANES],
        symbols: &[u8],
        ctx: Option<&[u8]>,
        out: &mut Vec<u8>,
    ) -> bool {
        #[cfg(target_arch = "x86_64")]
        if self.avx2 && symbols.len().is_multiple_of(LANES) {
            let contexts = table.packed().len() / 256;
            if self.avx512 && ctx.is_none() && contexts > 0 && symbols.len() >= PLANED {
                let (pairs, odd) = symbols.split_at(symbols.len() / (2 * LANES) * (2 * LANES));
                // SAFETY: AVX2 and AVX-512 were detected; both are whole groups, the first whole pairs.
                unsafe {
                    avx2::rans_encode::<false>(table, state, odd, &[], out);
                    avx512::rans_encode(&table.planes(), state, pairs, out);
                }
                return true;
            }
            // SAFETY: AVX2 was detected; lengths and contexts were checked here.
            match ctx {
                None if contexts > 0 => unsafe { avx2::rans_encode::<false>(table, state, symbols, &[], out) },
                Some(c) if c.len() >= symbols.len() && highest(c) < contexts => unsafe {
                    avx2::rans_encode::<true>(table, state, symbols, c, out);
                },
                _ => return false,
            }
            return true;
        }
        false
    }

    /// Decodes whole groups of 32 symbols while at least 32 words are left. Returns symbols done and bytes of `words`
    /// left (the first ones); nothing done is always a right answer. With `ctx`, it is as long as `out`.
    pub(crate) fn rans_decode(
        self,
        table: &DecTable,
        state: &mut [u32; LANES],
        words: &[u8],
        ctx: Option<&[u8]>,
        out: &mut [u8],
    ) -> (usize, usize) {
        #[cfg(target_arch = "x86_64")]
        if self.avx2 {
            // SAFETY: AVX2 was detected; the contexts are checked here, all of them.
            return match ctx {
                None => unsafe { avx2::rans_decode::<false>(table, state, words, &[], out) },
                Some(c) if c.len() == out.len() && highest(c) < table.contexts() => unsafe {
                    avx2::rans_decode::<true>(table, state, words, c, out)
                },
                Some(_) => (0, words.len()),
            };
        }
        (0, words.len())
    }

    /// Streams that are best decoded side by side.
    pub(crate) fn streams_at_once(self) -> usize {
        if self.avx512 { 4 } else { 1 }
    }

    /// Decodes whole groups of 32 symbols of several streams with a table, side by side; returns how many symbols of
    /// each, which may be none.
    pub(crate) fn rans_decode_together(self, table: &DecTable, all: &mut [Next<'_, '_>]) -> usize {
        #[cfg(target_arch = "x86_64")]
        if self.avx512 {
            let with = all.iter().filter(|n| n.ctx.is_some()).count();
            let below =
                |n: &Next<'_, '_>| n.ctx.is_none_or(|c| c.len() == n.out.len() && highest(c) < table.contexts());
            if table.contexts() > 0 && all.iter().all(below) && (with == 0 || with == all.len()) {
                // SAFETY: AVX-512 was detected; the contexts were checked here, all of them.
                return unsafe {
                    match (all, with > 0) {
                        ([a, b], false) => avx512::rans_decode::<2, false>(table, [a, b]),
                        ([a, b], true) => avx512::rans_decode::<2, true>(table, [a, b]),
                        ([a, b, c], false) => avx512::rans_decode::<3, false>(table, [a, b, c]),
                        ([a, b, c], true) => avx512::rans_decode::<3, true>(table, [a, b, c]),
                        ([a, b, c, d], false) => avx512::rans_decode::<4, false>(table, [a, b, c, d]),
                        ([a, b, c, d], true) => avx512::rans_decode::<4, true>(table, [a, b, c, d]),
                        _ => 0,
                    }
                };
            }
        }
        let _ = (table, all);
        0
    }
}

/// The largest context. Without an early end, so that the compiler looks at many at a time.
#[cfg(target_arch = "x86_64")]
fn highest(ctx: &[u8]) -> usize {
    ctx.iter().fold(0, |top, &c| c.max(top)).into()
}
