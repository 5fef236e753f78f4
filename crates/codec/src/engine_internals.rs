//! Internals of the CPU engine that the GPU engine shares, so that every decision is made in one place: tables, plans,
//! headers. What the systems that mdl is compared with share is here, too.

pub use crate::{
    cpu::check,
    decide::{lattice_wins, pays, wants_without_grand, with_or_without_grand},
    entropy::{
        bits::{BitReader, BitWriter, Cursor, put_varint},
        blocks::Grid,
        coder::{Counts, PlaneDecoder, PlaneEncoder},
        contexts::ByExponent,
        rans::{DecTable, EncTable},
        tables::normalise,
    },
    estimate::{Choice, choose_by, plan, sample_ranges, sampled, zstd_ranges},
    quant::{
        deviation::deviation_of_parts,
        partition::class_borders,
        restore::{NO_BIN, NON_FINITE, PROTECT, words as restore_words},
    },
    schemes::{
        diff::{Numbers, number_size},
        float::{Cut, Shape},
        low::GROUP,
        palette::plan as palette,
        planes::{Coding, Exceptions, Pieces, PlanesPlan, Reader, Window, reference, stride},
    },
    simd::Simd,
};

/// Differences to a base.
pub mod delta {
    pub use crate::{
        entropy::blocks::split,
        schemes::delta::{DeltaPlan, Front},
    };
}

/// Few changes of a base.
pub mod sparse {
    pub use crate::schemes::sparse::{Changes, Reader, finish};
}

/// Lattices.
pub mod lattice {
    pub use crate::{
        entropy::blocks::{BLOCK_LOG, Part},
        quant::lattice::{
            activity::period,
            decode::Front,
            encode::{Head, LatticePlan, elements},
            piece::Piece,
            symbols::axes,
        },
    };
}
