//! Scheme "delta": every element as a difference to its base, (sign, top bits) coded in the context of the base's
//! exponent, the bits below raw.

use crate::{
    CodecError, Result, Scheme,
    entropy::{
        BitReader, BitWriter, ByExponent, COST_BITS, Context, Cursor, DecTable, EncTable, Grid, contexts, get_freqs,
        normalise, put_with_length, rans, split, tables,
    },
    schemes::{Numbers, signed, symbol_bases, symbol_of},
    scratch::with_scratch,
    simd::Simd,
};
use rayon::prelude::*;
use std::ops::Range;

/// Counts the symbols of `raw` against `base` with the most bits in the class that the type allows.
pub(crate) fn count(numbers: Numbers, raw: &[u8], base: &[u8]) -> ByExponent {
    let mut by = ByExponent::new();
    let t = numbers.max_t();
    for i in 0..raw.len() / numbers.size {
        let old = numbers.load(base, i);
        by.add(numbers.context(old), symbol_of(numbers.difference(numbers.load(raw, i), old), t));
    }
    by
}

/// What an encoder decides from counts.
#[derive(Debug)]
pub struct DeltaPlan {
    /// The segment up to its blocks, scheme byte first.
    pub head: Vec<u8>,
    /// Bits under the top one that join the class.
    pub t: u32,
    /// Frequencies of the contexts.
    pub freqs: Vec<[u16; 256]>,
    /// Context of every exponent.
    pub map: [u8; 256],
    grid: Grid,
}

impl DeltaPlan {
    /// Picks how many bits under the top one join the class, and the contexts, for symbols with as many of them as the
    /// type allows.
    pub fn new(numbers: Numbers, grid: Grid, by: &ByExponent) -> DeltaPlan {
        let best = (0..=numbers.max_t()).rev().map(|t| plan_at(numbers, by, t)).min_by_key(|p| p.2);
        let (t, list, _) = best.unwrap_or_default();
        let freqs: Vec<[u16; 256]> = list.iter().map(|c| normalise(&c.counts)).collect();
        let mut head = vec![Scheme::Delta as u8, grid.log, t as u8, list.len() as u8];
        head.extend(list.iter().skip(1).map(|c| c.first));
        freqs.iter().for_each(|f| tables::put(&mut head, f, true));
        DeltaPlan { head, t, freqs, map: context_map(list.iter().map(|c| c.first)), grid }
    }

    /// The segment, from the stream and the raw bits of each block.
    pub fn finish(&self, blocks: &[(&[u8], &[u8])]) -> Vec<u8> {
        let size: usize = blocks.iter().map(|(s, b)| s.len() + b.len() + 8).sum();
        let mut out = Vec::with_capacity(self.head.len() + size);
        out.extend_from_slice(&self.head);
        self.grid.put_lengths(&mut out, blocks.iter().map(|(s, b)| 4 + s.len() + b.len()));
        for (stream, bits) in blocks {
            out.extend_from_slice(&(stream.len() as u32).to_le_bytes());
            out.extend_from_slice(stream);
            out.extend_from_slice(bits);
        }
        out
    }
}

/// Contexts and cost in 1/1024 bits with `t` bits in the class.
fn plan_at(numbers: Numbers, by: &ByExponent, t: u32) -> (u32, Vec<Context>, u64) {
    let (from, to) = (symbol_bases(numbers.max_t()), symbol_bases(t));
    let coarse = by.map(|s| symbol_of(signed(s, from[usize::from(s)].0), t));
    let (list, mut cost) = contexts::cluster(&coarse);
    for c in &list {
        cost += c.counts.iter().zip(to).map(|(&n, b)| u64::from(n) * u64::from(b.1)).sum::<u64>() << COST_BITS;
    }
    (t, list, cost)
}

/// Cost in 1/1024 bits of coding these counts, with one `t` only: for an estimate.
pub(crate) fn cost(numbers: Numbers, by: &ByExponent) -> u64 {
    plan_at(numbers, by, numbers.max_t().min(2)).2
}

/// Encodes `raw` against `base`, scheme byte first.
pub(crate) fn encode(simd: Simd, numbers: Numbers, raw: &[u8], base: &[u8]) -> Vec<u8> {
    let size = numbers.size;
    let grid = Grid::new(raw.len() / size);
    let bytes = |b: usize| grid.bytes(b, size);
    let by = (0..grid.blocks())
        .into_par_iter()
        .map(|b| count(numbers, &raw[bytes(b)], &base[bytes(b)]))
        .reduce(ByExponent::new, |a, b| a.merge(&b));
    let plan = DeltaPlan::new(numbers, grid, &by);
    let mut out = plan.head;
    let coder = Encoder { simd, numbers, t: plan.t, table: EncTable::new(&plan.freqs), map: plan.map };
    grid.put_blocks(&mut out, |b, out| coder.block(&raw[bytes(b)], &base[bytes(b)], out));
    out
}

/// Context of every exponent, from the first exponents of the contexts.
pub(crate) fn context_map(firsts: impl Iterator<Item = u8>) -> [u8; 256] {
    let mut map = [0u8; 256];
    for (c, first) in firsts.enumerate() {
        map[usize::from(first)..].fill(c as u8);
    }
    map
}

struct Encoder {
    simd: Simd,
    numbers: Numbers,
    t: u32,
    table: EncTable,
    map: [u8; 256],
}

impl Encoder {
    fn block(&self, raw: &[u8], base: &[u8], out: &mut Vec<u8>) {
        let n = raw.len() / self.numbers.size;
        let bases = symbol_bases(self.t);
        let mut bits = BitWriter::with_capacity(raw.len());
        with_scratch(2 * n, |scratch| {
            let (symbols, ctx) = scratch.split_at_mut(n);
            for (i, (s, c)) in symbols.iter_mut().zip(ctx.iter_mut()).enumerate() {
                let old = self.numbers.load(base, i);
                let d = self.numbers.difference(self.numbers.load(raw, i), old);
                *s = symbol_of(d, self.t);
                *c = self.map[usize::from(self.numbers.context(old))];
                let (least, width) = bases[usize::from(*s)];
                bits.put_wide(d.unsigned_abs() - least, width);
            }
            put_with_length(out, |out| rans::encode(self.simd, &self.table, symbols, Some(ctx), out));
        });
        out.extend_from_slice(&bits.finish());
    }
}

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
    bases: [(u64, u32); 256],
    table: DecTable,
}

impl<'a> Reader<'a> {
    /// As [`Front::new`].
    pub(crate) fn new(numbers: Numbers, body: &'a [u8], n: usize) -> Result<Self> {
        let front = Front::new(numbers, body, n)?;
        Ok(Reader { bases: symbol_bases(front.t), table: DecTable::new(&front.freqs)?, front })
    }

    /// Decodes the numbers of `range` into `out`; `base` is the base of the whole segment.
    pub(crate) fn decode(&self, simd: Simd, base: &[u8], range: Range<usize>, out: &mut [u8]) -> Result<()> {
        let size = self.front.numbers.size;
        self.front.grid.decode_range(&self.front.blocks, size, range, out, |data, elements, out| {
            self.block(simd, data, &base[elements.start * size..elements.end * size], out)
        })
    }

    fn block(&self, simd: Simd, data: &[u8], base: &[u8], out: &mut [u8]) -> Result<()> {
        let numbers = self.front.numbers;
        let n = out.len() / numbers.size;
        let (stream, bits) = split(data)?;
        let mut bits = BitReader::new(bits);
        with_scratch(2 * n, |scratch| {
            let (symbols, ctx) = scratch.split_at_mut(n);
            for (i, c) in ctx.iter_mut().enumerate() {
                *c = self.front.map[usize::from(numbers.context(numbers.load(base, i)))];
            }
            rans::decode(simd, &self.table, stream, Some(ctx), symbols)?;
            for (i, &s) in symbols.iter().enumerate() {
                let (least, width) = self.bases[usize::from(s)];
                let d = signed(s, least.wrapping_add(bits.get_wide(width)));
                numbers.store(out, i, numbers.apply(numbers.load(base, i), d));
            }
            if bits.ended_well() { Ok(()) } else { Err(CodecError::Corrupt("raw bits do not end where they should")) }
        })
    }
}
