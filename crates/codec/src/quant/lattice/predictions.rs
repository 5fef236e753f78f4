//! Prediction and coding context of elements from the parent and the grandparent.
//!
//! The prediction is the level of the cell that the parent's value falls into. Its place inside that cell and its last
//! move (parent minus grandparent) are signed; everything is mirrored so that the first of them that says anything is
//! positive.

use crate::{
    quant::lattice::{CHUNK, Cells, LIMIT, Lattice, place, round, widen},
    simd::Simd,
};

/// Steps of |place in the cell|, 0 to 1/2.
pub(super) const PLACES: usize = 8;
/// Steps of the last move, mirrored.
pub(super) const MOVES: usize = 7;
const STILL: i32 = MOVES as i32 / 2;

/// Up to [`CHUNK`] elements as their parents see them.
pub(super) struct Predictions {
    pub(super) cells: Cells,
    /// Predicted level: 0 without a parent.
    pub(super) guess: [i32; CHUNK],
    /// `place * MOVES + move`; 0 without a parent.
    pub(super) class: [u8; CHUNK],
    /// -1 where differences are mirrored, else 0.
    pub(super) mirror: [i32; CHUNK],
    parent: [f32; CHUNK],
    grandparent: [f32; CHUNK],
}

impl Predictions {
    pub(super) fn new(simd: Simd) -> Box<Self> {
        Box::new(Predictions {
            cells: Cells::new(simd),
            guess: [0; CHUNK],
            class: [0; CHUNK],
            mirror: [0; CHUNK],
            parent: [0.0; CHUNK],
            grandparent: [0.0; CHUNK],
        })
    }

    /// Looks at the `n` elements from `start` on; `parent` and `grandparent` are theirs. All calls on one `Predictions`
    /// have the same of them.
    #[inline(always)]
    pub(super) fn look(
        &mut self,
        of: &Lattice,
        start: usize,
        n: usize,
        parent: Option<&[u8]>,
        grandparent: Option<&[u8]>,
    ) {
        of.cells(start, n, &mut self.cells);
        let Some(parent) = parent else {
            return;
        };
        widen(of.dtype, parent, &mut self.parent);
        match grandparent {
            Some(g) => widen(of.dtype, g, &mut self.grandparent),
            None => self.grandparent[..n].copy_from_slice(&self.parent[..n]),
        }
        let (d, o) = (&self.cells.d[..n], &self.cells.o[..n]);
        let (p, g) = (&self.parent[..n], &self.grandparent[..n]);
        let (guess, class, mirror) = (&mut self.guess[..n], &mut self.class[..n], &mut self.mirror[..n]);
        for i in 0..n {
            let x = place(p[i], d[i], o[i]);
            // NaN is not below the limit either. A parent outside says nothing.
            let x = if x.abs() < LIMIT - 1.0 { x } else { 0.0 };
            let (a, nearest) = round(x);
            let inside = x - nearest;
            let at = round(inside.abs() * (2 * PLACES - 2) as f32).0;
            let m = (p[i] - g[i]) / d[i];
            let far = m.abs();
            let size = i32::from(far >= 0.0625) + i32::from(far >= 0.25) + i32::from(far >= 1.0);
            let flip = (at > 0) & (inside < 0.0) | (at == 0) & (size > 0) & (m < 0.0);
            // Mirrored or not, the move keeps its sign relative to the place.
            let towards = if flip == (m < 0.0) { size } else { -size };
            guess[i] = a;
            class[i] = (at * MOVES as i32 + STILL + towards) as u8;
            mirror[i] = -i32::from(flip);
        }
    }
}

/// `e`, mirrored where `mirror` is -1.
#[inline(always)]
pub(super) fn mirrored(e: i32, mirror: i32) -> i32 {
    (e ^ mirror) - mirror
}
