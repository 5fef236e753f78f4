//! Decoder of the scheme "delta".

use crate::{
    CodecError, Result,
    entropy::{BitReader, Cursor, DecTable, Grid, Stream, contexts, get_freqs, split},
    schemes::{
        Numbers,
        delta::{Classes, context_map},
    },
    simd::{CHUNK, Simd},
};
use std::ops::Range;

/// log2 of the lanes of a stream.
const LANES_LOG: u8 = 5;

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
        let size = self.front.numbers.size;
        self.front.grid.decode_range(&self.front.blocks, size, range, out, |data, elements, out| {
            self.block(simd, data, &base[elements.start * size..elements.end * size], out)
        })
    }

    fn block(&self, simd: Simd, data: &[u8], base: &[u8], out: &mut [u8]) -> Result<()> {
        let size = self.front.numbers.size;
        let (stream, bits) = split(data)?;
        let (mut stream, mut bits) = (Stream::new(LANES_LOG, stream)?, BitReader::new(bits));
        let (mut symbols, mut ctx) = ([0; CHUNK], [0; CHUNK]);
        // A cacheful at a time: what one step leaves is there for the next.
        for (base, out) in base.chunks(CHUNK * size).zip(out.chunks_mut(CHUNK * size)) {
            let n = out.len() / size;
            let (symbols, ctx) = (&mut symbols[..n], &mut ctx[..n]);
            simd.contexts(self.front.numbers, &self.front.map, base, ctx);
            stream.take(simd, &self.table, ctx, symbols)?;
            simd.apply(&self.classes, symbols, &mut bits, base, out);
        }
        stream.done()?;
        if bits.ended_well() { Ok(()) } else { Err(CodecError::Corrupt("raw bits do not end where they should")) }
    }
}
