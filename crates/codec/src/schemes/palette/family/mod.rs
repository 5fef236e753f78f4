//! Scheme "palette delta 2": palette indices in the context of what parent and grandparent have there, looked up in the
//! child's own table.
//!
//! A table for each pair of places would not fit a cache, nor pay for itself: a tree over the parent's place, its last
//! move, and whether it is a level at all leaves at most 32. Numbers that are no level (Inshrinkerator protects up to 1
//! %) are coded as small differences to the parent's, which are no levels either as a rule.

mod decode;
mod encode;
pub(super) mod plan;

use crate::{
    entropy::{Axes, Limits},
    schemes::palette::{Nearest, Table},
};

pub use decode::Reader;
pub(super) use encode::Family;

/// How the tree of contexts may grow.
const TREES: Limits = Limits { leaves: 32, bits: 6 };
/// Most steps of the axis of places; tables of more values take several places to a step.
const PLACES: usize = 64;
/// Largest move that is told apart, in places.
const FAR: i32 = 3;
/// Whether the parent is a level, else whether the grandparent is.
const KINDS: usize = 3;
/// Bits under the top one in the class of a stranger's difference.
const CLASS_BITS: u32 = 1;

pub(super) fn axes(table: &Table) -> Axes {
    [table.values.len().min(PLACES), 2 * FAR as usize + 1, KINDS]
}

/// The parent's place, and the raw context of an element.
#[inline(always)]
fn look(near: &Nearest<'_>, axes: Axes, parent: u64, grandparent: u64) -> (u8, u16) {
    let values = &near.table.values;
    let (p, g) = (near.index_of(parent), near.index_of(grandparent));
    let known = |place: u8, v: u64| values.get(usize::from(place)) == Some(&v);
    let kind = if known(p, parent) {
        0
    } else if known(g, grandparent) {
        1
    } else {
        2
    };
    let step = if values.len() > PLACES { usize::from(p) * PLACES / values.len() } else { usize::from(p) };
    let moved = (i32::from(p) - i32::from(g)).clamp(-FAR, FAR) + FAR;
    (p, ((step * axes[1] + moved as usize) * KINDS + kind) as u16)
}
