//! Grows a context tree from counts: best split first, tables counted, while that saves bits and tables are left.

use crate::entropy::{
    Axes, COST_BITS, Limits, Tree, entropy, log2, normalise,
    tree::{Part, each, halves},
};
use rayon::iter::ParallelIterator;

impl Limits {
    /// Bits of a split, and of the leaf that it adds.
    fn node(self) -> u64 {
        4 + u64::from(self.bits)
    }
}

/// Counts of symbols: `alphabet` for each raw context.
#[derive(Clone, Debug)]
pub(crate) struct Counts {
    pub(crate) axes: Axes,
    pub(crate) alphabet: usize,
    pub(crate) counts: Vec<u32>,
}

/// Counts of the symbols of blocks, `alphabet` for each raw context, from symbols and raw contexts of each block.
pub(crate) fn count<'a>(
    axes: Axes,
    alphabet: usize,
    blocks: impl ParallelIterator<Item = (&'a [u8], &'a [u16])>,
) -> Vec<u32> {
    let none = || vec![0u32; axes.iter().product::<usize>() * alphabet];
    let counts = blocks.fold(none, |mut counts, (symbols, raw)| {
        for (&s, &c) in symbols.iter().zip(raw) {
            counts[usize::from(c) * alphabet + usize::from(s)] += 1;
        }
        counts
    });
    counts.reduce(none, |mut a, b| {
        add(&mut a, &b);
        a
    })
}

/// A leaf that may still be split.
struct Open {
    part: Part,
    cost: u64,
    /// Saving, axis, threshold.
    best: Option<(u64, usize, usize)>,
    /// The nodes from the root: 0 below, 1 from the threshold.
    path: Vec<usize>,
}

/// Cost in 1/1024 bits of symbols with these counts and of their table.
fn cost(counts: &[u32]) -> u64 {
    let total: u64 = counts.iter().map(|&c| u64::from(c)).sum();
    let whole = log2(total);
    let mut table = 16u64;
    let mut gap = true;
    for &c in counts {
        // A frequency f of 4096 takes 4 bits and those under its top one; a run of zeros 8.
        table += match c {
            0 if gap => 0,
            0 => 8,
            c => 4 + (12u64 << COST_BITS).saturating_sub(whole - log2(c.into())) / (1 << COST_BITS),
        };
        gap = c == 0;
    }
    entropy(counts) + (table << COST_BITS)
}

impl Counts {
    /// The tables of the leaves of a tree, by its map.
    pub(crate) fn frequencies(&self, map: &[u8], leaves: usize) -> Vec<[u16; 256]> {
        let mut sums = vec![[0u32; 256]; leaves];
        for (&leaf, row) in map.iter().zip(self.counts.chunks(self.alphabet)) {
            add(&mut sums[usize::from(leaf)], row);
        }
        sums.iter().map(normalise).collect()
    }

    fn row(&self, i: usize) -> &[u32] {
        &self.counts[i * self.alphabet..(i + 1) * self.alphabet]
    }

    /// Counts of the part, place by place along an axis.
    fn along(&self, part: &Part, axis: usize) -> Vec<u32> {
        let mut sums = vec![0u32; part[axis].len() * self.alphabet];
        each(self.axes, part, |place, i| {
            let at = (place[axis] - part[axis].start) * self.alphabet;
            add(&mut sums[at..at + self.alphabet], self.row(i));
        });
        sums
    }

    fn open(&self, limits: Limits, part: Part, path: Vec<usize>) -> Open {
        let mut total = vec![0u32; self.alphabet];
        for row in self.along(&part, 0).chunks(self.alphabet) {
            add(&mut total, row);
        }
        let whole = cost(&total);
        let mut best: Option<(u64, usize, usize)> = None;
        for axis in 0..3 {
            let sums = self.along(&part, axis);
            let (mut below, mut from) = (vec![0u32; self.alphabet], total.clone());
            for (i, row) in sums.chunks(self.alphabet).enumerate().take(part[axis].len() - 1) {
                if row.iter().all(|&c| c == 0) {
                    continue;
                }
                add(&mut below, row);
                from.iter_mut().zip(row).for_each(|(a, b)| *a -= b);
                if from.iter().all(|&c| c == 0) {
                    break;
                }
                let split = cost(&below) + cost(&from) + (limits.node() << COST_BITS);
                let saving = whole.saturating_sub(split);
                if saving > best.map_or(0, |(s, ..)| s) {
                    best = Some((saving, axis, part[axis].start + i + 1));
                }
            }
        }
        Open { part, cost: whole, best, path }
    }

    /// Grows a tree. Returns it and its cost in 1/1024 bits.
    pub(crate) fn grow(&self, limits: Limits) -> (Tree, u64) {
        let mut tree = Tree::Leaf;
        let mut open = vec![self.open(limits, self.axes.map(|n| 0..n), Vec::new())];
        while open.len() < limits.leaves {
            let saving = |i: &usize| (open[*i].best.map_or(0, |(s, ..)| s), usize::MAX - i);
            let Some(i) = (0..open.len()).max_by_key(saving) else {
                break;
            };
            let Some((_, axis, threshold)) = open[i].best else {
                break;
            };
            let leaf = open.swap_remove(i);
            let (low, high) = halves(&leaf.part, axis, threshold);
            let longer = |step| leaf.path.iter().copied().chain([step]).collect();
            open.push(self.open(limits, low, longer(0)));
            open.push(self.open(limits, high, longer(1)));
            let node = leaf.path.iter().fold(&mut tree, |node, &side| match node {
                Tree::Split(_, _, sides) => &mut sides[side],
                Tree::Leaf => node,
            });
            *node = Tree::Split(axis as u8, threshold as u8, Box::new([Tree::Leaf, Tree::Leaf]));
        }
        let nodes = (open.len() as u64 * limits.node()) << COST_BITS;
        (tree, nodes + open.iter().map(|o| o.cost).sum::<u64>())
    }
}

fn add(to: &mut [u32], from: &[u32]) {
    to.iter_mut().zip(from).for_each(|(a, b)| *a += b);
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::entropy::bits::Cursor;

    const AXES: Axes = [16, 8, 7];
    const LIMITS: Limits = Limits { leaves: 16, bits: 5 };

    fn counts(f: impl Fn(usize, usize, usize) -> usize) -> Counts {
        let axes = AXES;
        let mut c = Counts { axes, alphabet: 20, counts: vec![0; 16 * 8 * 7 * 20] };
        let all = axes.map(|n| 0..n);
        each(axes, &all, |[x, y, z], i| c.counts[i * 20 + f(x, y, z)] = 1000);
        c
    }

    #[test]
    fn trees_find_what_matters_and_come_back() {
        type Rule = fn(usize, usize, usize) -> usize;
        let rules: [(Rule, usize); 4] = [
            (|_, _, _| 3, 1),
            (|_, y, _| usize::from(y > 2), 2),
            (|x, y, z| usize::from(x > 4) * 2 + usize::from(z > 5) + usize::from(y > 0) * 4, 8),
            (|x, y, _| x + y % 4, LIMITS.leaves),
        ];
        for (rule, leaves) in rules {
            let (tree, _) = counts(rule).grow(LIMITS);
            let (map, n) = tree.map(AXES);
            assert_eq!((n, map.len()), (leaves, 896));
            let mut bytes = Vec::new();
            tree.put(LIMITS, &mut bytes);
            assert!(bytes.len() <= 17);
            let mut cursor = Cursor::new(&bytes);
            assert_eq!(Tree::get(&mut cursor, AXES, LIMITS), Ok(tree));
            assert!(cursor.done().is_ok());
        }
    }
}
