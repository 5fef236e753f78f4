//! Lattice encoder: a segment of a reconstruction to bytes.

use crate::{
    Bases, CodecError, Dtype, Result, SEGMENT_BYTES, Scheme,
    entropy::{Axes, COST_BITS, EncTable, Grid, LANES, Tree, lanes, put_varint, tables, tree, tree::Counts},
    quant::lattice::{Block, CONTEXTS, Hint, TREES, axes, header, moves, padded},
    simd::Simd,
};
use rayon::prelude::*;

/// Encodes `rec` (a reconstruction, little-endian, of the hint's dtype, at most [`SEGMENT_BYTES`]), with the bases
/// as contexts where that pays; scheme byte first. They may have any values. Without a base a grandparent is not looked
/// at.
///
/// The bytes depend on nothing else, neither threads nor machine.
///
/// # Errors
/// Lengths or dtypes that disagree; no elements; values that are not on the lattice.
pub(crate) fn encode(simd: Simd, hint: &Hint, dtype: Dtype, rec: &[u8], bases: Bases<'_>) -> Result<(Scheme, Vec<u8>)> {
    let n = elements(hint, dtype, rec.len(), [bases.base, bases.grandparent].map(|r| r.map(<[u8]>::len)))?;
    let given = [bases.base, bases.base.and(bases.grandparent)];
    let grid = Grid::new(n);
    let mut best = planned(simd, hint, grid, rec, given)?;
    let mut scheme = match given {
        [_, Some(_)] => Scheme::LatticeDelta2,
        [Some(_), _] => Scheme::LatticeDelta,
        _ => Scheme::Lattice,
    };
    if scheme != Scheme::Lattice && best.1.is_poor(n) {
        let alone = planned(simd, hint, grid, rec, [None; 2])?;
        if best.1.is_beaten_by(&alone.1) {
            (best, scheme) = (alone, Scheme::Lattice);
        }
    }
    let (blocks, plan) = best;
    let Head { bytes: mut out, map, table, lanes, .. } = plan.head(scheme, hint, n)?;
    let map = padded(&map);
    grid.put_blocks(&mut out, |b, out| blocks[b].put(simd, &table, lanes, &map, out));
    Ok((scheme, out))
}

/// As [`encode`], or as moves where the base is on the lattice: they take 1 to 3 % more than contexts do, and a small
/// part of the time.
pub(crate) fn encode_best(
    simd: Simd,
    hint: &Hint,
    dtype: Dtype,
    rec: &[u8],
    bases: Bases<'_>,
) -> Result<(Scheme, Vec<u8>)> {
    let moves = match bases.base {
        Some(base) => moves_or_alone(simd, hint, dtype, rec, base)?,
        None => None,
    };
    moves.map_or_else(|| encode(simd, hint, dtype, rec, bases), Ok)
}

/// `rec` as moves if the base is on the lattice, or alone if that is shorter.
pub(crate) fn moves_or_alone(
    simd: Simd,
    hint: &Hint,
    dtype: Dtype,
    rec: &[u8],
    base: &[u8],
) -> Result<Option<(Scheme, Vec<u8>)>> {
    let Some(moves) = moves::encode_where_base_is_on(simd, hint, dtype, rec, base)? else { return Ok(None) };
    // A base that has nothing to do with its child leaves more than a bit an element.
    if moves.len() * 8 > rec.len() / dtype.size() {
        let alone = encode(simd, hint, dtype, rec, Bases::NONE)?;
        if alone.1.len() <= moves.len() {
            return Ok(Some(alone));
        }
    }
    Ok(Some((Scheme::LatticeMoves, moves)))
}

/// How many elements a segment of `bytes` bytes has, if it may be encoded on the hint's lattice with bases of these
/// lengths.
///
/// # Errors
/// Lengths or dtypes that disagree; no elements.
pub fn elements(hint: &Hint, dtype: Dtype, bytes: usize, bases: [Option<usize>; 2]) -> Result<usize> {
    let lattice = &*hint.lattice;
    let n = bytes / lattice.dtype.size();
    lattice.check(hint.start, n, bytes)?;
    let given = [bases[0], bases[0].and(bases[1])];
    if dtype != lattice.dtype || n == 0 || bytes > SEGMENT_BYTES {
        return Err(CodecError::BadInput("the lattice has another dtype, or the segment is empty or too long"));
    }
    if given.into_iter().flatten().any(|len| len != bytes) {
        return Err(CodecError::BadInput("segments of unlike length"));
    }
    Ok(n)
}

/// What the counts of a segment's symbols decide: how contexts merge, and what all of it costs.
#[derive(Debug)]
pub struct LatticePlan {
    counts: Counts,
    tree: Tree,
    /// In 1/1024 bits.
    cost: u64,
}

/// A segment up to its blocks, and what they are coded with.
#[derive(Debug)]
pub struct Head {
    /// From the scheme byte to the tables.
    pub bytes: Vec<u8>,
    /// The table of each raw context.
    pub map: Vec<u8>,
    /// The tables.
    pub table: EncTable,
    /// log2 of the lanes of each stream.
    pub lanes: u8,
    grid: Grid,
}

impl Head {
    /// The segment, from the stream and the raw bits of each block.
    pub fn finish(mut self, blocks: &[[Vec<u8>; 2]]) -> Vec<u8> {
        self.grid.put_blocks(&mut self.bytes, |b, out| {
            if let Some([stream, low]) = blocks.get(b) {
                put_block(stream, low, out);
            }
        });
        self.bytes
    }
}

impl LatticePlan {
    /// From counts of the symbols below `alphabet` in each raw context, and the bytes of raw bits in all blocks.
    pub fn new(axes: Axes, alphabet: usize, counts: Vec<u32>, low: u64) -> LatticePlan {
        let counts = Counts { axes, alphabet, counts };
        let (tree, cost) = counts.grow(TREES);
        LatticePlan { counts, tree, cost: cost + ((low * 8) << COST_BITS) }
    }

    /// Whether it leaves so much of `n` elements that one without bases is worth a look: a parent that has nothing
    /// to do with its child costs more than none; one that helps leaves few bits.
    pub fn is_poor(&self, n: usize) -> bool {
        self.cost > (n as u64) << COST_BITS
    }

    /// Whether the plan without bases is to be taken instead.
    pub fn is_beaten_by(&self, alone: &LatticePlan) -> bool {
        alone.cost <= self.cost
    }

    /// What comes before the blocks of a segment of `n` elements (at least 1).
    pub fn head(&self, scheme: Scheme, hint: &Hint, n: usize) -> Result<Head> {
        let grid = Grid::new(n);
        let (map, leaves) = self.tree.map(self.counts.axes);
        let freqs = self.counts.frequencies(&map, leaves);
        let lanes = lanes::lanes_for((self.cost >> (COST_BITS + 3)) / grid.blocks() as u64);
        let mut bytes = vec![scheme as u8];
        header::put(&hint.lattice, hint.start, n, lanes, &mut bytes)?;
        bytes.push(grid.log);
        self.tree.put(TREES, &mut bytes);
        freqs.iter().for_each(|f| tables::put(&mut bytes, f, true));
        let table = EncTable::new(&freqs);
        Ok(Head { bytes, map, table, lanes, grid })
    }
}

/// The symbols with given bases, and what they decide.
fn planned(
    simd: Simd,
    hint: &Hint,
    grid: Grid,
    rec: &[u8],
    given: [Option<&[u8]>; 2],
) -> Result<(Vec<Block>, LatticePlan)> {
    let axes = axes(given[0].is_some());
    let blocks = hint.lattice.blocks(simd, grid, hint.start, rec, given, axes)?;
    let top = blocks.par_iter().map(|b| b.symbols.iter().max().copied()).max();
    let alphabet = usize::from(top.flatten().unwrap_or(0)) + 1;
    let counts = tree::count(axes, alphabet, blocks.par_iter().map(|b| (&b.symbols[..], &b.raw[..])));
    let low = blocks.iter().map(|b| b.low.len() as u64).sum();
    Ok((blocks, LatticePlan::new(axes, alphabet, counts, low)))
}

impl Block {
    /// Appends the block as coded with these tables.
    fn put(&self, simd: Simd, table: &EncTable, lanes: u8, map: &[u8; CONTEXTS], out: &mut Vec<u8>) {
        let mut ctx = vec![0; self.raw.len().next_multiple_of(LANES)];
        let (whole, rest) = self.raw.as_chunks::<LANES>();
        let mut last = [0; LANES];
        last[..rest.len()].copy_from_slice(rest);
        for (raw, ctx) in whole.iter().chain(std::iter::once(&last)).zip(ctx.as_chunks_mut().0) {
            simd.tables_of(map, raw, ctx);
        }
        ctx.truncate(self.raw.len());
        let mut coded = Vec::with_capacity(self.symbols.len() / 4);
        lanes::put(simd, table, lanes, &[(&self.symbols, &ctx)], &mut coded);
        put_block(&coded, &self.low, out);
    }
}

/// Appends the length of the stream, the stream, the bits under the classes.
fn put_block(stream: &[u8], low: &[u8], out: &mut Vec<u8>) {
    put_varint(out, stream.len() as u64);
    out.extend_from_slice(stream);
    out.extend_from_slice(low);
}
