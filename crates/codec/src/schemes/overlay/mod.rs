//! Schemes "overlay": a lattice segment, and runs of elements that replace what it gives: copied from the base, the
//! base's times a factor, or literal.
//!
//! A quantiser may leave single rows of a tensor as they were: rows that no gradient reached, rows that bear no error.
//! Without this one such row would throw the whole segment off its lattice. Where weight decay acts on all rows, those
//! that no gradient reached are the base's times one factor.

mod decode;
mod encode;
mod scaled;

pub(crate) use decode::{Reader, inner};
pub(crate) use encode::encode;
pub use scaled::times;

use crate::{Scheme, entropy::bits::put_varint};
use std::ops::Range;

/// Where the elements of a run come from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Source {
    /// They are listed.
    Literal,
    /// They are the base's.
    Copied,
    /// They are the base's times the segment's factor.
    Scaled,
}

/// Elements of a segment that are not the lattice's.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Run {
    /// Of the segment's elements; never empty.
    elements: Range<usize>,
    source: Source,
}

impl Run {
    /// Appends the run, in a segment that has a factor or not; the one before it ends at element `end`.
    fn put(&self, end: usize, has_factor: bool, out: &mut Vec<u8>) {
        put_varint(out, (self.elements.start - end) as u64);
        put_varint(out, (self.elements.len() as u64) << source_bits(has_factor) | self.source as u64);
    }
}

/// Bits of a run's word that say where its elements come from.
const fn source_bits(has_factor: bool) -> u32 {
    if has_factor { 2 } else { 1 }
}

/// Whether segments of the scheme have a factor.
const fn has_factor(scheme: Scheme) -> bool {
    matches!(scheme, Scheme::OverlayScaled | Scheme::OverlayScaled2)
}

/// The overlay that needs `bases` bases, of which at least one with a factor.
const fn overlay(bases: u8, has_factor: bool) -> Scheme {
    match (bases, has_factor) {
        (0, _) => Scheme::Overlay,
        (1, false) => Scheme::OverlayDelta,
        (1, true) => Scheme::OverlayScaled,
        (_, false) => Scheme::OverlayDelta2,
        (_, true) => Scheme::OverlayScaled2,
    }
}
