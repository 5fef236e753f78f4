//! A segment of a reconstruction to bytes. Neighbours: `symbols` makes the symbols, `grow` and `tree` merge their contexts, `stream`
//! codes. It must not know what a symbol means.

use super::cells::Lattice;
use super::grow::Counts;
use super::symbols::Block;
use super::tree::{Axes, axes};
use super::{SCHEME, stream};
use crate::bits::put_varint;
use crate::blocks::Grid;
use crate::log2::COST_BITS;
use crate::rans::EncTable;
use crate::tables::{normalise, put};
use crate::{CodecError, SEGMENT_BYTES, simd::Simd};
use rayon::prelude::*;

/// Flags of a segment: which relatives its contexts need.
pub(super) const PARENT: u8 = 1;
pub(super) const GRAND: u8 = 2;

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
