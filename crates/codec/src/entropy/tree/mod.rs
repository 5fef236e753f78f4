//! Context trees: a decision tree over three axes says which raw contexts share a table.
//!
//! A tree costs a byte a node, where a list of a thousand contexts' tables would cost more than a small tensor.

mod grow;

use crate::{
    CodecError, Result,
    entropy::{BitReader, BitWriter, Cursor},
};
use std::ops::Range;

pub(crate) use grow::{Counts, count};

const BAD: CodecError = CodecError::Corrupt("bad tree of contexts");

/// Lengths of the axes. A raw context is `(first * axes[1] + second) * axes[2] + third`.
pub type Axes = [usize; 3];

/// How large a tree may grow.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Limits {
    /// Most leaves.
    pub(crate) leaves: usize,
    /// Bits of a threshold.
    pub(crate) bits: u32,
}

/// A leaf, or a split of an axis with the parts below and from a threshold.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Tree {
    Leaf,
    Split(u8, u8, Box<[Tree; 2]>),
}

/// A box of raw contexts.
type Part = [Range<usize>; 3];

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
    pub(crate) fn map(&self, axes: Axes) -> (Vec<u8>, usize) {
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

    /// Appends the nodes, root first, left before right: a bit 0 for a leaf; or 1, the axis in 2 bits, the threshold.
    pub(crate) fn put(&self, limits: Limits, out: &mut Vec<u8>) {
        let mut bits = BitWriter::with_capacity(32);
        let mut stack = vec![self];
        while let Some(node) = stack.pop() {
            match node {
                Tree::Leaf => bits.put(0, 1),
                Tree::Split(axis, threshold, sides) => {
                    bits.put(1 | u64::from(*axis) << 1 | u64::from(*threshold) << 3, 3 + limits.bits);
                    stack.extend([&sides[1], &sides[0]]);
                }
            }
        }
        out.extend_from_slice(&bits.finish());
    }

    /// Reads what [`put`](Self::put) wrote: not too many leaves, every threshold inside its part.
    pub(crate) fn get(cursor: &mut Cursor<'_>, axes: Axes, limits: Limits) -> Result<Tree> {
        let mut bits = BitReader::new(cursor.rest());
        let mut leaves = 1;
        let tree = node(&mut bits, axes.map(|n| 0..n), limits, &mut leaves)?;
        cursor.take(bits.bytes_used())?;
        Ok(tree)
    }
}

/// One node and what is under it: `leaves` bounds the depth.
fn node(bits: &mut BitReader<'_>, part: Part, limits: Limits, leaves: &mut usize) -> Result<Tree> {
    if bits.get(1) == 0 {
        return Ok(Tree::Leaf);
    }
    let (axis, threshold) = (bits.get(2) as usize, bits.get(limits.bits) as usize);
    *leaves += 1;
    match part.get(axis) {
        Some(r) if *leaves <= limits.leaves && r.start < threshold && threshold < r.end => {}
        _ => return Err(BAD),
    }
    let (low, high) = halves(&part, axis, threshold);
    let sides = [node(bits, low, limits, leaves)?, node(bits, high, limits, leaves)?];
    Ok(Tree::Split(axis as u8, threshold as u8, Box::new(sides)))
}

#[cfg(test)]
mod tests {
    use super::*;

    const LIMITS: Limits = Limits { leaves: 16, bits: 5 };

    #[test]
    fn broken_trees_are_refused() {
        // Every bit set: axis 3. Seventeen leaves. A threshold at the part's edge.
        for bytes in [vec![0xff; 40], vec![0b0000_1001; 40], vec![0b0000_0001, 0]] {
            assert_eq!(Tree::get(&mut Cursor::new(&bytes), [16, 8, 7], LIMITS), Err(BAD));
        }
        assert_eq!(Tree::get(&mut Cursor::new(&[]), [16, 8, 7], LIMITS), Err(CodecError::Corrupt("truncated")));
    }
}
