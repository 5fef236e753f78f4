//! Interleaved rANS: 32 lanes of 32-bit state share one stream of 16-bit words, so that a GPU warp or four AVX2
//! registers decode it in step.
//!
//! The method is Duda's range variant of asymmetric numeral systems (arXiv 1311.2540); lane l codes symbols l, l+32,
//! ... The encoder goes from the last symbol to the first and writes words as they come, then the 32 states; the
//! decoder reads all of it from the end.

mod decode;
mod tables;
#[cfg(test)]
mod tests;

use crate::{
    entropy::{PROB_BITS, PROB_ONE},
    simd::Simd,
};

pub(crate) use decode::{Lanes, Next, decode, decode_tail, states, take};
pub(crate) use tables::Planes;
pub use tables::{DecTable, EncTable};

/// Lanes of a stream.
pub(crate) const LANES: usize = 32;
/// Bytes of lane states at the end of a stream.
pub(crate) const STATE_BYTES: usize = LANES * 4;
/// Lower bound of a state between two symbols, and the state of every lane before the first and after the last.
pub(crate) const LOW: u32 = 1 << 16;

/// Appends the stream of `symbols` to `out`. With `ctx` (as long, every value below the table's contexts), symbol i is
/// coded in context `ctx[i]`; without, in context 0.
pub(crate) fn encode(simd: Simd, table: &EncTable, symbols: &[u8], ctx: Option<&[u8]>, out: &mut Vec<u8>) {
    let mut state = [LOW; LANES];
    encode_part(simd, table, &mut state, symbols, ctx, out);
    put_states(&state, out);
}

/// Appends the states of lanes: the end of a stream.
pub(crate) fn put_states(state: &[u32], out: &mut Vec<u8>) {
    state.iter().for_each(|x| out.extend_from_slice(&x.to_le_bytes()));
}

/// As [`encode`], going on from the states of what follows and without writing them.
pub(crate) fn encode_part(
    simd: Simd,
    table: &EncTable,
    state: &mut [u32; LANES],
    symbols: &[u8],
    ctx: Option<&[u8]>,
    out: &mut Vec<u8>,
) {
    let (whole, _) = symbols.split_at(symbols.len() / LANES * LANES);
    encode_scalar(table, state, symbols, ctx, whole.len(), out);
    if !simd.rans_encode(table, state, whole, ctx, out) {
        encode_scalar(table, state, whole, ctx, 0, out);
    }
}

/// Encodes the symbols from `from` (a multiple of the lanes L) on, last first, and appends their words.
pub(crate) fn encode_scalar<const L: usize>(
    table: &EncTable,
    state: &mut [u32; L],
    symbols: &[u8],
    ctx: Option<&[u8]>,
    from: usize,
    out: &mut Vec<u8>,
) {
    for (g, group) in symbols[from..].chunks(L).enumerate().rev() {
        // At most one word a symbol: written always, kept when needed, so that no branch has to be guessed.
        let mut words = [[0u8; 2]; L];
        let mut n = 0;
        for (lane, &s) in group.iter().enumerate().rev() {
            let row = ctx.map_or(0, |c| usize::from(c[from + g * L + lane]) << 8);
            let e = &table.symbols[row | usize::from(s)];
            let x = state[lane];
            let spill = u64::from(x) >= u64::from(e.freq) << (32 - PROB_BITS);
            words[n % L] = (x as u16).to_le_bytes();
            n += usize::from(spill);
            let x = if spill { x >> 16 } else { x };
            let q = ((u128::from(e.reciprocal) * u128::from(x)) >> 64) as u32;
            state[lane] = x.wrapping_add(u32::from(e.bias)).wrapping_add(q.wrapping_mul(PROB_ONE - u32::from(e.freq)));
        }
        out.extend_from_slice(words[..n].as_flattened());
    }
}
