//! Detects segments of few distinct values, and builds their table.

use crate::{
    entropy::{ByExponent, COST_BITS, contexts},
    schemes::{
        Numbers,
        palette::{MAX, Nearest, Table, count, distinct::distinct},
    },
};

/// Elements of the first look: more distinct values among them than a table and its exceptions explain end the matter.
const FIRST: usize = 1024;
/// One element in so many may be an exception (Inshrinkerator protects at most 1 % by each of two metrics).
const EXCEPTIONS: usize = 32;

/// Numbers of a sample from which on keys are looked up in tables, which take longer to make than few searches.
pub(super) const MANY: usize = 4096;

/// The table of the most frequent values of a sample, if the others are few, and if it has values that `fits` takes the
/// number of.
pub(super) fn table(numbers: Numbers, part: &[u8], fits: impl Fn(usize) -> bool) -> Option<Table> {
    if numbers.size == 1 || part.is_empty() {
        return None;
    }
    let n = part.len() / numbers.size;
    let spare = n / EXCEPTIONS;
    let most = |i: usize| MAX + if i < FIRST { spare.min((i + 1) / EXCEPTIONS) } else { spare };
    let mut ranked = distinct(numbers, part, most)?;
    // What was seen once among many values is an exception rather than a level, unless the whole sample is small.
    let once = if ranked.len() > 16 && n > FIRST { 1 } else { 0 };
    if !fits(ranked.iter().filter(|(_, c)| *c > once).count().min(MAX)) {
        return None;
    }
    ranked.sort_by_key(|&(v, c)| (std::cmp::Reverse(c), v));
    let rest: u64 = ranked.iter().skip(MAX).map(|&(_, c)| u64::from(c)).sum();
    if rest as usize * EXCEPTIONS > n {
        return None;
    }
    let kept = ranked.iter().filter(|(_, c)| *c > once).map(|&(v, _)| v);
    let table = Table::new(numbers, kept.take(MAX).collect());
    (!table.values.is_empty()).then_some(table)
}

/// Cost of a sample in 1/1024 bits: what grows with the elements, and what does not. Nothing where there is no palette,
/// or where what does not grow reaches `limit`.
pub(crate) fn cost(numbers: Numbers, part: &[u8], base: Option<&[u8]>, limit: u64) -> Option<(u64, u64)> {
    let fixed = |values: usize| ((values * numbers.size + 160) as u64 * 8) << COST_BITS;
    let table = table(numbers, part, |values| fixed(values) < limit)?;
    let many = part.len() / numbers.size >= MANY;
    let by = count(&if many { Nearest::new(&table) } else { Nearest::by_search(&table) }, part, base);
    let exceptions = by.total(table.exception());
    let (_, coded) = contexts::cluster(&by);
    let raw = (exceptions * numbers.size as u64 * 8) << COST_BITS;
    Some((coded + raw, fixed(table.values.len())))
}

/// Counts of the symbols by context.
fn count(near: &Nearest<'_>, part: &[u8], base: Option<&[u8]>) -> ByExponent {
    let n = part.len() / near.table.numbers.size;
    let mut symbols = vec![0; n];
    near.symbols(part, &mut symbols);
    let Some(base) = base else {
        return count::alone(&symbols);
    };
    let mut places = vec![0; n];
    near.places(base, &mut places);
    count::joint(&symbols, &places, near.table.values.len())
}
