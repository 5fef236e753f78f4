//! Writes palettes. Neighbours: `find` has the table, `contexts` merges, `rans` codes, `blocks` cuts. It must not decide
//! whether a palette is worth it.

use super::lookup::Nearest;
use super::values::turn_all_back;
use super::{Table, count, family, find, put_number, scheme};
use crate::blocks::Grid;
use crate::contexts::{self, ByExponent, Context};
use crate::diff::Numbers;
use crate::log2::COST_BITS;
use crate::rans::EncTable;
use crate::scratch::with_scratch;
use crate::tables::{normalise, put};
use crate::{Relatives, Scheme, delta, rans, simd::Simd};
use rayon::prelude::*;

/// Encodes `raw` by the values of `sample` (elements of `raw`), with the relatives as context where that pays; scheme byte first.
/// Nothing where the sample has no palette.
pub(crate) fn encode(
    simd: Simd,
    numbers: Numbers,
    raw: &[u8],
    relatives: Relatives<'_>,
    sample: &[u8],
) -> Option<(Scheme, Vec<u8>)> {
    let table = find::table(numbers, sample)?;
    let n = raw.len() / numbers.size;
    with_scratch(if relatives.base.is_some() { 2 * n } else { n }, |scratch| {
        let (symbols, places) = scratch.split_at_mut(n);
        Some(with_table(simd, &table, raw, relatives, symbols, places))
    })
}

/// [`encode`] with a table, and room for a byte a number twice (the second time only with a base).
fn with_table(
    simd: Simd,
    table: &Table,
    raw: &[u8],
    relatives: Relatives<'_>,
    symbols: &mut [u8],
    places: &mut [u8],
) -> (Scheme, Vec<u8>) {
    let (near, grid, values) = (Nearest::new(table), Grid::new(symbols.len()), table.values.len());
    let block = 1 << grid.log;
    let bytes = block * table.numbers.size;
    let by_block = symbols.par_chunks_mut(block).zip(raw.par_chunks(bytes));
    by_block.for_each(|(out, raw)| near.symbols(raw, out));
    let symbols = &*symbols;
    let blocks = symbols.par_chunks(block);
    let merged = |a: ByExponent, b: ByExponent| a.merge(&b);
    let alone = blocks.clone().map(count::alone).reduce(ByExponent::new, merged);
    let mut exceptions = Vec::new();
    if alone.total(table.exception()) > 0 {
        simd.positions(table.exception(), symbols, 0, &mut exceptions);
    }
    let all = exceptions.iter().map(|&i| table.numbers.load(raw, i as usize));
    let zero = Table::zero_bytes(table.numbers, all);
    let alone = contexts::cluster(&alone);
    let mut best = (alone.0, alone.1, None);
    if let Some(base) = relatives.base {
        let by_block = places.par_chunks_mut(block).zip(base.par_chunks(bytes));
        by_block.for_each(|(out, base)| near.places(base, out));
        let places = &*places;
        let joint = blocks
            .zip(places.par_chunks(block))
            .map(|(s, p)| count::joint(s, p, values));
        let with = contexts::cluster(&joint.reduce(ByExponent::new, merged));
        if with.1 < alone.1 {
            best = (with.0, with.1, Some(places));
        }
    }
    let (list, cost, places) = best;
    if let (Some(base), Some(grand)) = (relatives.base, relatives.grand) {
        let each = table.numbers.size - usize::from(zero);
        let bytes = exceptions.len() * each + grid.blocks() * rans::STATE_BYTES;
        let family = family::Plan::new(&near, zero, raw, base, grand);
        if family.cost < cost + ((8 * bytes as u64) << COST_BITS) {
            return (Scheme::PaletteDelta2, family.encode(simd, &near, zero));
        }
    }
    let freqs: Vec<[u16; 256]> = list.iter().map(|c| normalise(&c.counts)).collect();
    let coder = Encoder {
        simd,
        table,
        freqs: EncTable::new(&freqs),
        map: delta::context_map(list.iter().map(|c| c.first)),
    };
    let scheme = scheme(places.is_some());
    let mut out = vec![scheme as u8, grid.log];
    table.put(&mut out);
    out.push(zero);
    if places.is_some() {
        put_contexts(&mut out, &list);
    }
    freqs.iter().for_each(|f| put(&mut out, f, true));
    grid.put_blocks(&mut out, |b, out| {
        let elements = grid.elements(b);
        coder.block(&symbols[elements.clone()], places.map(|p| &p[elements.clone()]), out);
        let at = |place: usize| exceptions.partition_point(|&i| (i as usize) < place);
        for &i in &exceptions[at(elements.start)..at(elements.end)] {
            put_number(out, table.numbers, table.numbers.load(raw, i as usize), zero);
        }
    });
    (scheme, out)
}

fn put_contexts(out: &mut Vec<u8>, list: &[Context]) {
    out.push(list.len() as u8);
    out.extend(list.iter().skip(1).map(|c| c.first));
}

struct Encoder<'a> {
    simd: Simd,
    table: &'a Table,
    freqs: EncTable,
    map: [u8; 256],
}

impl Encoder<'_> {
    /// Appends the stream of a block.
    fn block(&self, symbols: &[u8], places: Option<&[u8]>, out: &mut Vec<u8>) {
        let start = out.len();
        out.extend_from_slice(&[0; 4]);
        match places {
            None => rans::encode(self.simd, &self.freqs, symbols, None, out),
            Some(places) => with_scratch(2 * symbols.len(), |scratch| {
                let (turned, ctx) = scratch.split_at_mut(symbols.len());
                turned.copy_from_slice(symbols);
                turn_all_back(turned, places, self.table.values.len());
                ctx.iter_mut()
                    .zip(places)
                    .for_each(|(c, p)| *c = self.map[usize::from(*p)]);
                rans::encode(self.simd, &self.freqs, turned, Some(ctx), out);
            }),
        }
        let len = (out.len() - start - 4) as u32;
        out[start..start + 4].copy_from_slice(&len.to_le_bytes());
    }
}
