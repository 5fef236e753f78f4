//! What an engine elsewhere shares with the one here, so that every decision is made in one place: tables, plans, headers. Neighbours:
//! `mdl-codec-cuda` builds on it; the rooms it names own what is in them. It must not hold code of its own, nor be used by anybody
//! who is not an engine: it changes without notice.

pub use crate::blocks::Grid;
pub use crate::coder::{Counts, PlaneDecoder, PlaneEncoder};
pub use crate::estimate::plan;
pub use crate::float::{Cut, Shape};
pub use crate::low::GROUP;
pub use crate::planes::{Coding, Exceptions, Pieces, Plan, Reader, Window, number_size, reference, stride};
pub use crate::rans::{DecTable, EncTable};
pub use crate::tables::normalise;
