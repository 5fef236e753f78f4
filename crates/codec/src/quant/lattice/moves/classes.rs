//! Classes of groups: groups of about as many moves share their tables where that is cheaper than tables of their own.

use super::CLASSES_MAX;
use crate::entropy::{COST_BITS, entropy};

/// The most moves of a group in each bin; bin 0 is a group without any.
const BINS: [u8; CLASSES_MAX + 1] = [0, 1, 2, 4, 6, 9, 13, 18, 24, 32, 42, 54, 68, 84, 104, 128];

/// Bits that a class must save beside its tables' own: building them takes as long as decoding a few thousand numbers.
const TIME: u64 = 8 * 64;

/// What is counted of the groups of a bin, or of a class.
#[derive(Clone, Debug)]
pub(super) struct Counted {
    pub(super) groups: u32,
    pub(super) masks: [u32; 256],
    pub(super) symbols: [u32; 256],
}

/// Of every bin.
pub(super) type Counts = Vec<Counted>;

/// The bin of a group of `moves` moves.
pub(super) fn bin(moves: u32) -> u8 {
    BINS.iter().position(|&most| moves <= u32::from(most)).unwrap_or(CLASSES_MAX) as u8
}

/// Nothing counted yet.
pub(super) fn none() -> Counts {
    vec![Counted { groups: 0, masks: [0; 256], symbols: [0; 256] }; BINS.len()]
}

/// The class of each bin, and what is counted of each class, of class 0 first.
#[derive(Debug)]
pub(super) struct Classes {
    pub(super) of_bin: [u8; BINS.len()],
    pub(super) counts: Counts,
}

impl Counted {
    pub(super) fn add(&mut self, more: &Counted) {
        self.groups += more.groups;
        let pairs = self.masks.iter_mut().zip(&more.masks).chain(self.symbols.iter_mut().zip(&more.symbols));
        pairs.for_each(|(to, from)| *to += from);
    }

    /// What masks, symbols and their tables take, in 1/1024 bits.
    fn cost(&self) -> u64 {
        let distinct = |counts: &[u32; 256]| counts.iter().filter(|&&c| c > 0).count() as u64;
        let tables = 12 * (distinct(&self.masks) + distinct(&self.symbols)) + 32 + TIME;
        entropy(&self.masks) + entropy(&self.symbols) + (tables << COST_BITS)
    }
}

impl Classes {
    /// Neighbours are merged, best first, while that saves anything. Integers decide.
    pub(super) fn from_bins(bins: &[Counted]) -> Classes {
        let (still, rest) = bins.split_first().map_or((0, bins), |(first, rest)| (first.groups, rest));
        // Where each class ends, among the bins; what it has, and what that costs.
        let mut classes: Vec<(usize, Counted, u64)> =
            rest.iter().enumerate().filter(|(_, b)| b.groups > 0).map(|(i, b)| (i + 1, b.clone(), b.cost())).collect();
        // The classes themselves are coded, too.
        let named = |classes: &[(usize, Counted, u64)], left_out: usize| {
            let mut counts = vec![still];
            for (i, c) in classes.iter().enumerate() {
                match counts.last_mut() {
                    Some(last) if i == left_out + 1 => *last += c.1.groups,
                    _ => counts.push(c.1.groups),
                }
            }
            entropy(&counts)
        };
        while classes.len() > 1 {
            let now = named(&classes, usize::MAX - 1);
            let merged = |i: usize| {
                let mut both = classes[i].1.clone();
                both.add(&classes[i + 1].1);
                let cost = both.cost();
                (cost + named(&classes, i), i, both, cost)
            };
            let saved = |i: usize, after: u64| (classes[i].2 + classes[i + 1].2 + now).checked_sub(after);
            let best = (0..classes.len() - 1)
                .map(merged)
                .filter_map(|(after, i, both, cost)| saved(i, after).map(|s| (s, i, both, cost)))
                // The first of equals.
                .reduce(|a, b| if b.0 > a.0 { b } else { a });
            let Some((_, i, both, cost)) = best else { break };
            let end = classes[i + 1].0;
            classes[i] = (end, both, cost);
            classes.remove(i + 1);
        }
        let mut of_bin = [0; BINS.len()];
        let mut from = 1;
        for (c, (end, ..)) in classes.iter().enumerate() {
            of_bin[from..=*end].fill(c as u8 + 1);
            from = end + 1;
        }
        let first = Counted { groups: still, masks: [0; 256], symbols: [0; 256] };
        let counts = std::iter::once(first).chain(classes.into_iter().map(|c| c.1)).collect();
        Classes { of_bin, counts }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bins_cover_all_groups_and_like_groups_share_a_class() {
        assert_eq!([0, 1, 2, 3, 4, 5, 127, 128].map(bin), [0, 1, 2, 3, 3, 4, 15, 15]);
        let mut bins = none();
        bins[0].groups = 7;
        for (i, groups) in [(3, 100u32), (4, 90), (14, 1000)] {
            bins[i].groups = groups;
            // Sparse groups of single steps; dense ones of many steps.
            let dense = i > 10;
            for m in 0..16 {
                bins[i].masks[m] = if dense { 2 * groups } else { (groups * 32) >> (4 * (m as u32).count_ones()) };
            }
            for s in 1..15 {
                bins[i].symbols[s] = if dense { 8 * groups } else { groups * 3 * u32::from(s < 3) };
            }
        }
        let classes = Classes::from_bins(&bins);
        assert_eq!(classes.of_bin[3..15], [1, 1, 2, 2, 2, 2, 2, 2, 2, 2, 2, 2]);
        assert_eq!(classes.counts.iter().map(|c| c.groups).collect::<Vec<_>>(), [7, 190, 1000]);
    }
}
