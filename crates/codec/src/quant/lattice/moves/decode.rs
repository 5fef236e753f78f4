//! Decoder of lattice moves.

use super::{CLASSES_MAX, GROUP, MASKS, QUAD, expand::place_of};
use crate::{
    CodecError, Dtype, Result,
    entropy::{BitReader, Cursor, DecTable, Grid, Stream, get_freqs, split_short},
    quant::lattice::{
        CHUNK, CLASS_BITS, Header, LIMIT, Lattice,
        cells::{Cells, number, place, round},
        half::{narrow, widen},
        header,
    },
    schemes::symbol_bases,
    simd::{Simd, Work},
};
use std::ops::Range;

/// Symbols up to this one have no raw bits.
const PLAIN: u8 = 2 * ((2 << CLASS_BITS) - 1);
/// Most raw bits of a difference: no encoder writes one of 2^21.
const WIDTH_MAX: u32 = 20;

/// A segment whose header is read.
pub(crate) struct Reader<'a> {
    pub(super) lattice: Lattice,
    lanes: u8,
    pub(super) grid: Grid,
    /// Classes beside class 0.
    count: u8,
    /// Of classes, then the masks of each, then the symbols of each.
    table: DecTable,
    pub(super) blocks: Vec<&'a [u8]>,
}

/// A block's differences, not yet added to anything.
pub(super) struct Moves {
    /// The class of each group.
    classes: Vec<u8>,
    /// Masks of the groups that have some.
    masks: Vec<u8>,
    /// Differences that fit a byte, 0 for others, and zeros after them.
    steps: Vec<i8>,
    /// The others, by their places among the steps.
    wide: Vec<(u32, i32)>,
    /// No difference is larger.
    pub(super) most: u32,
    /// How many groups, masks, steps and wide ones are done.
    done: [usize; 4],
}

impl<'a> Reader<'a> {
    /// Reads `body` (what follows the scheme byte) of a segment of `n` elements.
    pub(crate) fn new(dtype: Dtype, body: &'a [u8], n: usize) -> Result<Self> {
        let mut cursor = Cursor::new(body);
        let Header { lattice, lanes } = header::get(&mut cursor, dtype, n)?;
        let grid = Grid::get(&mut cursor, n)?;
        let count = cursor.u8()?;
        if usize::from(count) > CLASSES_MAX {
            return Err(CodecError::Corrupt("too many classes"));
        }
        let tables = if count > 0 { 2 * usize::from(count) + 1 } else { 0 };
        let freqs = (0..tables).map(|_| get_freqs(&mut cursor)).collect::<Result<Vec<_>, _>>()?;
        let bases = symbol_bases(CLASS_BITS);
        let allowed = |table: usize, symbol: usize| match table {
            0 => symbol <= usize::from(count),
            t if t <= usize::from(count) => symbol < 1 << QUAD,
            _ => symbol > 0 && bases[symbol].1 <= WIDTH_MAX,
        };
        let listed = |(t, f): (usize, &[u16; 256])| f.iter().enumerate().all(|(s, &f)| f == 0 || allowed(t, s));
        if !freqs.iter().enumerate().all(listed) {
            return Err(CodecError::Corrupt("a table has symbols that mean nothing"));
        }
        let blocks = grid.get_blocks(&mut cursor)?;
        Ok(Reader { lattice, lanes, grid, count, table: DecTable::new(&freqs)?, blocks })
    }

    /// Decodes the elements of `range` into `out`; `base` is that of the whole segment.
    pub(crate) fn decode(&self, simd: Simd, base: &[u8], range: Range<usize>, out: &mut [u8]) -> Result<()> {
        let size = self.lattice.dtype.size();
        self.grid.decode_range(&self.blocks, size, range, out, |data, elements, out| {
            let start = self.lattice.known.start + elements.start;
            let base = base.get(elements.start * size..elements.end * size);
            // Faster than to read it piece by piece below: a block then is in the cache.
            out.copy_from_slice(base.ok_or(CodecError::MissingBase)?);
            let mut moves = self.moves(simd, data, elements.len())?;
            let moves = std::slice::from_mut(&mut moves);
            // One segment's are never in doubt.
            simd.compiled(Add { lattice: &self.lattice, simd, start, moves, out }).map(|_| ())
        })
    }

    /// Decodes a block of `n` elements as far as it goes without the base.
    pub(super) fn moves(&self, simd: Simd, data: &[u8], n: usize) -> Result<Moves> {
        simd.compiled(OneBlock { segment: self, simd, data, n })
    }
}

/// A block of `n` elements to be decoded as far as it goes without the base.
struct OneBlock<'a> {
    segment: &'a Reader<'a>,
    simd: Simd,
    data: &'a [u8],
    n: usize,
}

impl Work for OneBlock<'_> {
    type Output = Result<Moves>;

    #[inline(always)]
    fn run(self) -> Result<Moves> {
        let OneBlock { segment, simd, data, n } = self;
        let Reader { table, count, .. } = segment;
        let groups = n.div_ceil(GROUP);
        let mut moves = Moves {
            classes: vec![0; groups],
            masks: Vec::new(),
            steps: Vec::new(),
            wide: Vec::new(),
            most: 0,
            done: [0; 4],
        };
        if *count == 0 {
            return if data.is_empty() { Ok(moves) } else { Err(CodecError::Corrupt("bytes in a block of no moves")) };
        }
        let (stream, low) = split_short(data)?;
        let mut stream = Stream::new(segment.lanes, stream)?;
        stream.take(simd, table, &vec![0; groups], &mut moves.classes)?;
        let mut by_mask = Vec::with_capacity(MASKS * groups);
        for &class in moves.classes.iter().filter(|class| **class > 0) {
            by_mask.extend([class; MASKS]);
        }
        // The last group may be shorter.
        let last = n - groups.saturating_sub(1) * GROUP;
        let missing = if moves.classes.last() > Some(&0) { MASKS - last.div_ceil(QUAD) } else { 0 };
        moves.masks = vec![0; by_mask.len()];
        let there = by_mask.len() - missing;
        stream.take(simd, table, &by_mask[..there], &mut moves.masks[..there])?;
        let masks = moves.masks.as_chunks::<MASKS>().0;
        if moves.classes.last() > Some(&0) && masks.last().is_some_and(|masks| is_set(masks, last)) {
            return Err(CodecError::Corrupt("a move past the end"));
        }
        let mut by_symbol = Vec::with_capacity(2 * moves.masks.len());
        for (class, masks) in by_mask.iter().step_by(MASKS).zip(masks) {
            by_symbol.resize(by_symbol.len() + count_moves(masks), count + class);
        }
        let total = by_symbol.len();
        moves.steps = vec![0; total + GROUP + 8];
        let mut symbols = vec![0; total];
        stream.take(simd, table, &by_symbol, &mut symbols)?;
        stream.done()?;
        let (mut low, mut wide) = (BitReader::new(low), Vec::new());
        let (mut most, mut top_wide) = (0, 0);
        for (c, (symbols, steps)) in symbols.chunks(CHUNK).zip(moves.steps.chunks_mut(CHUNK)).enumerate() {
            let mut top = 0;
            for (step, &s) in steps.iter_mut().zip(symbols) {
                let (magnitude, negative) = ((s >> 1) + (s & 1), (s & 1).wrapping_sub(1));
                *step = (magnitude ^ negative).wrapping_sub(negative) as i8;
                top = s.max(top);
            }
            if top > PLAIN {
                top_wide = widen_steps(symbols, steps, c * CHUNK, &mut low, &mut wide).max(top_wide);
            }
            most = top.max(most);
        }
        moves.wide = wide;
        moves.most = top_wide.max(u32::from(most.min(PLAIN)).div_ceil(2));
        if low.ended_well() { Ok(moves) } else { Err(CodecError::Corrupt("raw bits do not end where they should")) }
    }
}

/// How many bits are set.
#[inline(always)]
fn count_moves(masks: &[u8; MASKS]) -> usize {
    // Of masks below 16 the bits of two words do not meet.
    let [a, b, c, d]: [u64; 4] =
        std::array::from_fn(|i| masks.as_chunks::<8>().0.get(i).map_or(0, |part| u64::from_le_bytes(*part)));
    ((a | b << 4).count_ones() + (c | d << 4).count_ones()) as usize
}

/// Whether a bit is set at `from` or after it.
fn is_set(masks: &[u8; MASKS], from: usize) -> bool {
    (from..GROUP).any(|i| masks[i / QUAD] >> (i % QUAD) & 1 == 1)
}

/// The steps of symbols that have raw bits; the first one is step number `from`. Returns the largest magnitude.
#[inline(always)]
fn widen_steps(
    symbols: &[u8],
    steps: &mut [i8],
    from: usize,
    low: &mut BitReader<'_>,
    wide: &mut Vec<(u32, i32)>,
) -> u32 {
    const EACH: u64 = u64::MAX / 255;
    let (words, rest) = symbols.as_chunks::<8>();
    let mut last = [0; 8];
    last[..rest.len()].copy_from_slice(rest);
    let mut most = 0;
    for (w, word) in words.iter().chain(std::iter::once(&last)).enumerate() {
        // The top bit of every byte above `PLAIN`.
        let bits = u64::from_le_bytes(*word);
        let sum = (bits & (EACH * 0x7f)) + EACH * (0x7f - u64::from(PLAIN));
        let mut above = (sum | bits) & (EACH * 0x80);
        while above != 0 {
            let at = above.trailing_zeros() as usize / 8;
            above &= above - 1;
            let symbol = word[at];
            let class = u32::from(symbol).div_ceil(2);
            // No more than 20: the tables were checked.
            let width = (class >> CLASS_BITS) - 1;
            let least = ((1 << CLASS_BITS) | (class & ((1 << CLASS_BITS) - 1))) << width;
            let magnitude = (least | low.get(width) as u32) as i32;
            let step = if symbol & 1 == 1 { magnitude } else { -magnitude };
            most = magnitude.max(most);
            let i = 8 * w + at;
            steps[i] = step as i8;
            if i32::from(step as i8) != step {
                steps[i] = 0;
                wide.push(((from + i) as u32, step));
            }
        }
    }
    most as u32
}

impl Moves {
    /// Adds the differences of the next groups to their levels.
    #[inline(always)]
    fn add(&mut self, simd: Simd, levels: &mut [i32; CHUNK]) {
        let [groups, masks, steps, wide] = &mut self.done;
        for levels in levels.as_chunks_mut::<GROUP>().0 {
            let class = self.classes.get(*groups).copied().unwrap_or(0);
            *groups += 1;
            if class == 0 {
                continue;
            }
            let Some(own) = self.masks.get(*masks..).and_then(|m| m.first_chunk::<MASKS>()) else { continue };
            *masks += MASKS;
            let taken = simd.expand(own, self.steps.get(*steps..).unwrap_or_default(), levels);
            while let Some(&(at, step)) = self.wide.get(*wide).filter(|w| (w.0 as usize) < *steps + taken) {
                if let Some(i) = place_of(own, at as usize - *steps) {
                    levels[i] = levels[i].wrapping_add(step);
                }
                *wide += 1;
            }
            *steps += taken;
        }
    }
}

/// Adds the moves of one or several segments, first ones first, to the elements of a block in `out`, which are the
/// base's. False: some level in between may be next to the limit, so that it would not come back from its float.
pub(super) struct Add<'a> {
    pub(super) lattice: &'a Lattice,
    pub(super) simd: Simd,
    pub(super) start: usize,
    pub(super) moves: &'a mut [Moves],
    pub(super) out: &'a mut [u8],
}

impl Work for Add<'_> {
    type Output = Result<bool>;

    #[inline(always)]
    fn run(self) -> Result<bool> {
        let Add { lattice, simd, start, moves, out } = self;
        let size = lattice.dtype.size();
        let sum = moves.iter().fold(0u32, |sum, m| sum.saturating_add(m.most));
        let room = if moves.len() > 1 { (LIMIT as u32 - 2).saturating_sub(sum) } else { u32::MAX };
        let mut cells = Cells::new(simd);
        let (mut values, mut levels) = ([0f32; CHUNK], [0i32; CHUNK]);
        for (c, out) in out.chunks_mut(CHUNK * size).enumerate() {
            let n = out.len() / size;
            lattice.cells(start + c * CHUNK, n, &mut cells);
            widen(lattice.dtype, out, &mut values);
            for (i, (q, w)) in levels.iter_mut().zip(&values).enumerate() {
                let x = place(*w, cells.d[i], cells.o[i]);
                // NaN is not below the limit either.
                *q = round(if x.abs() < LIMIT - 1.0 { x } else { 0.0 }).0;
            }
            if levels.iter().fold(0, |top, q| q.unsigned_abs().max(top)) >= room {
                return Ok(false);
            }
            moves.iter_mut().for_each(|m| m.add(simd, &mut levels));
            let mut good = true;
            for (i, (y, &q)) in values.iter_mut().zip(&levels).enumerate() {
                good &= q.unsigned_abs() < LIMIT as u32;
                *y = number(q, cells.d[i], cells.o[i]);
            }
            if !good {
                return Err(CodecError::Corrupt("level out of range"));
            }
            narrow(lattice.dtype, &values[..n], out);
        }
        Ok(true)
    }
}
