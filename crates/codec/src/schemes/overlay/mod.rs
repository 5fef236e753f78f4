//! Schemes "overlay": a lattice segment, and runs of elements that replace what it gives, copied from the base or
//! literal.
//!
//! A quantiser may leave single rows of a tensor as they were: rows that no gradient reached, rows that bear no error.
//! Without this one such row would throw the whole segment off its lattice.

mod decode;
mod encode;

pub(crate) use decode::{Reader, inner};
pub(crate) use encode::encode;

use crate::{Scheme, entropy::bits::put_varint};
use std::ops::Range;

/// Elements of a segment that are not the lattice's.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Run {
    /// Of the segment's elements; never empty.
    elements: Range<usize>,
    /// Whether they are the base's; else they are literal.
    copied: bool,
}

impl Run {
    /// Appends the run; the one before it ends at element `end`.
    fn put(&self, end: usize, out: &mut Vec<u8>) {
        put_varint(out, (self.elements.start - end) as u64);
        put_varint(out, (self.elements.len() as u64) << 1 | u64::from(self.copied));
    }
}

/// The overlay that needs `bases` bases.
const fn overlay(bases: u8) -> Scheme {
    match bases {
        0 => Scheme::Overlay,
        1 => Scheme::OverlayDelta,
        _ => Scheme::OverlayDelta2,
    }
}
