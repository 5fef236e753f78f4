//! Lane count of a block's rANS stream, and streams coded in several parts.
//!
//! The lanes' states cost 4 bytes each a block: 128 bytes are much where a whole block takes 2,000. So a stream has 32,
//! 4 or 1 lanes, by what the segment is estimated to take. Every part begins at the first lane.

use crate::{
    CodecError, Result,
    entropy::{
        DecTable, EncTable, LANES,
        rans::{LOW, decode_tail, encode_part, encode_scalar, put_states, states},
    },
    simd::Simd,
};

/// log2 of the lanes of streams of about `bytes` bytes.
pub(crate) fn lanes_for(bytes: u64) -> u8 {
    match bytes {
        0..256 => 0,
        256..12_288 => 2,
        _ => 5,
    }
}

/// log2 of lanes, if streams come on so many.
pub(crate) fn checked(lanes: u8) -> Result<u8> {
    match lanes {
        0 | 2 | 5 => Ok(lanes),
        _ => Err(CodecError::Corrupt("bad count of lanes")),
    }
}

/// Symbols, and the context of each.
pub(crate) type Part<'a> = (&'a [u8], &'a [u8]);

/// Appends the stream of the parts, on 2^`lanes` lanes (0, 2 or 5).
pub(crate) fn put(simd: Simd, table: &EncTable, lanes: u8, parts: &[Part<'_>], out: &mut Vec<u8>) {
    match lanes {
        0 => put_few::<1>(table, parts, out),
        2 => put_few::<4>(table, parts, out),
        _ => {
            let mut state = [LOW; LANES];
            for (symbols, ctx) in parts.iter().rev() {
                encode_part(simd, table, &mut state, symbols, Some(ctx), out);
            }
            put_states(&state, out);
        }
    }
}

fn put_few<const L: usize>(table: &EncTable, parts: &[Part<'_>], out: &mut Vec<u8>) {
    let mut state = [LOW; L];
    for (symbols, ctx) in parts.iter().rev() {
        encode_scalar(table, &mut state, symbols, Some(ctx), 0, out);
    }
    put_states(&state, out);
}

/// A stream that is being decoded.
#[derive(Debug)]
pub(crate) enum Stream<'a> {
    /// One lane.
    One([u32; 1], &'a [u8]),
    /// Four lanes.
    Four([u32; 4], &'a [u8]),
    /// As many lanes as a group has symbols.
    Full([u32; LANES], &'a [u8]),
}

impl<'a> Stream<'a> {
    /// Reads the states.
    pub(crate) fn new(lanes: u8, stream: &'a [u8]) -> Result<Self> {
        match checked(lanes)? {
            0 => states(stream).map(|(state, words)| Stream::One(state, words)),
            2 => states(stream).map(|(state, words)| Stream::Four(state, words)),
            _ => states(stream).map(|(state, words)| Stream::Full(state, words)),
        }
    }

    /// Decodes the next symbols of a part: a multiple of 32, or what is left of it. `ctx` is as long as `out`, every
    /// value below the table's contexts.
    #[inline(always)]
    pub(crate) fn take(&mut self, simd: Simd, table: &DecTable, ctx: &[u8], out: &mut [u8]) -> Result<()> {
        match self {
            Stream::One(state, words) => few(table, state, words, ctx, out),
            Stream::Four(state, words) => few(table, state, words, ctx, out),
            Stream::Full(state, words) => {
                let (done, left) = simd.rans_decode(table, state, words, Some(ctx), out);
                *words = &words[..left];
                if done == out.len() {
                    return Ok(());
                }
                few(table, state, words, &ctx[done..], &mut out[done..])
            }
        }
    }

    /// Checks the end.
    pub(crate) fn done(self) -> Result<()> {
        let (state, words): (&[u32], _) = match &self {
            Stream::One(s, w) => (s, w),
            Stream::Four(s, w) => (s, w),
            Stream::Full(s, w) => (s, w),
        };
        if words.is_empty() && state.iter().all(|&x| x == LOW) {
            Ok(())
        } else {
            Err(CodecError::Corrupt("stream does not end where it should"))
        }
    }
}

#[inline(always)]
fn few<const L: usize>(
    table: &DecTable,
    state: &mut [u32; L],
    words: &mut &[u8],
    ctx: &[u8],
    out: &mut [u8],
) -> Result<()> {
    let row = |i: usize| usize::from(ctx.get(i).copied().unwrap_or(u8::MAX)) << crate::entropy::tables::PROB_BITS;
    let left = decode_tail(table, state, words, row, out)?;
    *words = &words[..left];
    Ok(())
}
