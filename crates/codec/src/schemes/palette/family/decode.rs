//! Decoder of palettes with two bases.

use crate::{
    Bases, CodecError, Result,
    entropy::{BitReader, Cursor, DecTable, Grid, Part, Stream, Tree, get_freqs, split_short},
    schemes::{
        Numbers,
        palette::{
            Nearest, Table,
            family::{CLASS_BITS, TREES, axes, look},
            get_lists, get_table, turn,
        },
        signed, symbol_bases,
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
    /// log2 of the lanes, whatever was read.
    pub lanes: u8,
    /// Low bytes of strangers that are zero.
    pub zero: u8,
    /// The leaf of each raw context.
    pub map: Vec<u8>,
    /// The leaves' frequencies, then the strangers', if there are any.
    pub lists: Vec<[u16; 256]>,
    freqs: DecTable,
    /// How many leaves there are: the context of strangers.
    pub leaves: u8,
    bases: [(u64, u32); 256],
    blocks: Vec<&'a [u8]>,
}

impl<'a> Reader<'a> {
    /// Reads the header of `body` (what follows the scheme byte) of a segment of `n` numbers.
    pub fn new(numbers: Numbers, body: &'a [u8], n: usize) -> Result<Self> {
        if numbers.size == 1 {
            return Err(CodecError::Corrupt("a palette of bytes"));
        }
        let mut cursor = Cursor::new(body);
        let grid = Grid::get(&mut cursor, n)?;
        let lanes = cursor.u8()?;
        let (table, zero) = get_table(&mut cursor, numbers)?;
        let axes = axes(&table);
        let (map, leaves) = Tree::get(&mut cursor, axes, TREES)?.map(axes);
        let mut freqs = get_lists(&mut cursor, leaves, &table)?;
        if freqs.iter().any(|f| f[usize::from(table.exception())] > 0) {
            freqs.push(get_freqs(&mut cursor)?);
        }
        Ok(Reader {
            table,
            grid,
            lanes,
            zero,
            map,
            freqs: DecTable::new(&freqs)?,
            lists: freqs,
            leaves: leaves as u8,
            bases: symbol_bases(CLASS_BITS),
            blocks: grid.get_blocks(&mut cursor)?,
        })
    }

    /// Numbers of each block, its stream, and its raw bits.
    pub fn parts(&self) -> Result<Vec<Part<'a>>> {
        self.grid.parts(&self.blocks, split_short)
    }

    /// Decodes the numbers of `range` into `out`; `bases` are of the whole segment.
    pub(crate) fn decode(&self, simd: Simd, bases: Bases<'_>, range: Range<usize>, out: &mut [u8]) -> Result<()> {
        let size = self.table.numbers.size;
        let near = Nearest::new(&self.table);
        let [base, grandparent] = [bases.base, bases.grandparent].map(Option::unwrap_or_default);
        self.grid.decode_range(&self.blocks, size, range, out, |data, elements, out| {
            let bytes = elements.start * size..elements.end * size;
            self.block(simd, data, &near, [&base[bytes.clone()], &grandparent[bytes]], out)
        })
    }

    fn block(
        &self,
        simd: Simd,
        data: &[u8],
        near: &Nearest<'_>,
        [base, grandparent]: [&[u8]; 2],
        out: &mut [u8],
    ) -> Result<()> {
        let (numbers, values) = (self.table.numbers, &self.table.values);
        let (axes, n) = (axes(&self.table), out.len() / numbers.size);
        let (stream, low) = split_short(data)?;
        let mut stream = Stream::new(self.lanes, stream)?;
        with_scratch(3 * n, |scratch| {
            let (symbols, rest) = scratch.split_at_mut(n);
            let (places, ctx) = rest.split_at_mut(n);
            for (i, (place, ctx)) in places.iter_mut().zip(ctx.iter_mut()).enumerate() {
                let (p, raw) = look(near, axes, numbers.load(base, i), numbers.load(grandparent, i));
                *place = p;
                *ctx = self.map.get(usize::from(raw)).copied().unwrap_or_default();
            }
            stream.take(simd, &self.freqs, ctx, symbols)?;
            let count = symbols.iter().filter(|&&s| s == self.table.exception()).count();
            let apart = vec![self.leaves; count];
            let mut classes = vec![0; count];
            stream.take(simd, &self.freqs, &apart, &mut classes)?;
            stream.done()?;
            let mut low = BitReader::new(low);
            let (heads, shift) = (numbers.heads(self.zero), 8 * u32::from(self.zero));
            let mut classes = classes.into_iter();
            for (i, (&s, &p)) in symbols.iter().zip(places.iter()).enumerate() {
                let v = match values.get(usize::from(turn(s, p, values.len()))) {
                    Some(v) => *v,
                    None => {
                        let class = classes.next().unwrap_or_default();
                        let (least, width) = self.bases[usize::from(class)];
                        let d = signed(class, least.wrapping_add(low.get_wide(width)));
                        heads.apply(numbers.load(base, i) >> shift, d) << shift
                    }
                };
                numbers.store(out, i, v);
            }
            if low.ended_well() { Ok(()) } else { Err(CodecError::Corrupt("raw bits do not end where they should")) }
        })
    }
}
