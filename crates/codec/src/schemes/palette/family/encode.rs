//! Encoder of palettes with two bases.

use crate::{
    Bases,
    entropy::{BitWriter, EncTable, Grid, lanes, put_varint, tree},
    schemes::{
        class_base,
        palette::{
            Nearest, each,
            family::{CLASS_BITS, axes, look, plan::FamilyPlan},
            turn_back,
        },
        symbol_of,
    },
    simd::Simd,
};
use rayon::prelude::*;

/// A segment as symbols, and what was decided about them.
pub(in super::super) struct Family {
    grid: Grid,
    blocks: Vec<Block>,
    pub(in super::super) plan: FamilyPlan,
}

/// A block as symbols.
struct Block {
    symbols: Vec<u8>,
    /// Raw context of each.
    raw: Vec<u16>,
    /// Symbols of the differences of numbers that are no level, and the bits under their classes.
    strangers: Vec<u8>,
    low: Vec<u8>,
}

impl Family {
    /// Looks at a segment; `zero` low bytes of its strangers are zero.
    pub(in super::super) fn new(near: &Nearest<'_>, zero: u8, raw: &[u8], base: &[u8], grandparent: &[u8]) -> Family {
        let size = near.table.numbers.size;
        let grid = Grid::new(raw.len() / size);
        let one = |b| {
            let bytes = grid.bytes(b, size);
            let family = Bases { base: base.get(bytes.clone()), grandparent: grandparent.get(bytes.clone()) };
            Block::new(near, zero, &raw[bytes], family)
        };
        let blocks: Vec<Block> = (0..grid.blocks()).into_par_iter().map(one).collect();
        let pairs = blocks.par_iter().map(|b| (&b.symbols[..], &b.raw[..]));
        let counts = tree::count(axes(near.table), near.table.values.len() + 1, pairs);
        let mut strangers = [0; 256];
        let all = blocks.iter().flat_map(|b| &b.strangers);
        all.for_each(|&s| strangers[usize::from(s)] += 1);
        let low: usize = blocks.iter().map(|b| b.low.len()).sum();
        Family { grid, blocks, plan: FamilyPlan::of_counts(near.table, counts, strangers, low) }
    }

    pub(in super::super) fn encode(&self, simd: Simd, near: &Nearest<'_>, zero: u8) -> Vec<u8> {
        let head = self.plan.head(near.table, self.grid.n, zero);
        let table = EncTable::new(&head.freqs);
        let mut out = head.bytes;
        self.grid.put_blocks(&mut out, |b, out| {
            let block = &self.blocks[b];
            let ctx: Vec<u8> = block.raw.iter().map(|&c| head.map[usize::from(c)]).collect();
            let apart = vec![head.contexts; block.strangers.len()];
            let mut coded = Vec::with_capacity(block.symbols.len() / 8);
            let parts = [(&block.symbols[..], &ctx[..]), (&block.strangers, &apart)];
            lanes::put(simd, &table, head.lanes, &parts, &mut coded);
            put_varint(out, coded.len() as u64);
            out.extend_from_slice(&coded);
            out.extend_from_slice(&block.low);
        });
        out
    }
}

impl Block {
    fn new(near: &Nearest<'_>, zero: u8, raw: &[u8], family: Bases<'_>) -> Block {
        let (numbers, values) = (near.table.numbers, near.table.values.len());
        let (axes, heads, shift) = (axes(near.table), numbers.heads(zero), 8 * u32::from(zero));
        let (base, grandparent) = (family.base.unwrap_or_default(), family.grandparent.unwrap_or_default());
        let n = raw.len() / numbers.size;
        let mut out = Block { symbols: vec![0; n], raw: vec![0; n], strangers: Vec::new(), low: Vec::new() };
        let mut low = BitWriter::default();
        each(numbers, raw, |i, v| {
            let parent = numbers.load(base, i);
            let (place, context) = look(near, axes, parent, numbers.load(grandparent, i));
            let index = near.symbol(v);
            if index == near.table.exception() {
                let d = heads.difference(v >> shift, parent >> shift);
                let symbol = symbol_of(d, CLASS_BITS);
                let (least, width) = class_base(symbol.div_ceil(2), CLASS_BITS);
                low.put_wide(d.unsigned_abs() - least, width);
                out.strangers.push(symbol);
            }
            out.raw[i] = context;
            out.symbols[i] = turn_back(index, place, values);
        });
        out.low = low.finish();
        out
    }
}
