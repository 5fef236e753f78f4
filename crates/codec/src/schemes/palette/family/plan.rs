//! The plan of a segment with two bases, made from its symbol counts: tree of contexts, tables, lanes, header.

use crate::{
    Scheme,
    entropy::{COST_BITS, Counts as Histogram, Grid, Tree, entropy, lanes, normalise, tables, tree::Counts},
    schemes::palette::{
        Table,
        family::{TREES, axes},
        plan::Head,
    },
};

/// How a segment is coded against two bases.
#[derive(Debug)]
pub struct FamilyPlan {
    counts: Counts,
    strangers: Histogram,
    tree: Tree,
    cost: u64,
}

impl FamilyPlan {
    /// By counts of symbols, a row of one more than there are values for each raw context; of the strangers' symbols;
    /// and by the bytes of their raw bits over all blocks.
    pub fn of_counts(table: &Table, counts: Vec<u32>, strangers: [u32; 256], low: usize) -> FamilyPlan {
        let counts = Counts { axes: axes(table), alphabet: table.values.len() + 1, counts };
        let (tree, cost) = counts.grow(TREES);
        let distinct = strangers.iter().filter(|&&c| c > 0).count();
        FamilyPlan {
            counts,
            tree,
            cost: cost + entropy(&strangers) + ((8 * (low + distinct) as u64) << COST_BITS),
            strangers,
        }
    }

    /// In 1/1024 bits.
    pub(in super::super) fn cost(&self) -> u64 {
        self.cost
    }

    /// The header of a segment of `n` numbers whose strangers have `zero` low bytes of zeros.
    pub fn head(&self, table: &Table, n: usize, zero: u8) -> Head {
        let grid = Grid::new(n);
        let (map, leaves) = self.tree.map(self.counts.axes);
        let mut freqs = self.counts.frequencies(&map, leaves);
        if self.strangers.iter().any(|&c| c > 0) {
            freqs.push(normalise(&self.strangers));
        }
        let lanes = lanes::lanes_for((self.cost >> (COST_BITS + 3)) / grid.blocks().max(1) as u64);
        let mut bytes = vec![Scheme::PaletteDelta2 as u8, grid.log, lanes];
        table.put(&mut bytes);
        bytes.push(zero);
        self.tree.put(TREES, &mut bytes);
        freqs.iter().for_each(|f| tables::put(&mut bytes, f, true));
        Head { scheme: Scheme::PaletteDelta2, bytes, freqs, map, contexts: leaves as u8, lanes }
    }
}
