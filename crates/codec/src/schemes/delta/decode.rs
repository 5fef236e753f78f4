//! Decoder of the scheme "delta".

use crate::{
    CodecError, Result,
    entropy::{
        BitReader, Cursor, DecTable, Grid, Job, Next, contexts, get_freqs,
        rans::{self, Lanes},
        split,
    },
    schemes::{
        Numbers,
        delta::{Classes, context_map},
    },
    scratch::with_scratch,
    simd::{Simd, TURN},
};
use std::ops::Range;

/// The header of a segment, and its blocks.
#[derive(Debug)]
pub struct Front<'a> {
    /// What the segment is made of.
    pub numbers: Numbers,
    /// Where its blocks are.
    pub grid: Grid,
    /// Bits under the top one that join the class.
    pub t: u32,
    /// Frequencies of the contexts: at least one.
    pub freqs: Vec<[u16; 256]>,
    /// Context of every exponent.
    pub map: [u8; 256],
    /// The blocks, as many as the grid has.
    pub blocks: Vec<&'a [u8]>,
}

impl<'a> Front<'a> {
    /// Reads the header of `body` (what follows the scheme byte) of a segment of `n` numbers.
    pub fn new(numbers: Numbers, body: &'a [u8], n: usize) -> Result<Self> {
        let mut cursor = Cursor::new(body);
        let grid = Grid::get(&mut cursor, n)?;
        let t = u32::from(cursor.u8()?);
        if t > numbers.max_t() {
            return Err(CodecError::Corrupt("bad class"));
        }
        let firsts = contexts::get_firsts(&mut cursor)?;
        let freqs = (0..firsts.len()).map(|_| get_freqs(&mut cursor)).collect::<Result<Vec<_>, _>>()?;
        let blocks = grid.get_blocks(&mut cursor)?;
        Ok(Front { numbers, grid, t, freqs, map: context_map(firsts.into_iter()), blocks })
    }
}

/// A segment whose header is read.
#[derive(Debug)]
pub(crate) struct Reader<'a> {
    front: Front<'a>,
    classes: Classes,
    table: DecTable,
}

impl<'a> Reader<'a> {
    /// As [`Front::new`].
    pub(crate) fn new(numbers: Numbers, body: &'a [u8], n: usize) -> Result<Self> {
        let front = Front::new(numbers, body, n)?;
        let occurs = |s: u8| front.freqs.iter().any(|f| f[usize::from(s)] > 0);
        Ok(Reader { classes: Classes::new(numbers, front.t, occurs), table: DecTable::new(&front.freqs)?, front })
    }

    /// Decodes the numbers of `range` into `out`; `base` is the base of the whole segment.
    pub(crate) fn decode(&self, simd: Simd, base: &[u8], range: Range<usize>, out: &mut [u8]) -> Result<()> {
        let front = &self.front;
        let most = simd.streams_at_once();
        let decode = |jobs: &mut [Job<'_>]| self.blocks(simd, base, jobs);
        front.grid.decode_together(&front.blocks, front.numbers.size, range, out, most, decode)
    }

    fn blocks(&self, simd: Simd, base: &[u8], jobs: &mut [Job<'_>]) -> Result<()> {
        let size = self.front.numbers.size;
        let mut all = Vec::with_capacity(jobs.len());
        for job in jobs {
            let (stream, bits) = split(job.data)?;
            let base = &base[job.elements.start * size..job.elements.end * size];
            let chunks = base.chunks(TURN * size).zip(job.out.chunks_mut(TURN * size));
            all.push((chunks, Lanes::new(stream)?, BitReader::new(bits)));
        }
        with_scratch(2 * TURN * all.len(), |scratch| {
            // A part of each block at a time: what one step leaves is in a cache for the next.
            loop {
                let (mut next, mut rest) = (Vec::with_capacity(all.len()), Vec::with_capacity(all.len()));
                let mut room = &mut *scratch;
                for (chunks, stream, bits) in &mut all {
                    let Some((base, out)) = chunks.next() else { continue };
                    let (symbols, ctx);
                    (symbols, room) = std::mem::take(&mut room).split_at_mut(out.len() / size);
                    (ctx, room) = std::mem::take(&mut room).split_at_mut(out.len() / size);
                    simd.contexts(self.front.numbers, &self.front.map, base, ctx);
                    next.push(Next { stream, ctx: Some(ctx), out: symbols });
                    rest.push((bits, base, out));
                }
                if next.is_empty() {
                    return Ok(());
                }
                rans::take(simd, &self.table, &mut next)?;
                for (Next { out: symbols, .. }, (bits, base, out)) in next.into_iter().zip(rest) {
                    simd.apply(&self.classes, symbols, bits, base, out);
                }
            }
        })?;
        for (_, stream, bits) in all {
            stream.done()?;
            if !bits.ended_well() {
                return Err(CodecError::Corrupt("raw bits do not end where they should"));
            }
        }
        Ok(())
    }
}
