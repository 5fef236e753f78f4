//! Context clustering: which base exponents (or, in a palette, indices of the table) share a frequency table.
//!
//! Neighbouring exponents are merged, cheapest merge first, until no merge saves anything and few enough are left for
//! their tables to stay in a cache.

use crate::{
    CodecError, Result,
    entropy::{COST_BITS, Counts, Cursor, entropy},
};

/// Most contexts: 16 decoding tables of 16 KiB.
pub(crate) const MAX: usize = 16;

/// Counts of symbols for each of 256 base exponents; only exponents that occur have a row.
#[derive(Clone, Debug)]
pub struct ByExponent {
    rows: Vec<Counts>,
    row_of: [u16; 256],
}

const NO_ROW: u16 = u16::MAX;

impl ByExponent {
    /// Nothing counted.
    #[allow(clippy::new_without_default, reason = "an empty count is no default")]
    pub fn new() -> Self {
        ByExponent { rows: Vec::new(), row_of: [NO_ROW; 256] }
    }

    /// Counts one symbol.
    #[inline(always)]
    pub(crate) fn add(&mut self, exponent: u8, symbol: u8) {
        self.row(exponent)[usize::from(symbol)] += 1;
    }

    #[inline(always)]
    fn row(&mut self, exponent: u8) -> &mut Counts {
        let at = &mut self.row_of[usize::from(exponent)];
        if *at == NO_ROW {
            *at = self.rows.len() as u16;
            self.rows.push([0; 256]);
        }
        &mut self.rows[usize::from(*at)]
    }

    /// Adds counts of one exponent.
    pub fn insert(&mut self, exponent: u8, counts: &Counts) {
        add(self.row(exponent), counts);
    }

    /// Adds all of `other`.
    pub(crate) fn merge(mut self, other: &ByExponent) -> Self {
        other.iter().for_each(|(e, from)| add(self.row(e), from));
        self
    }

    /// The same counts with every symbol mapped through `f`.
    pub(crate) fn map(&self, f: impl Fn(u8) -> u8) -> Self {
        let mut to = self.clone();
        for (from, to) in self.rows.iter().zip(&mut to.rows) {
            *to = [0; 256];
            for (s, &c) in from.iter().enumerate().filter(|(_, c)| **c > 0) {
                to[usize::from(f(s as u8))] += c;
            }
        }
        to
    }

    /// How often a symbol occurs over all rows.
    pub(crate) fn total(&self, symbol: u8) -> u64 {
        self.rows.iter().map(|r| u64::from(r[usize::from(symbol)])).sum()
    }

    /// The exponents that occur, rising, with their counts.
    fn iter(&self) -> impl Iterator<Item = (u8, &Counts)> {
        self.row_of.iter().enumerate().filter_map(|(e, &at)| Some((e as u8, self.rows.get(usize::from(at))?)))
    }
}

/// A run of exponents that share a table.
#[derive(Clone, Debug)]
pub(crate) struct Context {
    /// The first exponent; the run ends where the next one starts.
    pub(crate) first: u8,
    /// Counts of its symbols.
    pub(crate) counts: Counts,
    cost: u64,
}

fn add(a: &mut Counts, b: &Counts) {
    a.iter_mut().zip(b).for_each(|(a, b)| *a += b);
}

/// Cost of a context in 1/1024 bits: its symbols and its table.
fn cost(counts: &Counts) -> u64 {
    let distinct = counts.iter().filter(|&&c| c > 0).count() as u64;
    entropy(counts) + ((8 * distinct + 32) << COST_BITS)
}

fn join(a: &Context, b: &Context) -> Context {
    let mut counts = a.counts;
    add(&mut counts, &b.counts);
    Context { first: a.first, cost: cost(&counts), counts }
}

/// Merges the exponents into at most [`MAX`] contexts, the first of which starts at exponent 0. Returns them and their
/// cost in 1/1024 bits.
pub(crate) fn cluster(by: &ByExponent) -> (Vec<Context>, u64) {
    let mut list: Vec<Context> =
        by.iter().map(|(e, counts)| Context { first: e, counts: *counts, cost: cost(counts) }).collect();
    let mut joined: Vec<Context> = list.windows(2).map(|p| join(&p[0], &p[1])).collect();
    while list.len() > 1 {
        let loss = |i: usize| joined[i].cost as i64 - (list[i].cost + list[i + 1].cost) as i64;
        let Some(best) = (0..joined.len()).min_by_key(|&i| (loss(i), i)) else {
            break;
        };
        if loss(best) >= 0 && list.len() <= MAX {
            break;
        }
        list[best] = joined.remove(best);
        list.remove(best + 1);
        if best > 0 {
            joined[best - 1] = join(&list[best - 1], &list[best]);
        }
        if best < joined.len() {
            joined[best] = join(&list[best], &list[best + 1]);
        }
    }
    if let Some(c) = list.first_mut() {
        c.first = 0;
    }
    let total = list.iter().map(|c| c.cost).sum();
    (list, total)
}

/// Reads how many contexts there are and where each begins.
pub(crate) fn get_firsts(cursor: &mut Cursor<'_>) -> Result<Vec<u8>> {
    let count = usize::from(cursor.u8()?);
    if !(1..=MAX).contains(&count) {
        return Err(CodecError::Corrupt("bad contexts"));
    }
    let firsts = [&[0], cursor.take(count - 1)?].concat();
    if firsts.windows(2).any(|p| p[0] >= p[1]) {
        return Err(CodecError::Corrupt("contexts out of order"));
    }
    Ok(firsts)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn like_exponents_merge_and_unlike_ones_stay() {
        let mut by = ByExponent::new();
        for e in 0..200u32 {
            for i in 0..2000 {
                by.add(e as u8, if e < 100 { (i % 2) as u8 } else { 100 });
            }
        }
        let (list, _) = cluster(&by);
        assert_eq!(list.iter().map(|c| c.first).collect::<Vec<_>>(), [0, 100]);
        let mut by = ByExponent::new();
        for e in 0..200u32 {
            for _ in 0..2000 {
                by.add(e as u8, e as u8);
            }
        }
        assert_eq!(cluster(&by).0.len(), MAX);
        assert!(cluster(&ByExponent::new()).0.is_empty());
    }
}
