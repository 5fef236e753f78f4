//! Palette decoder.

use crate::{
    CodecError, Result,
    entropy::{Cursor, DecTable, Grid, Part, contexts, rans, split},
    schemes::{
        Numbers, delta,
        palette::{Nearest, Table, get_lists, get_number, get_table, values, values::turn_all},
    },
    scratch::with_scratch,
    simd::Simd,
};
use std::ops::Range;

/// A segment whose header is read.
#[derive(Debug)]
pub struct Reader<'a> {
    /// The values.
    pub table: Table,
    grid: Grid,
    /// Low bytes of exceptions that are zero and not there.
    pub zero: u8,
    /// The contexts' frequencies.
    pub lists: Vec<[u16; 256]>,
    freqs: DecTable,
    /// The context of each place.
    pub map: [u8; 256],
    with_base: bool,
    blocks: Vec<&'a [u8]>,
}

impl<'a> Reader<'a> {
    /// Reads the header of `body` (what follows the scheme byte) of a segment of `n` numbers.
    pub fn new(numbers: Numbers, with_base: bool, body: &'a [u8], n: usize) -> Result<Self> {
        if numbers.size == 1 {
            return Err(CodecError::Corrupt("a palette of bytes"));
        }
        let mut cursor = Cursor::new(body);
        let grid = Grid::get(&mut cursor, n)?;
        let (table, zero) = get_table(&mut cursor, numbers)?;
        let firsts = if with_base { contexts::get_firsts(&mut cursor)? } else { vec![0] };
        let freqs = get_lists(&mut cursor, firsts.len(), &table)?;
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

    /// Numbers of each block, its stream, and its exceptions' bytes.
    pub fn parts(&self) -> Result<Vec<Part<'a>>> {
        self.grid.parts(&self.blocks, split)
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
