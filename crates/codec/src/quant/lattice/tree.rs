//! Which raw contexts share a table: a decision tree over three axes (activity, place in the cell, last move). Neighbours: `encode`
//! counts and grows it, `decode` reads it. It must not know what a symbol means, and uses integers only.
//!
//! A tree costs a byte a node, where a list of 896 contexts' tables would cost more than a small tensor. Grown best split first,
//! tables counted, while that saves bits and tables are left.

use super::activity::{STEPS, STEPS_ALONE};
use super::known::{MOVES, PLACES};
use crate::CodecError;
use crate::bits::{BitReader, BitWriter, Cursor};
use crate::contexts::MAX;
use crate::log2::{COST_BITS, entropy, log2};
use std::ops::Range;

/// Bits of a node: leaf or not, axis, threshold.
const NODE_BITS: u64 = 9;
const BAD: CodecError = CodecError::Corrupt("bad tree of contexts");

/// Lengths of the axes. A raw context is `(activity * PLACES + place) * MOVES + move`.
pub(super) type Axes = [usize; 3];

/// The axes with and without a parent.
pub(super) fn axes(parent: bool) -> Axes {
    if parent {
        [STEPS, PLACES, MOVES]
    } else {
        [STEPS_ALONE, 1, 1]
    }
}

/// A leaf, or a split of an axis with the parts below and from a threshold.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Tree {
    Leaf,
    Split(u8, u8, Box<[Tree; 2]>),
}

/// A box of raw contexts.
type Part = [Range<usize>; 3];

/// Counts of symbols: `alphabet` for each raw context.
#[derive(Clone, Debug)]
pub(super) struct Counts {
    pub(super) axes: Axes,
    pub(super) alphabet: usize,
    pub(super) counts: Vec<u32>,
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

    fn open(&self, part: Part, path: Vec<usize>) -> Open {
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
                let split = cost(&below) + cost(&from) + (NODE_BITS << COST_BITS);
                let saving = whole.saturating_sub(split);
                if saving > best.map_or(0, |(s, ..)| s) {
                    best = Some((saving, axis, part[axis].start + i + 1));
                }
            }
        }
        Open {
            part,
            cost: whole,
            best,
            path,
        }
    }

    /// Grows a tree of at most 16 leaves. Returns it and its cost in 1/1024 bits.
    pub(super) fn grow(&self) -> (Tree, u64) {
        let mut tree = Tree::Leaf;
        let mut open = vec![self.open(self.axes.map(|n| 0..n), Vec::new())];
        while open.len() < MAX {
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
            open.push(self.open(low, longer(0)));
            open.push(self.open(high, longer(1)));
            let node = leaf.path.iter().fold(&mut tree, |node, &side| match node {
                Tree::Split(_, _, sides) => &mut sides[side],
                Tree::Leaf => node,
            });
            *node = Tree::Split(axis as u8, threshold as u8, Box::new([Tree::Leaf, Tree::Leaf]));
        }
        let nodes = (open.len() as u64 * NODE_BITS) << COST_BITS;
        (tree, nodes + open.iter().map(|o| o.cost).sum::<u64>())
    }
}

fn add(to: &mut [u32], from: &[u32]) {
    to.iter_mut().zip(from).for_each(|(a, b)| *a += b);
}

fn halves(part: &Part, axis: usize, threshold: usize) -> (Part, Part) {
    let (mut low, mut high) = (part.clone(), part.clone());
    low[axis].end = threshold;
    high[axis].start = threshold;
    (low, high)
}

fn each(axes: Axes, part: &Part, mut f: impl FnMut([usize; 3], usize)) {
    let [x, y, z] = part;
    for a in x.clone() {
        for b in y.clone() {
            for c in z.clone() {
                f([a, b, c], (a * axes[1] + b) * axes[2] + c);
            }
        }
    }
}

impl Tree {
    /// The leaf of every raw context, numbered from the left, and how many leaves there are.
    pub(super) fn map(&self, axes: Axes) -> (Vec<u8>, usize) {
        let mut map = vec![0u8; axes.iter().product()];
        let mut leaves = 0;
        let mut stack = vec![(self, axes.map(|n| 0..n))];
        while let Some((node, part)) = stack.pop() {
            match node {
                Tree::Leaf => {
                    each(axes, &part, |_, i| map[i] = leaves as u8);
                    leaves += 1;
                }
                Tree::Split(axis, threshold, sides) => {
                    let (low, high) = halves(&part, usize::from(*axis), usize::from(*threshold));
                    stack.push((&sides[1], high));
                    stack.push((&sides[0], low));
                }
            }
        }
        (map, leaves)
    }

    /// Appends the nodes, root first, left before right: a bit 0 for a leaf; or 1, the axis in 2 bits, the threshold in 5.
    pub(super) fn put(&self, out: &mut Vec<u8>) {
        let mut bits = BitWriter::with_capacity(32);
        let mut stack = vec![self];
        while let Some(node) = stack.pop() {
            match node {
                Tree::Leaf => bits.put(0, 1),
                Tree::Split(axis, threshold, sides) => {
                    bits.put(1 | u64::from(*axis) << 1 | u64::from(*threshold) << 3, 8);
                    stack.extend([&sides[1], &sides[0]]);
                }
            }
        }
        out.extend_from_slice(&bits.finish());
    }

    /// Reads what [`put`](Self::put) wrote: at most 16 leaves, every threshold inside its part.
    pub(super) fn get(cursor: &mut Cursor<'_>, axes: Axes) -> Result<Tree, CodecError> {
        let mut bits = BitReader::new(cursor.rest());
        let mut leaves = 1;
        let tree = node(&mut bits, axes.map(|n| 0..n), &mut leaves)?;
        cursor.take(bits.bytes_used())?;
        Ok(tree)
    }
}

/// One node and what is under it: `leaves` bounds the depth.
fn node(bits: &mut BitReader<'_>, part: Part, leaves: &mut usize) -> Result<Tree, CodecError> {
    if bits.get(1) == 0 {
        return Ok(Tree::Leaf);
    }
    let (axis, threshold) = (bits.get(2) as usize, bits.get(5) as usize);
    *leaves += 1;
    match part.get(axis) {
        Some(r) if *leaves <= MAX && r.start < threshold && threshold < r.end => {}
        _ => return Err(BAD),
    }
    let (low, high) = halves(&part, axis, threshold);
    let sides = [node(bits, low, leaves)?, node(bits, high, leaves)?];
    Ok(Tree::Split(axis as u8, threshold as u8, Box::new(sides)))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn counts(f: impl Fn(usize, usize, usize) -> usize) -> Counts {
        let axes = axes(true);
        let mut c = Counts {
            axes,
            alphabet: 20,
            counts: vec![0; 16 * 8 * 7 * 20],
        };
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
            (
                |x, y, z| usize::from(x > 4) * 2 + usize::from(z > 5) + usize::from(y > 0) * 4,
                8,
            ),
            (|x, y, _| x + y % 4, MAX),
        ];
        for (rule, leaves) in rules {
            let (tree, _) = counts(rule).grow();
            let (map, n) = tree.map(axes(true));
            assert_eq!((n, map.len()), (leaves, 896));
            let mut bytes = Vec::new();
            tree.put(&mut bytes);
            assert!(bytes.len() <= 17);
            let mut cursor = Cursor::new(&bytes);
            assert_eq!(Tree::get(&mut cursor, axes(true)), Ok(tree));
            assert!(cursor.done().is_ok());
        }
    }

    #[test]
    fn broken_trees_are_refused() {
        // Every bit set: axis 3. Seventeen leaves. A threshold at the part's edge.
        for bytes in [vec![0xff; 40], vec![0b0000_1001; 40], vec![0b0000_0001, 0]] {
            assert_eq!(Tree::get(&mut Cursor::new(&bytes), axes(true)), Err(BAD));
        }
        assert_eq!(
            Tree::get(&mut Cursor::new(&[]), axes(true)),
            Err(CodecError::Corrupt("truncated"))
        );
    }
}
