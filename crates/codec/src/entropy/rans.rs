//! Interleaved rANS: 32 lanes of 32-bit state share one stream of 16-bit words, so that a GPU warp or four AVX2
//! registers decode it in step.
//!
//! The method is Duda's range variant of asymmetric numeral systems (arXiv 1311.2540); lane l codes symbols l, l+32,
//! ... The encoder goes from the last symbol to the first and writes words as they come, then the 32 states; the
//! decoder reads all of it from the end.

use crate::{
    CodecError, Result,
    entropy::{PROB_BITS, PROB_ONE},
    simd::Simd,
};

/// Lanes of a stream.
pub(crate) const LANES: usize = 32;
/// Bytes of lane states at the end of a stream.
pub(crate) const STATE_BYTES: usize = LANES * 4;
/// Lower bound of a state between two symbols, and the state of every lane before the first and after the last.
pub(crate) const LOW: u32 = 1 << 16;
const SLOTS: usize = PROB_ONE as usize;

/// What encoding one symbol needs.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct EncSymbol {
    /// ceil(2^64 / frequency), so that a high product divides exactly (states have 32 bits, frequencies 13).
    reciprocal: u64,
    freq: u16,
    bias: u16,
}

/// The bytes of a table's entries, all first ones first.
pub(crate) type Planes = [[u8; 256]; 8];

/// Encoding tables, 256 symbols for each context.
#[derive(Debug)]
pub struct EncTable {
    symbols: Vec<EncSymbol>,
    /// The same for vectors: floor(2^32 / frequency) or 2^32 - 1 | frequency << 32 | start << 48.
    packed: Vec<u64>,
}

impl EncTable {
    /// Tables for contexts with these frequencies (each sums to 4096, or is all zero and never used).
    pub fn new(contexts: &[[u16; 256]]) -> Self {
        let mut symbols = vec![EncSymbol::default(); contexts.len() * 256];
        let mut packed = Vec::with_capacity(contexts.len() * 256);
        for (freqs, table) in contexts.iter().zip(symbols.chunks_exact_mut(256)) {
            let mut start = 0u16;
            for (&freq, e) in freqs.iter().zip(table) {
                // Frequency 1 would need 2^64: 2^64 - 1 divides to x - 1 instead, and the bias makes up for it.
                *e = match freq {
                    0 => EncSymbol::default(),
                    1 => EncSymbol { reciprocal: u64::MAX, freq, bias: start + (PROB_ONE as u16 - 1) },
                    _ => EncSymbol { reciprocal: u64::MAX / u64::from(freq) + 1, freq, bias: start },
                };
                let reciprocal = (1u64 << 32).checked_div(freq.into()).map_or(0, |r| r.min(u32::MAX.into()));
                packed.push(reciprocal | u64::from(freq) << 32 | u64::from(start) << 48);
                start += freq;
            }
        }
        EncTable { symbols, packed }
    }

    /// The tables for a device, 256 symbols a context: reciprocal, then frequency | bias << 32.
    pub fn words(&self) -> Vec<u64> {
        let pair = |e: &EncSymbol| [e.reciprocal, u64::from(e.freq) | u64::from(e.bias) << 32];
        self.symbols.iter().flat_map(pair).collect()
    }

    /// The tables for vectors, 256 symbols a context.
    pub(crate) fn packed(&self) -> &[u64] {
        &self.packed
    }

    /// The first context's table for vectors, byte by byte.
    pub(crate) fn planes(&self) -> Box<Planes> {
        let mut planes = Box::new([[0; 256]; 8]);
        for (s, entry) in self.packed.iter().take(256).enumerate() {
            planes.iter_mut().zip(entry.to_le_bytes()).for_each(|(plane, byte)| plane[s] = byte);
        }
        planes
    }
}

/// Decoding tables, 4096 slots for each context: symbol | (slot - start) << 8 | (frequency - 1) << 20.
#[derive(Debug)]
pub struct DecTable {
    slots: Vec<u32>,
}

impl DecTable {
    /// Tables for contexts with these frequencies, each of which sums to 4096.
    pub fn new(contexts: &[[u16; 256]]) -> Result<Self> {
        let mut slots = Vec::with_capacity(contexts.len() * SLOTS);
        for freqs in contexts {
            for (s, &f) in freqs.iter().enumerate().filter(|(_, f)| **f > 0) {
                let head = s as u32 | (u32::from(f) - 1) << 20;
                slots.extend((0..u32::from(f)).map(|i| head | i << 8));
            }
            if slots.len() % SLOTS != 0 {
                return Err(CodecError::Corrupt("frequencies do not sum to one"));
            }
        }
        Ok(DecTable { slots })
    }

    /// Number of contexts.
    pub fn contexts(&self) -> usize {
        self.slots.len() / SLOTS
    }

    /// All slots, context by context.
    pub fn slots(&self) -> &[u32] {
        &self.slots
    }
}

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

/// The states of L lanes at the end of a stream, and the words before them.
pub(crate) fn states<const L: usize>(stream: &[u8]) -> Result<([u32; L], &[u8])> {
    let at = stream.len().checked_sub(4 * L).filter(|_| stream.len().is_multiple_of(2));
    let (words, tail) = stream.split_at(at.ok_or(CodecError::Corrupt("bad stream length"))?);
    let mut state = [0; L];
    for (x, b) in state.iter_mut().zip(tail.as_chunks::<4>().0) {
        *x = u32::from_le_bytes(*b);
    }
    Ok((state, words))
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

/// Decodes a whole stream into `out`; `ctx[i]` (same length, every value below the table's contexts) is the context of
/// symbol i.
pub(crate) fn decode(simd: Simd, table: &DecTable, stream: &[u8], ctx: Option<&[u8]>, out: &mut [u8]) -> Result<()> {
    let mut stream = Lanes::new(stream)?;
    take(simd, table, &mut [Next { stream: &mut stream, ctx, out }])?;
    stream.done()
}

/// A stream that is being decoded.
#[derive(Debug)]
pub(crate) struct Lanes<'a> {
    /// The states of its lanes.
    pub(crate) state: [u32; LANES],
    /// The words that are left; the last one is next.
    pub(crate) words: &'a [u8],
}

impl<'a> Lanes<'a> {
    /// Reads the states.
    pub(crate) fn new(stream: &'a [u8]) -> Result<Self> {
        let (state, words) = states(stream)?;
        Ok(Lanes { state, words })
    }

    /// Checks the end.
    pub(crate) fn done(&self) -> Result<()> {
        if !self.words.is_empty() || self.state.iter().any(|&x| x != LOW) {
            return Err(CodecError::Corrupt("stream does not end where it should"));
        }
        Ok(())
    }
}

/// A stream's next symbols: a multiple of 32, or all that are left.
#[derive(Debug)]
pub(crate) struct Next<'s, 'a> {
    /// The stream.
    pub(crate) stream: &'s mut Lanes<'a>,
    /// Their contexts, if there are any: as many, below the table's.
    pub(crate) ctx: Option<&'s [u8]>,
    /// Where they go.
    pub(crate) out: &'s mut [u8],
}

/// Decodes the next symbols of streams that share a table, side by side as far as all have some.
pub(crate) fn take(simd: Simd, table: &DecTable, all: &mut [Next<'_, '_>]) -> Result<()> {
    if all.iter().any(|n| n.ctx.is_some_and(|c| c.len() != n.out.len())) || table.contexts() == 0 {
        return Err(CodecError::BadInput("contexts do not fit the symbols"));
    }
    let from = simd.rans_decode_together(table, all);
    for Next { stream, ctx, out } in all {
        let (ctx, out) = (ctx.map(|c| &c[from..]), &mut out[from..]);
        let (done, left) = simd.rans_decode(table, &mut stream.state, stream.words, ctx, out);
        let (rest, out) = (&stream.words[..left], &mut out[done..]);
        let left = match ctx {
            Some(c) => {
                let row = |i: usize| usize::from(c[done + i]) << PROB_BITS;
                decode_tail(table, &mut stream.state, rest, row, out)?
            }
            None => decode_tail(table, &mut stream.state, rest, |_| 0, out)?,
        };
        stream.words = &rest[..left];
    }
    Ok(())
}

/// Decodes from a boundary of L symbols on; returns the bytes of `words` not consumed.
#[inline(always)]
pub(crate) fn decode_tail<const L: usize>(
    table: &DecTable,
    state: &mut [u32; L],
    words: &[u8],
    row: impl Fn(usize) -> usize,
    out: &mut [u8],
) -> Result<usize> {
    let mut words = words.rchunks_exact(2);
    for (g, group) in out.chunks_mut(L).enumerate() {
        for (lane, o) in group.iter_mut().enumerate() {
            let x = state[lane];
            let slot = row(g * L + lane) | (x & (PROB_ONE - 1)) as usize;
            let e = *table.slots.get(slot).ok_or(CodecError::Corrupt("unknown context"))?;
            *o = e as u8;
            // At most 4096 * (2^20 - 1) + 4095: no state, however corrupt, overflows.
            let mut x = ((e >> 20) + 1) * (x >> PROB_BITS) + (e >> 8 & (PROB_ONE - 1));
            if x < LOW {
                let w = words.next().ok_or(CodecError::Corrupt("stream is too short"))?;
                x = x << 16 | u32::from(u16::from_le_bytes([w[0], w[1]]));
            }
            state[lane] = x;
        }
    }
    Ok(words.len() * 2)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::entropy::tables::normalise;

    fn noise(n: usize, bits: u32) -> Vec<u8> {
        let mut x = 88172645463325252u64;
        let mut step = || {
            x ^= x << 13;
            x ^= x >> 7;
            x ^= x << 17;
            x
        };
        (0..n).map(|_| (step() & step() & ((1 << bits) - 1)) as u8).collect()
    }

    #[test]
    fn every_length_and_alphabet_round_trips_on_every_path() {
        for bits in [0, 1, 3, 8] {
            for n in [0, 1, 31, 32, 33, 64, 1000, 4099, 9000] {
                let symbols = noise(n, bits);
                let ctx: Vec<u8> = (0..n).map(|i| (i / 7 % 3) as u8).collect();
                let mut counts = [[0u32; 256]; 3];
                let mut flat = [0u32; 256];
                for (&s, &c) in symbols.iter().zip(&ctx) {
                    counts[usize::from(c)][usize::from(s)] += 1;
                    flat[usize::from(s)] += 1;
                }
                flat[9] += 1;
                counts.iter_mut().for_each(|c| c[9] += 1);
                for (freqs, ctx) in
                    [(vec![normalise(&flat)], None), (counts.map(|c| normalise(&c)).to_vec(), Some(ctx))]
                {
                    let mut stream = vec![7u8];
                    let table = EncTable::new(&freqs);
                    encode(Simd::scalar(), &table, &symbols, ctx.as_deref(), &mut stream);
                    for simd in Simd::all() {
                        let mut fast = vec![7u8];
                        encode(simd, &table, &symbols, ctx.as_deref(), &mut fast);
                        assert_eq!(stream, fast);
                    }
                    let table = DecTable::new(&freqs).unwrap();
                    for simd in Simd::all() {
                        let mut out = vec![0u8; n];
                        decode(simd, &table, &stream[1..], ctx.as_deref(), &mut out).unwrap();
                        assert_eq!(out, symbols);
                        let mut short = stream[1..].to_vec();
                        short.truncate(short.len() - 2);
                        assert!(decode(simd, &table, &short, ctx.as_deref(), &mut out).is_err());
                    }
                }
            }
        }
    }

    #[test]
    fn streams_side_by_side_are_decoded_as_alone() {
        let lengths = [5000, 64, 4097, 1234];
        let all: Vec<Vec<u8>> = lengths.iter().map(|&n| noise(n + 7, 6).split_off(7)).collect();
        let contexts: Vec<Vec<u8>> = lengths.iter().map(|&n| (0..n).map(|i| (i / 5 % 2) as u8).collect()).collect();
        let mut counts = [[1u32; 256]; 2];
        all.iter().flatten().for_each(|&s| counts[usize::from(s & 1)][usize::from(s)] += 1);
        let freqs = counts.map(|c| normalise(&c));
        let (enc, dec) = (EncTable::new(&freqs), DecTable::new(&freqs).unwrap());
        for with in [false, true] {
            let mut streams = vec![Vec::new(); 4];
            for i in 0..4 {
                let ctx = with.then_some(&contexts[i][..]);
                encode(Simd::detect(), &enc, &all[i], ctx, &mut streams[i]);
            }
            // As they are; then with one word cut off, added or changed.
            for damage in 0..40 {
                let mut streams = streams.clone();
                let at = damage * 31 % (streams[2].len() - 1);
                match damage % 4 {
                    _ if damage < 4 => {}
                    0 => drop(streams[2].drain(at / 2 * 2..at / 2 * 2 + 2)),
                    1 => streams[0][at] ^= 0x5a,
                    2 => streams[2][at] ^= 1,
                    _ => streams[3].truncate(STATE_BYTES + 2 * (damage % 7)),
                }
                for k in 1..=4 {
                    let mut results = Vec::new();
                    for simd in Simd::all() {
                        let mut out: Vec<Vec<u8>> = lengths[..k].iter().map(|&n| vec![0; n]).collect();
                        let mut lanes: Vec<Lanes<'_>> = streams[..k].iter().map(|s| Lanes::new(s).unwrap()).collect();
                        let mut next: Vec<Next<'_, '_>> = Vec::new();
                        for (i, (stream, out)) in lanes.iter_mut().zip(&mut out).enumerate() {
                            next.push(Next { stream, ctx: with.then_some(&contexts[i][..]), out });
                        }
                        let ended = take(simd, &dec, &mut next).is_ok() && lanes.iter().all(|l| l.done().is_ok());
                        assert!(damage >= 4 || (ended && out[..] == all[..k]));
                        results.push(ended.then_some(out));
                    }
                    assert!(results.iter().all(|r| *r == results[0]), "{damage} {k}");
                }
            }
        }
    }
}
