//! Palette encoder.

use crate::{
    Bases, Scheme,
    entropy::{ByExponent, EncTable, Grid, put_with_length, rans},
    schemes::{
        Numbers,
        palette::{Nearest, Table, count, family::Family, find, plan::PalettePlan, put_number, values::turn_all_back},
    },
    scratch::with_scratch,
    simd::Simd,
    threads::share_out,
};

/// Encodes `raw` by the values of `sample` (elements of `raw`), with the bases as context where that pays; scheme
/// byte first. Nothing where the sample has no palette.
pub(crate) fn encode(
    simd: Simd,
    numbers: Numbers,
    raw: &[u8],
    bases: Bases<'_>,
    sample: &[u8],
) -> Option<(Scheme, Vec<u8>)> {
    let table = find::table(numbers, sample, |_| true)?;
    let n = raw.len() / numbers.size;
    with_scratch(if bases.base.is_some() { 2 * n } else { n }, |scratch| {
        let (symbols, places) = scratch.split_at_mut(n);
        Some(with_table(simd, &table, raw, bases, symbols, places))
    })
}

/// [`encode`] with a table, and room for a byte a number twice (the second time only with a base).
fn with_table(
    simd: Simd,
    table: &Table,
    raw: &[u8],
    bases: Bases<'_>,
    symbols: &mut [u8],
    places: &mut [u8],
) -> (Scheme, Vec<u8>) {
    let near = if symbols.len() < find::MANY { Nearest::by_search(table) } else { Nearest::new(table) };
    let (grid, values) = (Grid::new(symbols.len()), table.values.len());
    let block = 1 << grid.log;
    let bytes = block * table.numbers.size;
    let counts = share_out(symbols.chunks_mut(block).zip(raw.chunks(bytes)).collect(), |(out, raw)| {
        near.symbols(raw, out);
        count::alone(out)
    });
    let symbols = &*symbols;
    let sum = |counts: Vec<ByExponent>| counts.iter().fold(ByExponent::new(), |sum, c| sum.merge(c));
    let alone = sum(counts);
    let mut exceptions = Vec::new();
    if alone.total(table.exception()) > 0 {
        simd.positions(table.exception(), symbols, 0, &mut exceptions);
    }
    let all = exceptions.iter().map(|&i| table.numbers.load(raw, i as usize));
    let zero = Table::zero_bytes(table.numbers, all);
    let mut joint = None;
    if let Some(base) = bases.base {
        let by_block = places.chunks_mut(block).zip(base.chunks(bytes)).zip(symbols.chunks(block));
        joint = Some(sum(share_out(by_block.collect(), |((places, base), symbols)| {
            near.places(base, places);
            count::joint(symbols, places, values)
        })));
    }
    let plan = PalettePlan::new(&alone, joint.as_ref());
    if let (Some(base), Some(grandparent)) = (bases.base, bases.grandparent) {
        let family = Family::new(&near, zero, raw, base, grandparent);
        if plan.loses_to(&family.plan, table, grid.n, exceptions.len(), zero) {
            return (Scheme::PaletteDelta2, family.encode(simd, &near, zero));
        }
    }
    let head = plan.head(table, zero);
    let places = plan.with_base().then_some(&*places);
    let coder = Encoder { simd, table, freqs: EncTable::new(&head.freqs), map: &head.map };
    let mut out = head.bytes;
    grid.put_blocks(&mut out, |b, out| {
        let elements = grid.elements(b);
        coder.block(&symbols[elements.clone()], places.map(|p| &p[elements.clone()]), out);
        let at = |place: usize| exceptions.partition_point(|&i| (i as usize) < place);
        for &i in &exceptions[at(elements.start)..at(elements.end)] {
            put_number(out, table.numbers, table.numbers.load(raw, i as usize), zero);
        }
    });
    (head.scheme, out)
}

struct Encoder<'a> {
    simd: Simd,
    table: &'a Table,
    freqs: EncTable,
    map: &'a [u8],
}

impl Encoder<'_> {
    /// Appends the stream of a block.
    fn block(&self, symbols: &[u8], places: Option<&[u8]>, out: &mut Vec<u8>) {
        put_with_length(out, |out| match places {
            None => rans::encode(self.simd, &self.freqs, symbols, None, out),
            Some(places) => with_scratch(2 * symbols.len(), |scratch| {
                let (turned, ctx) = scratch.split_at_mut(symbols.len());
                turned.copy_from_slice(symbols);
                turn_all_back(turned, places, self.table.values.len());
                ctx.iter_mut().zip(places).for_each(|(c, p)| *c = self.map[usize::from(*p)]);
                rans::encode(self.simd, &self.freqs, turned, Some(ctx), out);
            }),
        });
    }
}
