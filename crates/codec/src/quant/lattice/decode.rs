//! Lattice decoder: bytes back to a segment of a reconstruction, group by group.

use crate::{
    Bases, CodecError, Dtype, Result, Scheme,
    entropy::{Axes, BitReader, Cursor, DecTable, Grid, LANES, Part, Stream, Tree, get_freqs, lanes, split_short},
    quant::lattice::{
        Activity, CHUNK, CLASS_BITS, Header, LIMIT, Lattice, Piece, Predictions, TREES, axes, header, mirrored, narrow,
        number,
    },
    schemes::symbol_bases,
    simd::{Simd, Work},
};
use std::ops::Range;

/// Symbols up to this one have no raw bits: their magnitude is half of them, rounded up.
const PLAIN: u8 = 2 * ((1 << (CLASS_BITS + 1)) - 1);

/// Room for every raw context: a power of two, so that no lookup has to be checked.
pub(crate) const CONTEXTS: usize = 1024;

/// The table of each raw context, and zeros.
pub(super) fn padded(map: &[u8]) -> [u8; CONTEXTS] {
    let mut padded = [0; CONTEXTS];
    padded.iter_mut().zip(map).for_each(|(to, &from)| *to = from);
    padded
}

/// What comes before the blocks of a segment, and where they are.
#[derive(Debug)]
pub struct Front<'a> {
    lattice: Lattice,
    lanes: u8,
    axes: Axes,
    /// The table of each raw context; the first one's for numbers that are none.
    pub map: [u8; CONTEXTS],
    /// The tables: each sums to 4096.
    pub freqs: Vec<[u16; 256]>,
    grid: Grid,
    blocks: Vec<&'a [u8]>,
}

/// A segment that can be decoded.
pub(crate) struct Reader<'a> {
    front: Front<'a>,
    table: DecTable,
    bases: [(u64, u32); 256],
}

impl<'a> Front<'a> {
    /// Reads `body` (what follows the scheme byte) of a segment of `n` elements.
    pub fn new(dtype: Dtype, scheme: Scheme, body: &'a [u8], n: usize) -> Result<Self> {
        let mut cursor = Cursor::new(body);
        let Header { lattice, lanes } = header::get(&mut cursor, dtype, n)?;
        let grid = Grid::get(&mut cursor, n)?;
        let axes = axes(scheme.needs_base());
        let (map, leaves) = Tree::get(&mut cursor, axes, TREES)?.map(axes);
        let freqs = (0..leaves).map(|_| get_freqs(&mut cursor)).collect::<Result<Vec<_>, _>>()?;
        Ok(Front { lattice, lanes, axes, map: padded(&map), freqs, grid, blocks: grid.get_blocks(&mut cursor)? })
    }

    /// What its elements need of their lattice.
    pub fn piece(&self) -> Result<Piece> {
        let (lattice, n) = (&self.lattice, self.grid.n);
        Piece::new(lattice, lattice.known.start, n * lattice.dtype.size())
    }

    /// Lanes of its streams.
    pub fn lanes(&self) -> Result<u32> {
        Ok(1 << lanes::checked(self.lanes)?)
    }

    /// log2 of the elements of a block.
    pub fn block_log(&self) -> u8 {
        self.grid.log
    }

    /// Its blocks: elements, stream, raw bits.
    pub fn coded(&self) -> Result<Vec<Part<'a>>> {
        self.grid.parts(&self.blocks, split_short)
    }
}

impl<'a> Reader<'a> {
    /// Reads `body` (what follows the scheme byte) of a segment of `n` elements.
    pub(crate) fn new(dtype: Dtype, scheme: Scheme, body: &'a [u8], n: usize) -> Result<Self> {
        let front = Front::new(dtype, scheme, body, n)?;
        Ok(Reader { table: DecTable::new(&front.freqs)?, bases: symbol_bases(CLASS_BITS), front })
    }

    /// Decodes the elements of `range` into `out`; `bases` are those that the scheme needs and no others, of the
    /// whole segment.
    pub(crate) fn decode(&self, simd: Simd, bases: Bases<'_>, range: Range<usize>, out: &mut [u8]) -> Result<()> {
        let size = self.front.lattice.dtype.size();
        self.front.grid.decode_range(&self.front.blocks, size, range, out, |data, elements, out| {
            let bytes = elements.start * size..elements.end * size;
            let bases = [bases.base, bases.grandparent].map(|r| r.and_then(|r| r.get(bytes.clone())));
            let start = self.front.lattice.known.start + elements.start;
            simd.compiled(OneBlock { segment: self, simd, start, data, bases, out })
        })
    }

    /// Decodes the mirrored differences of a group, of which `n` are left in the block.
    #[inline(always)]
    fn group(
        &self,
        simd: Simd,
        stream: &mut Stream<'_>,
        activity: &mut Activity,
        class: &[u8; LANES],
        low: &mut BitReader<'_>,
        (moved, n): (&mut [i32; LANES], usize),
    ) -> Result<()> {
        let (mut steps, mut ctx, mut symbols) = ([0u8; LANES], [0u8; LANES], [0u8; LANES]);
        activity.steps(&mut steps);
        let width = (self.front.axes[1] * self.front.axes[2]) as u16;
        let mut raw = [0u16; LANES];
        for ((raw, &step), &class) in raw.iter_mut().zip(&steps).zip(class) {
            *raw = u16::from(step) * width + u16::from(class);
        }
        simd.tables_of(&self.front.map, &raw, &mut ctx);
        stream.take(simd, &self.table, &ctx[..n], &mut symbols[..n])?;
        let (mut far, mut top) = ([0u8; LANES], 0);
        for ((m, f), &s) in moved.iter_mut().zip(&mut far).zip(&symbols) {
            *f = (s >> 1) + (s & 1);
            *m = mirrored((*f).into(), i32::from(s & 1) - 1);
            top = s.max(top);
        }
        if top > PLAIN {
            widen_moves(&symbols, moved, &mut far, &self.bases, low)?;
        }
        activity.learn(&far);
        Ok(())
    }
}

/// The differences of symbols that have raw bits.
#[inline(always)]
fn widen_moves(
    symbols: &[u8; LANES],
    moved: &mut [i32; LANES],
    far: &mut [u8; LANES],
    bases: &[(u64, u32); 256],
    low: &mut BitReader<'_>,
) -> Result<()> {
    let mut above = symbols.iter().enumerate().fold(0u32, |above, (i, &s)| above | u32::from(s > PLAIN) << i);
    while above != 0 {
        let i = above.trailing_zeros() as usize % LANES;
        above &= above - 1;
        let (least, width) = bases[usize::from(symbols[i])];
        // No encoder writes differences of 2^21; longer ones only have to be refused.
        if width > 20 {
            return Err(CodecError::Corrupt("difference out of range"));
        }
        let magnitude = (least + low.get(width)) as i32;
        far[i] = magnitude.min(255) as u8;
        moved[i] = mirrored(magnitude, i32::from(symbols[i] & 1) - 1);
    }
    Ok(())
}

/// A block to be decoded with what the machine has, from element `start` on.
struct OneBlock<'a> {
    segment: &'a Reader<'a>,
    simd: Simd,
    start: usize,
    data: &'a [u8],
    bases: [Option<&'a [u8]>; 2],
    out: &'a mut [u8],
}

impl Work for OneBlock<'_> {
    type Output = Result<()>;

    #[inline(always)]
    fn run(self) -> Result<()> {
        let OneBlock { segment, simd, start, data, bases, out } = self;
        let Front { lattice, lanes, axes, .. } = &segment.front;
        let size = lattice.dtype.size();
        let n = out.len() / size;
        let (stream, low) = split_short(data)?;
        let mut stream = Stream::new(*lanes, stream)?;
        let mut low = BitReader::new(low);
        let mut known = Predictions::new(simd);
        let mut activity = Activity::new(lattice.cols, n, axes[0]);
        let mut values = [0f32; CHUNK];
        for (c, out) in out.chunks_mut(CHUNK * size).enumerate() {
            let (from, count) = (c * CHUNK, out.len() / size);
            let bytes = from * size..(from + count) * size;
            let [parent, grandparent] = bases.map(|r| r.and_then(|r| r.get(bytes.clone())));
            known.look(lattice, start + from, count, parent, grandparent);
            let mut moved = [0i32; CHUNK];
            let groups = moved.as_chunks_mut().0.iter_mut().zip(known.class.as_chunks().0);
            for (g, (moved, class)) in groups.take(count.div_ceil(LANES)).enumerate() {
                let n = LANES.min(count - g * LANES);
                segment.group(simd, &mut stream, &mut activity, class, &mut low, (moved, n))?;
            }
            let mut good = true;
            for (i, y) in values[..count].iter_mut().enumerate() {
                let q = known.guess[i].wrapping_add(mirrored(moved[i], known.mirror[i]));
                good &= q.unsigned_abs() < LIMIT as u32;
                *y = number(q, known.cells.d[i], known.cells.o[i]);
            }
            if !good {
                return Err(CodecError::Corrupt("level out of range"));
            }
            narrow(lattice.dtype, &values[..count], out);
        }
        stream.done()?;
        if low.ended_well() { Ok(()) } else { Err(CodecError::Corrupt("raw bits do not end where they should")) }
    }
}
