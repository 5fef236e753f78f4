//! A segment of a reconstruction to bytes. Neighbours: `symbols` makes the symbols, `crate::tree` merges their contexts,
//! `crate::lanes` codes. It must not know what a symbol means.

use super::cells::Lattice;
use super::symbols::{Block, axes};
use super::{Hint, TREES, header};
use crate::bits::put_varint;
use crate::blocks::Grid;
use crate::log2::COST_BITS;
use crate::rans::EncTable;
use crate::tables::put;
use crate::tree::{Axes, Counts, Tree};
use crate::{CodecError, Dtype, Relatives, SEGMENT_BYTES, Scheme, lanes, simd::Simd};
use rayon::prelude::*;

/// Encodes `rec` (a reconstruction, little-endian, of the hint's dtype, at most [`SEGMENT_BYTES`]), with the relatives as
/// contexts where that pays; scheme byte first. They may have any values. Without a base a grandparent is not looked at.
///
/// The bytes depend on nothing else, neither threads nor machine.
///
/// # Errors
/// Lengths or dtypes that disagree; no elements; values that are not on the lattice.
pub(crate) fn encode(
    simd: Simd,
    hint: &Hint,
    dtype: Dtype,
    rec: &[u8],
    relatives: Relatives<'_>,
) -> Result<(Scheme, Vec<u8>), CodecError> {
    let (lattice, start) = (&*hint.lattice, hint.start);
    let size = lattice.dtype.size();
    let n = rec.len() / size;
    lattice.check(start, n, rec.len())?;
    let given = [relatives.base, relatives.base.and(relatives.grand)];
    if dtype != lattice.dtype || n == 0 || rec.len() > SEGMENT_BYTES {
        return Err(CodecError::BadInput(
            "the lattice has another dtype, or the segment is empty or too long",
        ));
    }
    if given.into_iter().flatten().any(|p| p.len() != rec.len()) {
        return Err(CodecError::BadInput("segments of unlike length"));
    }
    let grid = Grid::new(n);
    let plan = |given| Plan::new(simd, lattice, grid, start, rec, given);
    let mut best = plan(given)?;
    let mut scheme = match given {
        [_, Some(_)] => Scheme::LatticeDelta2,
        [Some(_), _] => Scheme::LatticeDelta,
        _ => Scheme::Lattice,
    };
    // A parent that has nothing to do with its child costs more than none; one that helps leaves few bits.
    if best.cost > (n as u64) << COST_BITS && scheme != Scheme::Lattice {
        let alone = plan([None; 2])?;
        if alone.cost <= best.cost {
            (best, scheme) = (alone, Scheme::Lattice);
        }
    }
    let (map, leaves) = best.tree.map(best.counts.axes);
    let freqs = best.counts.frequencies(&map, leaves);
    let lanes = lanes::lanes_for((best.cost >> (COST_BITS + 3)) / best.blocks.len() as u64);
    let mut out = vec![scheme as u8];
    header::put(lattice, start, n, lanes, &mut out)?;
    out.push(grid.log);
    best.tree.put(TREES, &mut out);
    freqs.iter().for_each(|f| put(&mut out, f, true));
    let table = EncTable::new(&freqs);
    grid.put_blocks(&mut out, |b, out| best.blocks[b].put(simd, &table, lanes, &map, out));
    Ok((scheme, out))
}

/// The symbols with given relatives, how their contexts merge, and what that costs in 1/1024 bits.
struct Plan {
    blocks: Vec<Block>,
    counts: Counts,
    tree: Tree,
    cost: u64,
}

impl Plan {
    fn new(
        simd: Simd,
        lattice: &Lattice,
        grid: Grid,
        start: usize,
        rec: &[u8],
        given: [Option<&[u8]>; 2],
    ) -> Result<Plan, CodecError> {
        let axes = axes(given[0].is_some());
        let blocks = lattice.blocks(simd, grid, start, rec, given, axes)?;
        let counts = count(&blocks, axes);
        let (tree, mut cost) = counts.grow(TREES);
        cost += blocks
            .iter()
            .map(|b| (b.low.len() as u64 * 8) << COST_BITS)
            .sum::<u64>();
        Ok(Plan {
            blocks,
            counts,
            tree,
            cost,
        })
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

impl Block {
    /// Appends the length of the stream, the stream, the bits under the classes.
    fn put(&self, simd: Simd, table: &EncTable, lanes: u8, map: &[u8], out: &mut Vec<u8>) {
        let ctx: Vec<u8> = self.raw.iter().map(|&c| map[usize::from(c)]).collect();
        let mut coded = Vec::with_capacity(self.symbols.len() / 4);
        lanes::put(simd, table, lanes, &[(&self.symbols, &ctx)], &mut coded);
        put_varint(out, coded.len() as u64);
        out.extend_from_slice(&coded);
        out.extend_from_slice(&self.low);
    }
}
