//! Encoder of lattice moves.

use super::{
    GROUP, MASKS, QUAD,
    classes::{Classes, Counts, bin, none},
};
use crate::{
    CodecError, Dtype, Result, Scheme,
    entropy::{BitWriter, COST_BITS, EncTable, Grid, entropy, lanes, normalise, put_varint, tables},
    quant::lattice::{
        CHUNK, CLASS_BITS, Hint, LIMIT, Lattice, PLACES,
        cells::{Cells, number, place, round},
        encode::elements,
        half::{narrow, widen},
        header,
    },
    schemes::{class_base, symbol_of},
    simd::{Simd, Work},
};
use rayon::prelude::*;

/// One element in this many may lie elsewhere in its cell than where levels lie, for a base to count as on the lattice.
const OFF: usize = 32;
/// Magnitudes below have no raw bits.
const PLAIN: u32 = 2 << CLASS_BITS;

/// A block, taken apart.
struct Block {
    /// The bin of each group.
    bins: Vec<u8>,
    /// The masks of all groups.
    masks: Vec<u8>,
    /// A symbol for each move, and the bits under their classes.
    symbols: Vec<u8>,
    low: Vec<u8>,
    counts: Counts,
    /// Elements of the base that lie elsewhere in their cells.
    off: usize,
}

/// Encodes `rec` against `base`, wherever that lies; scheme byte first.
///
/// # Errors
/// As for [`crate::quant::lattice::encode`].
pub(crate) fn encode(simd: Simd, hint: &Hint, dtype: Dtype, rec: &[u8], base: &[u8]) -> Result<Vec<u8>> {
    let (grid, blocks) = blocks(simd, hint, dtype, rec, base)?;
    put(simd, hint, grid, &blocks)
}

/// Encodes `rec` against `base` if that is on the lattice, but for one element in 32.
///
/// # Errors
/// As for [`crate::quant::lattice::encode`].
pub(crate) fn encode_where_base_is_on(
    simd: Simd,
    hint: &Hint,
    dtype: Dtype,
    rec: &[u8],
    base: &[u8],
) -> Result<Option<Vec<u8>>> {
    let (grid, blocks) = blocks(simd, hint, dtype, rec, base)?;
    let off: usize = blocks.iter().map(|b| b.off).sum();
    if off * OFF > grid.n { Ok(None) } else { put(simd, hint, grid, &blocks).map(Some) }
}

fn blocks(simd: Simd, hint: &Hint, dtype: Dtype, rec: &[u8], base: &[u8]) -> Result<(Grid, Vec<Block>)> {
    let grid = Grid::new(elements(hint, dtype, rec.len(), [Some(base.len()), None])?);
    let lattice = &*hint.lattice;
    let one = |b| {
        let (bytes, start) = (grid.bytes(b, dtype.size()), hint.start + grid.elements(b).start);
        simd.compiled(OneBlock { lattice, simd, start, rec: &rec[bytes.clone()], base: &base[bytes] })
    };
    let blocks: Option<Vec<Block>> = (0..grid.blocks()).into_par_iter().map(one).collect();
    Ok((grid, blocks.ok_or(CodecError::BadInput("the values are not on this lattice"))?))
}

fn put(simd: Simd, hint: &Hint, grid: Grid, blocks: &[Block]) -> Result<Vec<u8>> {
    let mut bins = none();
    for block in blocks {
        bins.iter_mut().zip(&block.counts).for_each(|(to, from)| to.add(from));
    }
    let Classes { of_bin, counts } = Classes::from_bins(&bins);
    let count = counts.len() - 1;
    let mut groups = [0; 256];
    groups.iter_mut().zip(&counts).for_each(|(to, c)| *to = c.groups);
    let mut freqs = Vec::new();
    if count > 0 {
        freqs.push(normalise(&groups));
        freqs.extend(counts[1..].iter().map(|c| normalise(&c.masks)));
        freqs.extend(counts[1..].iter().map(|c| normalise(&c.symbols)));
    }
    let cost = counts[1..].iter().fold(entropy(&groups), |sum, c| sum + entropy(&c.masks) + entropy(&c.symbols));
    let lanes = lanes::lanes_for((cost >> (COST_BITS + 3)) / grid.blocks() as u64);
    let mut out = vec![Scheme::LatticeMoves as u8];
    header::put(&hint.lattice, hint.start, grid.n, lanes, &mut out)?;
    out.extend([grid.log, count as u8]);
    freqs.iter().for_each(|f| tables::put(&mut out, f, true));
    let table = EncTable::new(&freqs);
    grid.put_blocks(&mut out, |b, out| {
        if count > 0 {
            blocks[b].put(simd, &table, lanes, &of_bin, count as u8, out);
        }
    });
    Ok(out)
}

impl Block {
    /// Appends the block as coded with these tables, of `count` classes.
    fn put(&self, simd: Simd, table: &EncTable, lanes: u8, of_bin: &[u8; 16], count: u8, out: &mut Vec<u8>) {
        let classes: Vec<u8> = self.bins.iter().map(|&b| of_bin[usize::from(b)]).collect();
        let (mut masks, mut by_mask) = (Vec::with_capacity(self.masks.len()), Vec::with_capacity(self.masks.len()));
        let mut by_symbol = Vec::with_capacity(self.symbols.len());
        for (group, &class) in self.masks.chunks(MASKS).zip(&classes).filter(|(_, class)| **class > 0) {
            masks.extend_from_slice(group);
            by_mask.resize(masks.len(), class);
            let moves: u32 = group.iter().map(|m| m.count_ones()).sum();
            by_symbol.resize(by_symbol.len() + moves as usize, count + class);
        }
        let zeros = vec![0; classes.len()];
        let mut coded = Vec::with_capacity(masks.len() + self.symbols.len() / 2);
        let parts = [(&classes[..], &zeros[..]), (&masks, &by_mask), (&self.symbols, &by_symbol)];
        lanes::put(simd, table, lanes, &parts, &mut coded);
        put_varint(out, coded.len() as u64);
        out.extend_from_slice(&coded);
        out.extend_from_slice(&self.low);
    }
}

/// A block that starts at `start`, to be taken apart; none if a value is not on the lattice.
struct OneBlock<'a> {
    lattice: &'a Lattice,
    simd: Simd,
    start: usize,
    rec: &'a [u8],
    base: &'a [u8],
}

impl Work for OneBlock<'_> {
    type Output = Option<Block>;

    #[inline(always)]
    fn run(self) -> Option<Block> {
        let OneBlock { lattice, simd, start, rec, base } = self;
        let size = lattice.dtype.size();
        let n = rec.len() / size;
        let mut block = Block {
            bins: Vec::with_capacity(n.div_ceil(GROUP)),
            masks: Vec::with_capacity(n.div_ceil(QUAD)),
            symbols: Vec::new(),
            low: Vec::new(),
            counts: none(),
            off: 0,
        };
        let mut low = BitWriter::default();
        let mut cells = Cells::new(simd);
        let [mut wide, mut parent, mut back] = [[0f32; CHUNK]; 3];
        for (c, (rec, base)) in rec.chunks(CHUNK * size).zip(base.chunks(CHUNK * size)).enumerate() {
            let n = rec.len() / size;
            lattice.cells(start + c * CHUNK, n, &mut cells);
            widen(lattice.dtype, rec, &mut wide);
            widen(lattice.dtype, base, &mut parent);
            let (mut good, mut off, mut moved) = (true, 0i32, [0i32; CHUNK]);
            for i in 0..n {
                let (d, o) = (cells.d[i], cells.o[i]);
                let x = place(parent[i], d, o);
                let x = if x.abs() < LIMIT - 1.0 { x } else { 0.0 };
                let (a, nearest) = round(x);
                off += i32::from(round((x - nearest).abs() * (2 * PLACES - 2) as f32).0 > 0);
                let x = place(wide[i], d, o);
                good &= x.abs() < LIMIT;
                let q = round(x).0;
                back[i] = number(q, d, o);
                moved[i] = q.wrapping_sub(a);
            }
            block.off += off as usize;
            if lattice.dtype != Dtype::F32 {
                let mut raw = [0u8; 2 * CHUNK];
                narrow(lattice.dtype, &back[..n], &mut raw);
                widen(lattice.dtype, &raw, &mut back);
            }
            let same = |good, (a, b): (&f32, &f32)| good & (a.to_bits() == b.to_bits());
            if !back[..n].iter().zip(&wide[..n]).fold(good, same) {
                return None;
            }
            for (g, moved) in moved.as_chunks().0.iter().enumerate().take(n.div_ceil(GROUP)) {
                block.group(moved, (n - g * GROUP).min(GROUP), &mut low);
            }
        }
        block.low = low.finish();
        Some(block)
    }
}

impl Block {
    /// Takes a group of `n` differences apart; those past them are 0.
    #[inline(always)]
    fn group(&mut self, moved: &[i32; GROUP], n: usize, low: &mut BitWriter) {
        let (mut flags, mut symbols, mut all) = ([0u8; GROUP], [0u8; GROUP], 0);
        for ((flag, symbol), &e) in flags.iter_mut().zip(&mut symbols).zip(moved) {
            let magnitude = e.unsigned_abs();
            all |= magnitude;
            *flag = u8::from(e != 0);
            *symbol = (magnitude as u8).wrapping_mul(2).wrapping_sub(u8::from(e > 0));
        }
        let (mut masks, mut bits) = ([0u8; MASKS], [0u64; 2]);
        for (mask, flags) in masks.iter_mut().zip(flags.as_chunks::<QUAD>().0) {
            // Bit 8b of the factor's product with flag b lands at bit 24 + b.
            *mask = (u32::from_le_bytes(*flags).wrapping_mul(1 << 24 | 1 << 17 | 1 << 10 | 1 << 3) >> 24) as u8 & 15;
        }
        for (m, &mask) in masks.iter().enumerate() {
            bits[m / 16] |= u64::from(mask) << (QUAD * (m % 16));
        }
        let moves = bits[0].count_ones() + bits[1].count_ones();
        let bin = bin(moves);
        self.bins.push(bin);
        let masks = &masks[..n.div_ceil(QUAD)];
        self.masks.extend_from_slice(masks);
        let counts = &mut self.counts[usize::from(bin)];
        counts.groups += 1;
        if moves == 0 {
            return;
        }
        masks.iter().for_each(|&m| counts.masks[usize::from(m)] += 1);
        for (half, mut bits) in bits.into_iter().enumerate() {
            while bits != 0 {
                let i = half * 64 + bits.trailing_zeros() as usize;
                bits &= bits - 1;
                let mut symbol = symbols[i];
                if all >= PLAIN {
                    symbol = symbol_of(moved[i].into(), CLASS_BITS);
                    let (least, width) = class_base(symbol.div_ceil(2), CLASS_BITS);
                    low.put(u64::from(moved[i].unsigned_abs()) - least, width);
                }
                counts.symbols[usize::from(symbol)] += 1;
                self.symbols.push(symbol);
            }
        }
    }
}
