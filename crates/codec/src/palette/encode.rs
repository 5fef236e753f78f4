//! Writes palettes. Neighbours: `find` has the table, `contexts` merges, `rans` codes, `blocks` cuts. It must not decide
//! whether a palette is worth it.

use super::lookup::{Nearest, each, turn_back};
use super::{Table, family, find, put_number, scheme};
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
    let near = Nearest::new(&table);
    let grid = Grid::new(raw.len() / numbers.size);
    let bytes = |b: usize| grid.elements(b).start * numbers.size..grid.elements(b).end * numbers.size;
    let contexts = |base: Option<&[u8]>| {
        let by = (0..grid.blocks())
            .into_par_iter()
            .map(|b| find::count(&near, &raw[bytes(b)], base.map(|d| &d[bytes(b)])))
            .reduce(ByExponent::new, |a, b| a.merge(&b));
        contexts::cluster(&by)
    };
    let alone = contexts(None);
    let zero = exceptions_zero(&near, raw);
    let (list, cost, base) = match relatives.base.map(|b| (contexts(Some(b)), b)) {
        Some((with, b)) if with.1 < alone.1 => (with.0, with.1, Some(b)),
        _ => (alone.0, alone.1, None),
    };
    if let (Some(base), Some(grand)) = (relatives.base, relatives.grand) {
        let strangers: u64 = list.iter().map(|c| u64::from(c.counts[table.values.len()])).sum();
        let bytes =
            strangers * (numbers.size as u64 - u64::from(zero)) + grid.blocks() as u64 * rans::STATE_BYTES as u64;
        let family = family::Plan::new(&near, zero, raw, base, grand);
        if family.cost < cost + ((8 * bytes) << COST_BITS) {
            return Some((Scheme::PaletteDelta2, family.encode(simd, &near, zero)));
        }
    }
    let freqs: Vec<[u16; 256]> = list.iter().map(|c| normalise(&c.counts)).collect();
    let coder = Encoder {
        simd,
        table: &table,
        freqs: EncTable::new(&freqs),
        map: delta::context_map(list.iter().map(|c| c.first)),
        zero,
        near,
    };
    let scheme = scheme(base.is_some());
    let mut out = vec![scheme as u8, grid.log];
    table.put(&mut out);
    out.push(coder.zero);
    if base.is_some() {
        put_contexts(&mut out, &list);
    }
    freqs.iter().for_each(|f| put(&mut out, f, true));
    grid.put_blocks(&mut out, |b, out| {
        coder.block(&raw[bytes(b)], base.map(|d| &d[bytes(b)]), out)
    });
    Some((scheme, out))
}

fn put_contexts(out: &mut Vec<u8>, list: &[Context]) {
    out.push(list.len() as u8);
    out.extend(list.iter().skip(1).map(|c| c.first));
}

/// Low bytes that are zero in every exception.
fn exceptions_zero(near: &Nearest<'_>, raw: &[u8]) -> u8 {
    let table = near.table;
    let mut all = 0;
    each(table.numbers, raw, |_, v| {
        if near.symbol(v) == table.exception() {
            all |= v;
        }
    });
    Table::zero_bytes(table.numbers, std::iter::once(all))
}

struct Encoder<'a> {
    simd: Simd,
    table: &'a Table,
    near: Nearest<'a>,
    freqs: EncTable,
    map: [u8; 256],
    zero: u8,
}

impl Encoder<'_> {
    fn block(&self, raw: &[u8], base: Option<&[u8]>, out: &mut Vec<u8>) {
        let (numbers, values) = (self.table.numbers, self.table.values.len());
        let n = raw.len() / numbers.size;
        let mut exceptions = Vec::new();
        let start = out.len();
        out.extend_from_slice(&[0; 4]);
        with_scratch(2 * n, |scratch| {
            let (symbols, ctx) = scratch.split_at_mut(n);
            ctx.fill(0);
            if let Some(base) = base {
                each(numbers, base, |i, v| ctx[i] = self.near.of(v));
            }
            each(numbers, raw, |i, v| {
                let index = self.near.symbol(v);
                if index == self.table.exception() {
                    put_number(&mut exceptions, numbers, v, self.zero);
                }
                symbols[i] = turn_back(index, ctx[i], values);
            });
            ctx.iter_mut().for_each(|c| *c = self.map[usize::from(*c)]);
            rans::encode(self.simd, &self.freqs, symbols, Some(ctx), out);
        });
        let len = (out.len() - start - 4) as u32;
        out[start..start + 4].copy_from_slice(&len.to_le_bytes());
        out.extend_from_slice(&exceptions);
    }
}
