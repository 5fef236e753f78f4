//! Lattice decoder: bytes back to a segment of a reconstruction, group by group.

use crate::{
    CodecError, Dtype, Relatives, Result, Scheme,
    entropy::{
        bits::{BitReader, Cursor},
        blocks::Grid,
        lanes,
        lanes::Stream,
        rans::{DecTable, LANES},
        tables::get_freqs,
        tree::{Axes, Tree},
    },
    quant::lattice::{
        CHUNK, LIMIT, TREES,
        activity::Activity,
        cells::{Lattice, number},
        half::narrow,
        header,
        header::Header,
        known::{Known, mirrored},
        piece::Piece,
        symbols::{CLASS_BITS, axes},
    },
    schemes::diff::symbol_bases,
    simd::{Simd, Work},
};
use std::ops::Range;

/// Symbols up to this one have no raw bits: their magnitude is half of them, rounded up.
const PLAIN: u8 = 2 * ((1 << (CLASS_BITS + 1)) - 1);

/// Room for every raw context: a power of two, so that no lookup has to be checked.
pub(crate) const CONTEXTS: usize = 1024;

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

/// A block's elements, its stream and its raw bits.
#[derive(Clone, Debug)]
pub struct Coded<'a> {
    /// Counted in the segment.
    pub elements: Range<usize>,
    /// Words and states.
    pub stream: &'a [u8],
    /// Bit fields.
    pub low: &'a [u8],
}

/// What all blocks share while they are decoded.
struct Shared<'a> {
    segment: &'a Reader<'a>,
    simd: Simd,
}

impl<'a> Front<'a> {
    /// Reads `body` (what follows the scheme byte) of a segment of `n` elements.
    ///
    /// # Errors
    /// Bytes that no encoder wrote.
    pub fn new(dtype: Dtype, scheme: Scheme, body: &'a [u8], n: usize) -> Result<Self> {
        let mut cursor = Cursor::new(body);
        let Header { lattice, lanes } = header::get(&mut cursor, dtype, n)?;
        let grid = Grid::get(&mut cursor, n)?;
        let axes = axes(scheme.needs_base());
        let (map, leaves) = Tree::get(&mut cursor, axes, TREES)?.map(axes);
        let freqs = (0..leaves).map(|_| get_freqs(&mut cursor)).collect::<Result<Vec<_>, _>>()?;
        let mut padded = [0u8; CONTEXTS];
        padded.iter_mut().zip(&map).for_each(|(to, &from)| *to = from);
        Ok(Front { lattice, lanes, axes, map: padded, freqs, grid, blocks: grid.get_blocks(&mut cursor)? })
    }

    /// What its elements need of their lattice.
    ///
    /// # Errors
    /// None that a header which was read could give.
    pub fn piece(&self) -> Result<Piece> {
        let (lattice, n) = (&self.lattice, self.grid.n);
        Piece::new(lattice, lattice.known.start, n * lattice.dtype.size())
    }

    /// Lanes of its streams.
    ///
    /// # Errors
    /// None that a decoder knows.
    pub fn lanes(&self) -> Result<u32> {
        Ok(1 << lanes::checked(self.lanes)?)
    }

    /// log2 of the elements of a block.
    pub fn block_log(&self) -> u8 {
        self.grid.log
    }

    /// Its blocks.
    ///
    /// # Errors
    /// One is too short.
    pub fn coded(&self) -> Result<Vec<Coded<'a>>> {
        let one = |(b, data): (usize, &&'a [u8])| {
            let (stream, low) = split(data)?;
            let elements = self.grid.elements(b);
            Ok(Coded { elements, stream, low })
        };
        self.blocks.iter().enumerate().map(one).collect()
    }
}

impl<'a> Reader<'a> {
    /// Reads `body` (what follows the scheme byte) of a segment of `n` elements.
    pub(crate) fn new(dtype: Dtype, scheme: Scheme, body: &'a [u8], n: usize) -> Result<Self> {
        let front = Front::new(dtype, scheme, body, n)?;
        Ok(Reader { table: DecTable::new(&front.freqs)?, bases: symbol_bases(CLASS_BITS), front })
    }

    /// Decodes the elements of `range` into `out`; `relatives` are those that the scheme needs and no others, of the
    /// whole segment.
    pub(crate) fn decode(
        &self,
        simd: Simd,
        relatives: Relatives<'_>,
        range: Range<usize>,
        out: &mut [u8],
    ) -> Result<()> {
        let size = self.front.lattice.dtype.size();
        let shared = Shared { segment: self, simd };
        self.front.grid.decode_range(&self.front.blocks, size, range, out, |data, elements, out| {
            let bytes = elements.start * size..elements.end * size;
            let cut = [relatives.base, relatives.grand].map(|r| r.and_then(|r| r.get(bytes.clone())));
            simd.compiled(OneBlock {
                shared: &shared,
                start: self.front.lattice.known.start + elements.start,
                data,
                relatives: cut,
                out,
            })
        })
    }
}

/// The stream and the raw bits of a block.
fn split(data: &[u8]) -> Result<(&[u8], &[u8])> {
    let mut cursor = Cursor::new(data);
    let len = cursor.varint()?;
    Ok((cursor.take(len)?, cursor.rest()))
}

/// What [`Shared::block`] is asked for.
struct OneBlock<'a> {
    shared: &'a Shared<'a>,
    start: usize,
    data: &'a [u8],
    relatives: [Option<&'a [u8]>; 2],
    out: &'a mut [u8],
}

impl Work for OneBlock<'_> {
    type Output = Result<()>;

    #[inline(always)]
    fn run(self) -> Result<()> {
        self.shared.block(self.start, self.data, self.relatives, self.out)
    }
}

impl Shared<'_> {
    /// Decodes the block that starts at element `start`.
    #[inline(always)]
    fn block(&self, start: usize, data: &[u8], relatives: [Option<&[u8]>; 2], out: &mut [u8]) -> Result<()> {
        let size = self.segment.front.lattice.dtype.size();
        let n = out.len() / size;
        let (stream, low) = split(data)?;
        let mut stream = Stream::new(self.segment.front.lanes, stream)?;
        let mut low = BitReader::new(low);
        let mut known = Known::new(self.simd);
        let mut activity = Activity::new(self.segment.front.lattice.cols, n, self.segment.front.axes[0]);
        let mut values = [0f32; CHUNK];
        for (c, out) in out.chunks_mut(CHUNK * size).enumerate() {
            let (from, count) = (c * CHUNK, out.len() / size);
            let bytes = from * size..(from + count) * size;
            let [parent, grand] = relatives.map(|r| r.and_then(|r| r.get(bytes.clone())));
            known.look(&self.segment.front.lattice, start + from, count, parent, grand);
            let mut moved = [0i32; CHUNK];
            for (g, moved) in moved[..count].chunks_mut(LANES).enumerate() {
                let class = &known.class[g * LANES..(g + 1) * LANES];
                self.group(&mut stream, &mut activity, class, &mut low, moved)?;
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
            narrow(self.segment.front.lattice.dtype, &values[..count], out);
        }
        stream.done()?;
        if low.ended_well() { Ok(()) } else { Err(CodecError::Corrupt("raw bits do not end where they should")) }
    }

    /// Decodes the mirrored differences of a group: all 32, or what is left of the block.
    #[inline(always)]
    fn group(
        &self,
        stream: &mut Stream<'_>,
        activity: &mut Activity,
        class: &[u8],
        low: &mut BitReader<'_>,
        moved: &mut [i32],
    ) -> Result<()> {
        let n = moved.len();
        let (mut steps, mut ctx, mut symbols) = ([0u8; LANES], [0u8; LANES], [0u8; LANES]);
        activity.steps(&mut steps);
        let width = (self.segment.front.axes[1] * self.segment.front.axes[2]) as u16;
        for ((ctx, &step), &class) in ctx.iter_mut().zip(&steps).zip(class) {
            let raw = u16::from(step) * width + u16::from(class);
            *ctx = self.segment.front.map[usize::from(raw) % CONTEXTS];
        }
        stream.take(self.simd, &self.segment.table, &ctx[..n], &mut symbols[..n])?;
        let mut far = [0u8; LANES];
        if symbols.iter().fold(0, |top, &s| s.max(top)) <= PLAIN {
            for (f, &s) in far.iter_mut().zip(&symbols) {
                *f = (s + 1) >> 1;
            }
            for (m, (&f, &s)) in moved.iter_mut().zip(far.iter().zip(&symbols)) {
                *m = mirrored(f.into(), i32::from(s & 1) - 1);
            }
        } else {
            for (i, m) in moved.iter_mut().enumerate() {
                let (least, width) = self.segment.bases[usize::from(symbols[i])];
                // No encoder writes differences of 2^21; longer ones only have to be refused.
                if width > 20 {
                    return Err(CodecError::Corrupt("difference out of range"));
                }
                let magnitude = (least + low.get(width)) as i32;
                far[i] = magnitude.min(255) as u8;
                *m = mirrored(magnitude, i32::from(symbols[i] & 1) - 1);
            }
        }
        activity.learn(&far);
        Ok(())
    }
}
