//! What an engine elsewhere shares with the one here, so that every decision is made in one place: tables, plans, headers. Neighbours:
//! `mdl-codec-cuda` builds on it; the rooms it names own what is in them. It must not hold code of its own, nor be used by anybody
//! who is not an engine: it changes without notice.

pub use crate::blocks::Grid;
pub use crate::contexts::ByExponent;
pub use crate::diff::Numbers;
pub use crate::rans::{DecTable, EncTable};
pub use crate::simd::Simd;
pub use crate::tables::normalise;

/// Differences to a base.
pub mod delta {
    pub use crate::delta::{Front, Plan, split};
}

/// Few changes of a base.
pub mod sparse {
    pub use crate::sparse::{Changes, Reader, finish};
}
