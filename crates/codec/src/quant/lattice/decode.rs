//! Bytes back to a segment of a reconstruction, group by group. Neighbours: `encode` wrote them. It must not trust them: any bytes
//! end in an error or in some values of the lattice.

use super::activity::Activity;
use super::cells::{Lattice, number};
use super::encode::{GRAND, PARENT};
use super::half::narrow;
use super::known::{Known, mirrored};
use super::stream::Stream;
use super::symbols::CLASS_BITS;
use super::tree::{Axes, Tree, axes};
use super::{CHUNK, LIMIT, SCHEME};
use crate::bits::{BitReader, Cursor};
use crate::blocks::Grid;
use crate::diff::symbol_bases;
use crate::rans::{DecTable, LANES};
use crate::tables::get_freqs;
use crate::{CodecError, SEGMENT_BYTES, simd::Simd};
use std::ops::Range;

/// Symbols up to this one have no raw bits: their magnitude is half of them, rounded up.
const PLAIN: u8 = 2 * ((1 << (CLASS_BITS + 1)) - 1);

/// Room for every raw context: a power of two, so that no lookup has to be checked.
const CONTEXTS: usize = 1024;

/// What all blocks of a segment share.
struct Shared<'a> {
    lattice: &'a Lattice,
    simd: Simd,
    lanes: u8,
    axes: Axes,
    map: [u8; CONTEXTS],
    table: DecTable,
    bases: [(u64, u32); 256],
}

impl Lattice {
    /// Decodes a whole segment that starts at element `start` into `out`, whose length is the segment's. `parent` and `grand` as given
    /// to [`encode`](Self::encode); those that the segment does not use are not looked at.
    ///
    /// # Errors
    /// Corrupt or truncated bytes, a missing parent, lengths that disagree. Never panics; on an error `out` is unspecified.
    pub fn decode(
        &self,
        start: usize,
        bytes: &[u8],
        parent: Option<&[u8]>,
        grand: Option<&[u8]>,
        out: &mut [u8],
    ) -> Result<(), CodecError> {
        let range = 0..out.len() / self.dtype.size();
        self.decode_range(start, bytes, out.len(), parent, grand, range, out)
    }

    /// Decodes only the elements of `range` (counted from the start of the segment, which is `len` bytes long) into `out`.
    ///
    /// # Errors
    /// As [`decode`](Self::decode).
    #[allow(clippy::too_many_arguments)] // a segment's place, its relatives and what is wanted of it
    pub fn decode_range(
        &self,
        start: usize,
        bytes: &[u8],
        len: usize,
        parent: Option<&[u8]>,
        grand: Option<&[u8]>,
        range: Range<usize>,
        out: &mut [u8],
    ) -> Result<(), CodecError> {
        self.decode_on(Simd::detect(), (start, len), bytes, [parent, grand], range, out)
    }

    pub(super) fn decode_on(
        &self,
        simd: Simd,
        (start, len): (usize, usize),
        bytes: &[u8],
        relatives: [Option<&[u8]>; 2],
        range: Range<usize>,
        out: &mut [u8],
    ) -> Result<(), CodecError> {
        let size = self.dtype.size();
        let n = len / size;
        self.check(start, n, len)?;
        if len > SEGMENT_BYTES || range.start > range.end || range.end > n || out.len() != range.len() * size {
            return Err(CodecError::BadInput(
                "the range is not in the segment or not as long as its place",
            ));
        }
        let mut cursor = Cursor::new(bytes);
        if cursor.u8()? != SCHEME {
            return Err(CodecError::Corrupt("not a lattice segment"));
        }
        let head = cursor.u8()?;
        let (flags, lanes) = (head & 3, head >> 2);
        if flags == GRAND {
            return Err(CodecError::Corrupt("a grandparent without a parent"));
        }
        let mut used = [None, None];
        for ((used, given), flag) in used.iter_mut().zip(relatives).zip([PARENT, GRAND]) {
            if flags & flag == 0 {
                continue;
            }
            let given = given.ok_or(CodecError::MissingBase)?;
            if given.len() != len {
                return Err(CodecError::BadInput("a parent of another length"));
            }
            *used = Some(given);
        }
        if n == 0 {
            return if lanes == 0 {
                cursor.done()
            } else {
                Err(CodecError::Corrupt("bad count of lanes"))
            };
        }
        let grid = Grid::get(&mut cursor, n)?;
        let axes = axes(used[0].is_some());
        let (map, leaves) = Tree::get(&mut cursor, axes)?.map(axes);
        let freqs = (0..leaves)
            .map(|_| get_freqs(&mut cursor))
            .collect::<Result<Vec<_>, _>>()?;
        let mut padded = [0u8; CONTEXTS];
        padded.iter_mut().zip(&map).for_each(|(to, &from)| *to = from);
        let shared = Shared {
            lattice: self,
            simd,
            lanes,
            axes,
            map: padded,
            table: DecTable::new(&freqs)?,
            bases: symbol_bases(CLASS_BITS),
        };
        let blocks = grid.get_blocks(&mut cursor)?;
        grid.decode_range(&blocks, size, range, out, |data, elements, out| {
            let bytes = elements.start * size..elements.end * size;
            let cut = used.map(|r| r.and_then(|r| r.get(bytes.clone())));
            shared.block(start + elements.start, data, cut, out)
        })
    }
}

impl Shared<'_> {
    /// Decodes the block that starts at element `start`.
    fn block(
        &self,
        start: usize,
        data: &[u8],
        relatives: [Option<&[u8]>; 2],
        out: &mut [u8],
    ) -> Result<(), CodecError> {
        let size = self.lattice.dtype.size();
        let n = out.len() / size;
        let mut cursor = Cursor::new(data);
        let len = cursor.varint()?;
        let mut stream = Stream::new(self.lanes, cursor.take(len)?)?;
        let mut low = BitReader::new(cursor.rest());
        let mut known = Known::new();
        let mut activity = Activity::new(self.lattice.cols, n, self.axes[0]);
        let mut values = [0f32; CHUNK];
        for (c, out) in out.chunks_mut(CHUNK * size).enumerate() {
            let (from, count) = (c * CHUNK, out.len() / size);
            let bytes = from * size..(from + count) * size;
            let [parent, grand] = relatives.map(|r| r.and_then(|r| r.get(bytes.clone())));
            known.look(self.lattice, start + from, count, parent, grand);
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
            narrow(self.lattice.dtype, &values[..count], out);
        }
        stream.done()?;
        if low.ended_well() {
            Ok(())
        } else {
            Err(CodecError::Corrupt("raw bits do not end where they should"))
        }
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
    ) -> Result<(), CodecError> {
        let n = moved.len();
        let (mut steps, mut ctx, mut symbols) = ([0u8; LANES], [0u8; LANES], [0u8; LANES]);
        activity.steps(&mut steps);
        let width = (self.axes[1] * self.axes[2]) as u16;
        for ((ctx, &step), &class) in ctx.iter_mut().zip(&steps).zip(class) {
            let raw = u16::from(step) * width + u16::from(class);
            *ctx = self.map[usize::from(raw) % CONTEXTS];
        }
        stream.group(self.simd, &self.table, &ctx[..n], &mut symbols[..n])?;
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
                let (least, width) = self.bases[usize::from(symbols[i])];
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
