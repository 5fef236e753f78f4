//! What an engine elsewhere shares with the one here, so that every decision is made in one place: tables, plans, headers. Neighbours:
//! `mdl-codec-cuda` builds on it; the rooms it names own what is in them. It must not hold code of its own, nor be used by anybody
//! who is not an engine: it changes without notice.

pub use crate::rans::{DecTable, EncTable};
pub use crate::tables::normalise;

/// Lattices.
pub mod lattice {
    pub use crate::blocks::BLOCK_LOG;
    pub use crate::quant::lattice::activity::period;
    pub use crate::quant::lattice::decode::{Coded, Front};
    pub use crate::quant::lattice::encode::{Head, Plan, elements};
    pub use crate::quant::lattice::piece::Piece;
    pub use crate::quant::lattice::symbols::axes;
}
