//! Decoding of rANS streams, alone or side by side.

use crate::{
    CodecError, Result,
    entropy::{
        PROB_BITS, PROB_ONE,
        rans::{DecTable, LANES, LOW},
    },
    simd::Simd,
};

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
            let e = *table.slots().get(slot).ok_or(CodecError::Corrupt("unknown context"))?;
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
