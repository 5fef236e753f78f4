//! Palette decoder.

use crate::{
    CodecError, Dtype, Result,
    entropy::{bits::Cursor, blocks::Grid, contexts, rans, rans::DecTable, tables::get_freqs},
    schemes::{
        delta,
        diff::Numbers,
        palette::{Table, get_number, lookup::Nearest, values, values::turn_all},
    },
    scratch::with_scratch,
    simd::Simd,
};
use std::ops::Range;

/// Numbers of a block, its stream, what follows the stream.
pub type Part<'a> = (Range<usize>, &'a [u8], &'a [u8]);

/// A segment whose header is read.
#[derive(Debug)]
pub struct Reader<'a> {
    table: Table,
    grid: Grid,
    zero: u8,
    lists: Vec<[u16; 256]>,
    freqs: DecTable,
    map: [u8; 256],
    with_base: bool,
    blocks: Vec<&'a [u8]>,
}

impl<'a> Reader<'a> {
    /// Reads the header of `body` (what follows the scheme byte) of a segment of `n` numbers.
    pub(crate) fn new(numbers: Numbers, with_base: bool, body: &'a [u8], n: usize) -> Result<Self> {
        if numbers.size == 1 {
            return Err(CodecError::Corrupt("a palette of bytes"));
        }
        let mut cursor = Cursor::new(body);
        let grid = Grid::get(&mut cursor, n)?;
        let table = Table::get(&mut cursor, numbers)?;
        let zero = cursor.u8()?;
        if usize::from(zero) >= numbers.size {
            return Err(CodecError::Corrupt("bad palette"));
        }
        let firsts = if with_base { contexts::get_firsts(&mut cursor)? } else { vec![0] };
        let freqs = (0..firsts.len()).map(|_| get_freqs(&mut cursor)).collect::<Result<Vec<_>, _>>()?;
        let last = usize::from(table.exception());
        if freqs.iter().any(|f| f[last + 1..].iter().any(|&v| v > 0)) {
            return Err(CodecError::Corrupt("symbols beyond the palette"));
        }
        let blocks = grid.get_blocks(&mut cursor)?;
        Ok(Reader {
            table,
            grid,
            zero,
            freqs: DecTable::new(&freqs)?,
            lists: freqs,
            map: delta::context_map(firsts.into_iter()),
            with_base,
            blocks,
        })
    }

    /// As [`new`](Self::new), for an engine elsewhere.
    ///
    /// # Errors
    /// A header that no encoder writes.
    pub fn open(dtype: Dtype, with_base: bool, body: &'a [u8], n: usize) -> Result<Self> {
        Self::new(Numbers::of(dtype), with_base, body, n)
    }

    /// The values.
    pub fn table(&self) -> &Table {
        &self.table
    }

    /// Low bytes of exceptions that are zero and not there.
    pub fn zero(&self) -> u8 {
        self.zero
    }

    /// The contexts' frequencies.
    pub fn frequencies(&self) -> &[[u16; 256]] {
        &self.lists
    }

    /// The context of each place.
    pub fn map(&self) -> &[u8] {
        &self.map
    }

    /// Numbers of each block, its stream, and its exceptions' bytes.
    ///
    /// # Errors
    /// A block that ends before its stream does.
    pub fn parts(&self) -> Result<Vec<Part<'a>>> {
        let one = |(b, data): (usize, &&'a [u8])| {
            let (stream, rest) = split(data)?;
            Ok((self.grid.elements(b), stream, rest))
        };
        self.blocks.iter().enumerate().map(one).collect()
    }

    /// Decodes the numbers of `range` into `out`; `base` is the base of the whole segment, where the scheme needs one.
    pub(crate) fn decode(&self, simd: Simd, base: &[u8], range: Range<usize>, out: &mut [u8]) -> Result<()> {
        let size = self.table.numbers.size;
        let near = self.with_base.then(|| Nearest::new(&self.table));
        self.grid.decode_range(&self.blocks, size, range, out, |data, elements, out| {
            let base = near.as_ref().map(|near| (near, &base[elements.start * size..elements.end * size]));
            self.block(simd, data, base, out)
        })
    }

    fn block(&self, simd: Simd, data: &[u8], base: Option<(&Nearest<'_>, &[u8])>, out: &mut [u8]) -> Result<()> {
        let (numbers, values) = (self.table.numbers, self.table.values.len());
        let n = out.len() / numbers.size;
        let (stream, rest) = split(data)?;
        let mut cursor = Cursor::new(rest);
        with_scratch(if base.is_some() { 3 * n } else { n }, |scratch| {
            let (symbols, more) = scratch.split_at_mut(n);
            if let Some((near, base)) = base {
                let (places, ctx) = more.split_at_mut(n);
                near.places(base, places);
                ctx.iter_mut().zip(places.iter()).for_each(|(c, p)| *c = self.map[usize::from(*p)]);
                rans::decode(simd, &self.freqs, stream, Some(ctx), symbols)?;
                turn_all(symbols, places, values);
            } else {
                rans::decode(simd, &self.freqs, stream, None, symbols)?;
            }
            values::numbers(simd, &self.table, symbols, out);
            let mut exceptions = Vec::new();
            simd.positions(self.table.exception(), symbols, 0, &mut exceptions);
            for i in exceptions {
                numbers.store(out, i as usize, get_number(&mut cursor, numbers, self.zero)?);
            }
            cursor.done()
        })
    }
}

/// The stream of a block, and what follows it.
fn split(data: &[u8]) -> Result<(&[u8], &[u8])> {
    let mut cursor = Cursor::new(data);
    let len = cursor.u32()? as usize;
    Ok((cursor.take(len)?, cursor.rest()))
}
