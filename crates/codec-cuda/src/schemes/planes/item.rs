//! A segment under encoding: the addresses of its parts on the device.

use crate::{
    Buffer, View,
    layout::pair,
    schemes::planes::{ALIGN, cut_words},
};
use mdl_codec::engine_internals::{GROUP, Grid, PlanesPlan, stride};

/// A segment, and where its parts lie.
#[derive(Debug)]
pub(super) struct Item<'a> {
    pub raw: View<'a>,
    pub plan: PlanesPlan,
    pub size: usize,
    pub grid: Grid,
    /// Of the heads.
    pub symbols: View<'a>,
    pub fields: View<'a>,
    /// Of low bytes: a count for each group, or planes `pitch` apart.
    pub low: View<'a>,
    pub pitch: usize,
    /// Place of its first counts.
    pub counts: usize,
}

/// Lengths of an item's symbols, fields and low planes or counts; the latter are none where the bytes of the segment
/// are the plane.
pub(super) fn lengths(plan: PlanesPlan, size: usize, n: usize) -> [usize; 3] {
    let pitch = n.next_multiple_of(ALIGN);
    let low = match plan.low(size) {
        _ if plan.grouped(size) => n.div_ceil(GROUP),
        1 if size == 1 => 0,
        low => low * pitch,
    };
    let fields = plan.cut.map_or(0, |c| n.div_ceil(32) * 4 * c.field_bits() as usize);
    [plan.cut.map_or(0, |_| pitch), fields, low]
}

impl<'a> Item<'a> {
    /// How many planes it has.
    pub(super) fn planes(&self) -> usize {
        self.plan.plane_sizes(self.size, 0).len()
    }

    /// The symbols of a plane's block.
    pub(super) fn plane(&self, p: usize, block: usize) -> View<'a> {
        let range = self.grid.elements(block);
        let low = p - usize::from(self.plan.cut.is_some()).min(p);
        if p == 0 && self.plan.cut.is_some() {
            self.symbols.part(range)
        } else if self.plan.grouped(self.size) {
            self.low.part(range.start / GROUP..range.end.div_ceil(GROUP))
        } else if self.size == 1 {
            self.raw.part(range)
        } else {
            self.low.part(low * self.pitch + range.start..low * self.pitch + range.end)
        }
    }

    /// The bit planes of a block's fields.
    pub(super) fn fields(&self, block: usize) -> View<'a> {
        let bits = self.plan.cut.map_or(0, |c| 4 * c.field_bits() as usize);
        let range = self.grid.elements(block);
        self.fields.part(range.start / 32 * bits..range.end.div_ceil(32) * bits)
    }

    /// The words of `PlanesJob`.
    pub(super) fn words(&self, counts: &Buffer<'_>) -> [u64; 10] {
        let [cut, lo] = cut_words(self.plan.cut);
        let low = self.plan.low(self.size);
        let mode = usize::from(low > 0) + usize::from(low > 0 && !self.plan.grouped(self.size));
        let address = |v: View<'_>| if v.len() == 0 { 0 } else { v.address() };
        [
            self.raw.address(),
            address(self.symbols),
            address(self.fields),
            address(self.low),
            counts.address() + 1024 * self.counts as u64,
            self.pitch as u64,
            cut,
            lo,
            pair(self.grid.n, mode),
            pair(low, stride(self.plan, self.grid.n)),
        ]
    }
}
