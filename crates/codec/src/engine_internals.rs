//! Internals of the CPU engine that the GPU engine shares, so that every decision is made in one place: tables, plans,
//! headers.

pub use crate::blocks::Grid;
pub use crate::coder::{Counts, PlaneDecoder, PlaneEncoder};
pub use crate::contexts::ByExponent;
pub use crate::cpu::check;
pub use crate::decide::{lattice_wins, pays, wants_without_grand, with_or_without_grand};
pub use crate::diff::{Numbers, number_size};
pub use crate::estimate::{Choice, choose_by, plan, sample_ranges, sampled, zstd_ranges};
pub use crate::float::{Cut, Shape};
pub use crate::low::GROUP;
pub use crate::palette::plan as palette;
pub use crate::planes::{Coding, Exceptions, Pieces, Plan, Reader, Window, reference, stride};
pub use crate::quant::deviation::deviation_of_parts;
pub use crate::quant::partition::class_borders;
pub use crate::quant::restore::{NO_BIN, NON_FINITE, PROTECT, words as restore_words};
pub use crate::quant::sketch::sketch_of_pairs;
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

/// Lattices.
pub mod lattice {
    pub use crate::blocks::BLOCK_LOG;
    pub use crate::quant::lattice::activity::period;
    pub use crate::quant::lattice::decode::{Coded, Front};
    pub use crate::quant::lattice::encode::{Head, Plan, elements};
    pub use crate::quant::lattice::piece::Piece;
    pub use crate::quant::lattice::symbols::axes;
}
