//! The largest elements of a change, as TIES keeps them: counted, not sorted, so that little memory is needed.

use crate::{
    Tensors,
    blocks::{Block, ELEMENTS, map},
};
use rayon::prelude::*;

/// Bits that one pass over the tensor finds out of the threshold.
const DIGIT: u32 = 13;

/// Which elements of one version's change are kept: all above a magnitude, and the first of those that have it.
pub(crate) struct Kept {
    threshold: u64,
    /// For each block, how many elements of exactly that magnitude are kept from there on.
    ties: Vec<usize>,
}

/// The magnitude as an integer that orders as it does. NaN is the largest.
fn key(change: f64) -> u64 {
    if change.is_nan() { u64::MAX >> 1 } else { change.abs().to_bits() }
}

impl Kept {
    /// For each version, the `density * n` elements (rounded down, at least one) whose change is largest, the first of
    /// equal ones first.
    pub(crate) fn each(tensors: &Tensors<'_>, density: f64) -> Vec<Kept> {
        let elements = tensors.elements();
        let wanted = ((density * elements as f64) as usize).clamp(1.min(elements), elements);
        (0..tensors.versions.len()).map(|version| Kept::largest(tensors, version, wanted)).collect()
    }

    fn largest(tensors: &Tensors<'_>, version: usize, wanted: usize) -> Kept {
        // One version at a time: the other ones need not be read.
        let versions = &tensors.versions[version..=version];
        let tensors = &Tensors { versions, ..*tensors };
        let (mut prefix, mut left) = (0u64, wanted);
        let mut shift = 63;
        while shift > 0 {
            let digit_shift = shift.max(DIGIT) - DIGIT;
            let counts = histogram(tensors, prefix, shift, digit_shift);
            let mut digit = counts.len() - 1;
            while digit > 0 && counts[digit] < left {
                left -= counts[digit];
                digit -= 1;
            }
            prefix = prefix << (shift - digit_shift) | digit as u64;
            shift = digit_shift;
        }
        let threshold = prefix;
        let equal = map(tensors, |block| keys(block).filter(|k| *k == threshold).count());
        let ties = equal.into_iter().scan(left, |left, count| {
            let here = *left;
            *left = left.saturating_sub(count);
            Some(here)
        });
        Kept { threshold, ties: ties.collect() }
    }

    /// How many elements of the threshold's magnitude are kept from this block's first element on.
    pub(crate) fn ties_left(&self, at: usize) -> usize {
        self.ties[at / ELEMENTS]
    }

    /// Whether the block's next element is kept.
    pub(crate) fn keeps(&self, change: f64, ties: &mut usize) -> bool {
        let key = key(change);
        if key != self.threshold {
            return key > self.threshold;
        }
        let is_kept = *ties > 0;
        *ties -= usize::from(is_kept);
        is_kept
    }
}

fn keys(block: &Block) -> impl Iterator<Item = u64> + '_ {
    (0..block.base.len()).map(|i| key(block.change(0, i)))
}

/// How many magnitudes that begin with `prefix` (all bits from `shift` on) have each digit next.
fn histogram(tensors: &Tensors<'_>, prefix: u64, shift: u32, digit_shift: u32) -> Vec<usize> {
    let digits = 1u64 << (shift - digit_shift);
    let count = |mut counts: Vec<usize>, number: usize| {
        for key in keys(&Block::read(tensors, number)).filter(|key| key >> shift == prefix) {
            counts[(key >> digit_shift & (digits - 1)) as usize] += 1;
        }
        counts
    };
    let add = |mut sums: Vec<usize>, counts: Vec<usize>| {
        sums.iter_mut().zip(counts).for_each(|(sum, count)| *sum += count);
        sums
    };
    let none = || vec![0; digits as usize];
    // Integers: the order of the threads does not show.
    (0..tensors.elements().div_ceil(ELEMENTS)).into_par_iter().fold(none, count).reduce(none, add)
}
