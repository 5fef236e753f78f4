//! Scheme "sparse": the base with a few elements changed, as gaps between the changes and the differences there.

use crate::{
    CodecError, Result, Scheme,
    entropy::{BitReader, BitWriter, Cursor, Grid, Histogram, PlaneDecoder, PlaneEncoder, put_varint},
    schemes::{Numbers, class_base, class_of, signed, symbol_bases, symbol_of},
    simd::Simd,
};
use rayon::prelude::*;
use std::{borrow::Cow, ops::Range};

/// Bits under the top one in the class of a gap.
const GAP_T: u32 = 2;

/// The changes of a block.
#[derive(Clone, Debug, Default)]
pub struct Changes<B> {
    /// Classes of the gaps.
    pub gaps: B,
    /// Symbols of the differences.
    pub symbols: B,
    /// The raw bits of both, change by change.
    pub bits: B,
}

fn changes(numbers: Numbers, raw: &[u8], base: &[u8]) -> Changes<Vec<u8>> {
    let (size, t) = (numbers.size, numbers.max_t());
    let (mut gaps, mut symbols, mut bits) = (Vec::new(), Vec::new(), BitWriter::default());
    let bases = symbol_bases(t);
    let mut next = 0;
    // Equal stretches are passed over 64 bytes at a time.
    for (c, (new, old)) in raw.chunks(64).zip(base.chunks(64)).enumerate() {
        if new == old {
            continue;
        }
        for i in 0..new.len() / size {
            let (a, b) = (numbers.load(new, i), numbers.load(old, i));
            if a == b {
                continue;
            }
            let at = c * 64 / size + i;
            let (gap, d) = ((at - next) as u64, numbers.difference(a, b));
            next = at + 1;
            gaps.push(class_of(gap, GAP_T));
            symbols.push(symbol_of(d, t));
            let (least, width) = class_base(class_of(gap, GAP_T), GAP_T);
            bits.put_wide(gap - least, width);
            let (least, width) = bases[usize::from(symbol_of(d, t))];
            bits.put_wide(d.unsigned_abs() - least, width);
        }
    }
    Changes { gaps, symbols, bits: bits.finish() }
}

/// Encodes `raw` against `base`, scheme byte first.
pub(crate) fn encode(simd: Simd, numbers: Numbers, raw: &[u8], base: &[u8]) -> Result<Vec<u8>> {
    let size = numbers.size;
    let grid = Grid::new(raw.len() / size);
    let bytes = |b: usize| grid.bytes(b, size);
    let all: Vec<_> =
        (0..grid.blocks()).into_par_iter().map(|b| changes(numbers, &raw[bytes(b)], &base[bytes(b)])).collect();
    finish(simd, grid, &all)
}

/// The segment, from the changes of each of its blocks.
pub fn finish<B: AsRef<[u8]> + Sync>(simd: Simd, grid: Grid, all: &[Changes<B>]) -> Result<Vec<u8>> {
    let full = all.iter().filter(|c| !c.gaps.as_ref().is_empty()).count();
    let coder = |part: fn(&Changes<B>) -> &B| {
        let mut counts = Histogram::new();
        all.iter().for_each(|c| counts.add(part(c).as_ref()));
        PlaneEncoder::choose(&counts.total(), full)
    };
    let (gaps, symbols) = (coder(|c| &c.gaps)?, coder(|c| &c.symbols)?);
    let mut out = vec![Scheme::Sparse as u8, grid.log];
    gaps.put_header(&mut out);
    symbols.put_header(&mut out);
    grid.put_blocks(&mut out, |b, out| {
        let c = &all[b];
        put_varint(out, c.gaps.as_ref().len() as u64);
        if !c.gaps.as_ref().is_empty() {
            gaps.encode(simd, c.gaps.as_ref(), out);
            symbols.encode(simd, c.symbols.as_ref(), out);
            out.extend_from_slice(c.bits.as_ref());
        }
    });
    Ok(out)
}

/// A segment whose header is read.
#[derive(Debug)]
pub struct Reader<'a> {
    /// What the segment is made of.
    pub numbers: Numbers,
    /// Where its blocks are.
    pub grid: Grid,
    gaps: PlaneDecoder,
    symbols: PlaneDecoder,
    /// The blocks, as many as the grid has.
    pub blocks: Vec<&'a [u8]>,
}

impl<'a> Reader<'a> {
    /// Reads the header of `body` (what follows the scheme byte) of a segment of `n` numbers.
    pub fn new(numbers: Numbers, body: &'a [u8], n: usize) -> Result<Self> {
        let mut cursor = Cursor::new(body);
        let grid = Grid::get(&mut cursor, n)?;
        let gaps = PlaneDecoder::get_header(&mut cursor)?;
        let symbols = PlaneDecoder::get_header(&mut cursor)?;
        let blocks = grid.get_blocks(&mut cursor)?;
        Ok(Reader { numbers, grid, gaps, symbols, blocks })
    }

    /// Decodes the numbers of `range` into `out`; `base` is the base of the whole segment.
    pub(crate) fn decode(&self, simd: Simd, base: &[u8], range: Range<usize>, out: &mut [u8]) -> Result<()> {
        let size = self.numbers.size;
        self.grid.decode_range(&self.blocks, size, range, out, |data, elements, out| {
            self.block(simd, data, &base[elements.start * size..elements.end * size], out)
        })
    }

    /// The classes and symbols of a block of `n` numbers, as many of the one as of the other and at most `n`, and its
    /// raw bits.
    pub fn changes<'d>(&self, simd: Simd, data: &'d [u8], n: usize) -> Result<Changes<Cow<'d, [u8]>>> {
        let mut cursor = Cursor::new(data);
        let count = cursor.varint()?;
        if count > n {
            return Err(CodecError::Corrupt("more changes than elements"));
        }
        let (mut gaps, mut symbols) = (vec![0; count], vec![0; count]);
        if count > 0 {
            self.gaps.decode(simd, &mut cursor, &mut gaps)?;
            self.symbols.decode(simd, &mut cursor, &mut symbols)?;
        }
        Ok(Changes { gaps: gaps.into(), symbols: symbols.into(), bits: cursor.rest().into() })
    }

    fn block(&self, simd: Simd, data: &[u8], base: &[u8], out: &mut [u8]) -> Result<()> {
        out.copy_from_slice(base);
        let n = out.len() / self.numbers.size;
        let found = self.changes(simd, data, n)?;
        let mut bits = BitReader::new(&found.bits);
        let bases = symbol_bases(self.numbers.max_t());
        let mut at = 0usize;
        for (&g, &s) in found.gaps.iter().zip(found.symbols.iter()) {
            let (least, width) = class_base(g, GAP_T);
            at = at.saturating_add(least.saturating_add(bits.get_wide(width.min(32))) as usize);
            if at >= n {
                return Err(CodecError::Corrupt("a change past the end"));
            }
            let (least, width) = bases[usize::from(s)];
            let d = signed(s, least.wrapping_add(bits.get_wide(width)));
            self.numbers.store(out, at, self.numbers.apply(self.numbers.load(base, at), d));
            at += 1;
        }
        if bits.ended_well() { Ok(()) } else { Err(CodecError::Corrupt("raw bits do not end where they should")) }
    }
}
