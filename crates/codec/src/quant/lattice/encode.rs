//! A segment of a reconstruction to bytes. Neighbours: `known` and `activity` give contexts, `tree` merges them, `stream` codes.
//! It must not know how the reconstruction was made: what is not on the lattice is refused.

use super::activity::Activity;
use super::cells::{Lattice, number, place, round};
use super::half::widen;
use super::known::{Known, mirrored};
use super::tree::{Axes, Counts, axes};
use super::{CHUNK, LIMIT, SCHEME, stream};
use crate::bits::{BitWriter, put_varint};
use crate::blocks::Grid;
use crate::diff::{class_base, symbol_of};
use crate::log2::COST_BITS;
use crate::rans::{EncTable, LANES};
use crate::tables::{normalise, put};
use crate::{CodecError, SEGMENT_BYTES, simd::Simd};
use rayon::prelude::*;

/// Bits under the top one that join the class of a difference.
pub(super) const CLASS_BITS: u32 = 2;
/// Flags of a segment: which relatives its contexts need.
pub(super) const PARENT: u8 = 1;
pub(super) const GRAND: u8 = 2;

/// A block as symbols.
#[derive(Debug)]
struct Block {
    symbols: Vec<u8>,
    /// Raw context of each.
    raw: Vec<u16>,
    /// Bits under the classes.
    low: Vec<u8>,
}

impl Lattice {
    /// Encodes `rec`, the elements of the reconstruction from `start` on (little-endian, in the lattice's dtype, at most
    /// [`SEGMENT_BYTES`]). `parent` and `grand`, where given, are the same elements of the parent and of its parent: any values, of
    /// the same dtype and length. Without a parent a grandparent is not looked at.
    ///
    /// The bytes depend on nothing else, neither threads nor machine.
    ///
    /// # Errors
    /// Lengths that disagree; values that are not on the lattice.
    pub fn encode(
        &self,
        start: usize,
        rec: &[u8],
        parent: Option<&[u8]>,
        grand: Option<&[u8]>,
    ) -> Result<Vec<u8>, CodecError> {
        self.encode_on(Simd::detect(), start, rec, parent, grand)
    }

    pub(super) fn encode_on(
        &self,
        simd: Simd,
        start: usize,
        rec: &[u8],
        parent: Option<&[u8]>,
        grand: Option<&[u8]>,
    ) -> Result<Vec<u8>, CodecError> {
        let size = self.dtype.size();
        let n = rec.len() / size;
        self.check(start, n, rec.len())?;
        if rec.len() > SEGMENT_BYTES || [parent, grand].into_iter().flatten().any(|p| p.len() != rec.len()) {
            return Err(CodecError::BadInput("segments that are too long or of unlike length"));
        }
        let grand = parent.and(grand);
        let flags = if parent.is_some() { PARENT } else { 0 } | if grand.is_some() { GRAND } else { 0 };
        let grid = Grid::new(n);
        if n == 0 {
            return Ok(vec![SCHEME, flags]);
        }
        let axes = axes(parent.is_some());
        let blocks = self.blocks(grid, start, rec, [parent, grand], axes)?;
        let counts = count(&blocks, axes);
        let (tree, cost) = counts.grow();
        let (map, leaves) = tree.map(axes);
        let freqs = frequencies(&counts, &map, leaves);
        let lanes = stream::lanes_for((cost >> (COST_BITS + 3)) / blocks.len() as u64);
        let mut out = vec![SCHEME, flags | lanes << 2, grid.log];
        tree.put(&mut out);
        freqs.iter().for_each(|f| put(&mut out, f, true));
        let table = EncTable::new(&freqs);
        grid.put_blocks(&mut out, |b, out| blocks[b].put(simd, &table, lanes, &map, out));
        Ok(out)
    }

    /// For measurements: raw context and symbol of every element of a segment, and the bytes of raw bits under the symbols.
    ///
    /// # Errors
    /// As [`encode`](Self::encode).
    #[doc(hidden)]
    pub fn symbols(
        &self,
        start: usize,
        rec: &[u8],
        relatives: [Option<&[u8]>; 2],
    ) -> Result<(Vec<(u16, u8)>, usize), CodecError> {
        let n = rec.len() / self.dtype.size();
        self.check(start, n, rec.len())?;
        let blocks = self.blocks(Grid::new(n), start, rec, relatives, axes(relatives[0].is_some()))?;
        let pairs = |b: &Block| -> Vec<(u16, u8)> { b.raw.iter().copied().zip(b.symbols.iter().copied()).collect() };
        let low = blocks.iter().map(|b| b.low.len()).sum();
        Ok((blocks.iter().flat_map(pairs).collect(), low))
    }

    fn blocks(
        &self,
        grid: Grid,
        start: usize,
        rec: &[u8],
        relatives: [Option<&[u8]>; 2],
        axes: Axes,
    ) -> Result<Vec<Block>, CodecError> {
        let one = |b| {
            let elements = grid.elements(b);
            let bytes = elements.start * self.dtype.size()..elements.end * self.dtype.size();
            let relatives = relatives.map(|r| r.and_then(|r| r.get(bytes.clone())));
            self.block(start + elements.start, &rec[bytes], relatives, axes)
        };
        let blocks: Option<Vec<Block>> = (0..grid.blocks()).into_par_iter().map(one).collect();
        blocks.ok_or(CodecError::BadInput("the values are not on this lattice"))
    }

    /// The symbols of a block that starts at `start`; none if a value is not on the lattice.
    fn block(&self, start: usize, rec: &[u8], relatives: [Option<&[u8]>; 2], axes: Axes) -> Option<Block> {
        let size = self.dtype.size();
        let n = rec.len() / size;
        let padded = n.next_multiple_of(LANES);
        let (mut known, mut wide) = (Known::new(), [0f32; CHUNK]);
        let mut activity = Activity::new(self.cols, n, axes[0]);
        let (mut symbols, mut raw) = (vec![0u8; padded], vec![0u16; padded]);
        let mut low = BitWriter::default();
        let width = (axes[1] * axes[2]) as u16;
        let pieces = symbols.chunks_mut(CHUNK).zip(raw.chunks_mut(CHUNK));
        for (c, (symbols, raw)) in pieces.enumerate() {
            let (from, count) = (c * CHUNK, CHUNK.min(n - c * CHUNK));
            let bytes = from * size..(from + count) * size;
            let [parent, grand] = relatives.map(|r| r.and_then(|r| r.get(bytes.clone())));
            known.look(self, start + from, count, parent, grand);
            widen(self.dtype, &rec[bytes], &mut wide);
            let mut moved = [0i32; CHUNK];
            if !self.levels(&known, &wide[..count], &mut moved) {
                return None;
            }
            let groups = symbols.as_chunks_mut().0.iter_mut().zip(raw.as_chunks_mut::<LANES>().0);
            let facts = moved.as_chunks().0.iter().zip(known.class.as_chunks::<LANES>().0);
            for ((symbols, raw), (moved, class)) in groups.zip(facts) {
                group(moved, symbols, &mut low, &mut activity, |steps| {
                    for ((r, &step), &class) in raw.iter_mut().zip(steps).zip(class) {
                        *r = u16::from(step) * width + u16::from(class);
                    }
                });
            }
        }
        symbols.truncate(n);
        raw.truncate(n);
        Some(Block {
            symbols,
            raw,
            low: low.finish(),
        })
    }

    /// Mirrored differences of the levels of `values` to their predictions; false if a value is not on the lattice.
    fn levels(&self, known: &Known, values: &[f32], moved: &mut [i32; CHUNK]) -> bool {
        let n = values.len();
        let (d, o) = (&known.cells.d[..n], &known.cells.o[..n]);
        let (guess, mirror) = (&known.guess[..n], &known.mirror[..n]);
        let mut good = true;
        let mut back = [0f32; CHUNK];
        for i in 0..n {
            let x = place(values[i], d[i], o[i]);
            good &= x.abs() < LIMIT;
            let q = round(x).0;
            back[i] = number(q, d[i], o[i]);
            moved[i] = mirrored(q.wrapping_sub(guess[i]), mirror[i]);
        }
        if self.dtype != crate::Dtype::F32 {
            let mut raw = [0u8; 2 * CHUNK];
            super::half::narrow(self.dtype, &back[..n], &mut raw);
            widen(self.dtype, &raw, &mut back);
        }
        // No early end, so that the compiler may compare many at a time.
        let same = |good, (a, b): (&f32, &f32)| good & (a.to_bits() == b.to_bits());
        back.iter().zip(values).fold(good, same)
    }
}

/// Symbols of a group and their raw bits; `contexts` is told the steps of activity before the group is learnt from.
#[inline(always)]
fn group(
    moved: &[i32; LANES],
    symbols: &mut [u8; LANES],
    low: &mut BitWriter,
    activity: &mut Activity,
    contexts: impl FnOnce(&[u8; LANES]),
) {
    let (mut steps, mut far) = ([0u8; LANES], [0u8; LANES]);
    activity.steps(&mut steps);
    contexts(&steps);
    let mut all = 0;
    for ((far, symbol), &e) in far.iter_mut().zip(symbols.iter_mut()).zip(moved) {
        let magnitude = e.unsigned_abs();
        all |= magnitude;
        *far = if magnitude > 255 { 255 } else { magnitude as u8 };
        *symbol = (magnitude as u8).wrapping_mul(2).wrapping_sub(u8::from(e > 0));
    }
    if all >= 2 << CLASS_BITS {
        for (symbol, &e) in symbols.iter_mut().zip(moved) {
            *symbol = symbol_of(e.into(), CLASS_BITS);
            let (least, width) = class_base(symbol.div_ceil(2), CLASS_BITS);
            low.put(u64::from(e.unsigned_abs()) - least, width);
        }
    }
    activity.learn(&far);
}

/// Counts the symbols of all blocks by raw context.
fn count(blocks: &[Block], axes: Axes) -> Counts {
    let top = blocks.par_iter().map(|b| b.symbols.iter().max().copied()).max();
    let alphabet = usize::from(top.flatten().unwrap_or(0)) + 1;
    let contexts: usize = axes.iter().product();
    let none = || vec![0u32; contexts * alphabet];
    let counts = blocks
        .par_iter()
        .map(|b| {
            let mut counts = none();
            for (&s, &c) in b.symbols.iter().zip(&b.raw) {
                counts[usize::from(c) * alphabet + usize::from(s)] += 1;
            }
            counts
        })
        .reduce(none, |mut a, b| {
            a.iter_mut().zip(&b).for_each(|(a, b)| *a += b);
            a
        });
    Counts { axes, alphabet, counts }
}

/// The tables of the leaves.
fn frequencies(counts: &Counts, map: &[u8], leaves: usize) -> Vec<[u16; 256]> {
    let mut sums = vec![[0u32; 256]; leaves];
    for (&leaf, row) in map.iter().zip(counts.counts.chunks(counts.alphabet)) {
        let sum = &mut sums[usize::from(leaf)];
        sum.iter_mut().zip(row).for_each(|(a, b)| *a += b);
    }
    sums.iter().map(normalise).collect()
}

impl Block {
    /// Appends the length of the stream, the stream, the bits under the classes.
    fn put(&self, simd: Simd, table: &EncTable, lanes: u8, map: &[u8], out: &mut Vec<u8>) {
        let ctx: Vec<u8> = self.raw.iter().map(|&c| map[usize::from(c)]).collect();
        let mut coded = Vec::with_capacity(self.symbols.len() / 4);
        stream::put(simd, table, lanes, &self.symbols, &ctx, &mut coded);
        put_varint(out, coded.len() as u64);
        out.extend_from_slice(&coded);
        out.extend_from_slice(&self.low);
    }
}
