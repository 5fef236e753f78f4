//! Context clustering: which base exponents (or, in a palette, indices of the table) share a frequency table.
//!
//! Neighbouring exponents are merged, cheapest merge first, until no merge saves anything and few enough are left for
//! their tables to stay in a cache.

use crate::{
    CodecError, Result,
    entropy::{COST_BITS, Counts, Cursor, log2, weighted},
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
}

fn add(a: &mut Counts, b: &Counts) {
    a.iter_mut().zip(b).for_each(|(a, b)| *a += b);
}

/// Which symbols occur, a bit for each: rows of small tensors have few, and only those are looked at.
type Present = [u64; 4];

fn present(counts: &Counts) -> Present {
    let mut bits = [0; 4];
    for (i, eight) in counts.as_chunks::<8>().0.iter().enumerate() {
        if eight.iter().fold(0, |all, &c| all | c) > 0 {
            let some = eight.iter().enumerate().fold(0, |bits, (j, &c)| bits | u64::from(c > 0) << j);
            bits[i / 8] |= some << (i % 8 * 8);
        }
    }
    bits
}

fn each(present: &Present, mut f: impl FnMut(usize)) {
    for (i, &word) in present.iter().enumerate() {
        let mut left = word;
        while left != 0 {
            f(i * 64 + left.trailing_zeros() as usize);
            left &= left - 1;
        }
    }
}

/// The exponents that occur as runs of one, rising.
pub(crate) fn runs(by: &ByExponent) -> Vec<Run> {
    by.iter().map(|(e, counts)| Run::new(e, *counts, present(counts))).collect()
}

/// A run of exponents while runs are merged.
#[derive(Clone)]
pub(crate) struct Run {
    first: u8,
    counts: Counts,
    present: Present,
    total: u64,
    cost: u64,
}

impl Run {
    fn new(first: u8, counts: Counts, present: Present) -> Run {
        let mut total = 0;
        each(&present, |s| total += u64::from(counts[s]));
        let cost = cost(&present, total, |s| counts[s]);
        Run { first, counts, present, total, cost }
    }

    /// The same counts with every symbol replaced.
    pub(crate) fn replaced(&self, by: impl Fn(u8) -> u8) -> Run {
        let (mut counts, mut present) = ([0; 256], [0; 4]);
        each(&self.present, |s| {
            let to = usize::from(by(s as u8));
            counts[to] += self.counts[s];
            present[to / 64] |= 1 << (to % 64);
        });
        Run::new(self.first, counts, present)
    }

    /// Cost of this run and the next one as one.
    fn joined_cost(&self, next: &Run) -> u64 {
        let either = std::array::from_fn(|i| self.present[i] | next.present[i]);
        cost(&either, self.total + next.total, |s| self.counts[s] + next.counts[s])
    }

    fn join(&mut self, next: &Run, cost: u64) {
        each(&next.present, |s| self.counts[s] += next.counts[s]);
        self.present.iter_mut().zip(next.present).for_each(|(a, b)| *a |= b);
        self.total += next.total;
        self.cost = cost;
    }
}

/// Cost of a context in 1/1024 bits: its symbols, as [`entropy`](crate::entropy::entropy) has it, and its table.
fn cost(present: &Present, total: u64, count: impl Fn(usize) -> u32) -> u64 {
    let (mut sum, mut distinct) = (0, 0);
    each(present, |s| {
        sum += weighted(count(s));
        distinct += 1;
    });
    (total * log2(total)).saturating_sub(sum) + ((8 * distinct + 32) << COST_BITS)
}

/// [`merge`] of the exponents that occur.
pub(crate) fn cluster(by: &ByExponent) -> (Vec<Context>, u64) {
    merge(runs(by))
}

/// Merges runs into at most [`MAX`] contexts, the first of which starts at exponent 0. Returns them and their cost in
/// 1/1024 bits.
pub(crate) fn merge(mut runs: Vec<Run>) -> (Vec<Context>, u64) {
    // What is left of them, in order, and what merging each with the next one would cost.
    let mut list: Vec<usize> = (0..runs.len()).collect();
    let mut joined: Vec<u64> = runs.windows(2).map(|p| p[0].joined_cost(&p[1])).collect();
    while list.len() > 1 {
        let loss = |i: usize| joined[i] as i64 - (runs[list[i]].cost + runs[list[i + 1]].cost) as i64;
        let Some((least, best)) = (0..joined.len()).map(|i| (loss(i), i)).min() else {
            break;
        };
        if least >= 0 && list.len() <= MAX {
            break;
        }
        let cost = joined.remove(best);
        let gone = list.remove(best + 1);
        let (before, after) = runs.split_at_mut(gone);
        before[list[best]].join(&after[0], cost);
        if best > 0 {
            joined[best - 1] = runs[list[best - 1]].joined_cost(&runs[list[best]]);
        }
        if best < joined.len() {
            joined[best] = runs[list[best]].joined_cost(&runs[list[best + 1]]);
        }
    }
    let total = list.iter().map(|&i| runs[i].cost).sum();
    let context = |(place, &i): (usize, &usize)| Context {
        first: if place == 0 { 0 } else { runs[i].first },
        counts: runs[i].counts,
    };
    (list.iter().enumerate().map(context).collect(), total)
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

    #[test]
    fn costs_are_those_of_all_symbols() {
        let counts: Counts = std::array::from_fn(|s| if s % 7 == 3 { (s * s) as u32 } else { 0 });
        let other: Counts = std::array::from_fn(|s| u32::from(s % 5 == 0 && s > 60));
        let right = |c: &Counts| {
            let distinct = c.iter().filter(|&&c| c > 0).count() as u64;
            crate::entropy::entropy(c) + ((8 * distinct + 32) << COST_BITS)
        };
        let (mut run, next) = (Run::new(0, counts, present(&counts)), Run::new(1, other, present(&other)));
        assert_eq!((run.cost, next.cost), (right(&counts), right(&other)));
        let mut both = counts;
        add(&mut both, &other);
        let cost = run.joined_cost(&next);
        run.join(&next, cost);
        assert_eq!((run.counts, run.cost, run.present), (both, right(&both), present(&both)));
    }
}
