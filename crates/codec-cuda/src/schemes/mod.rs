//! Dispatch from schemes to the modules that code them.

pub(crate) mod delta;
pub(crate) mod diff;
pub(crate) mod huffman;
pub(crate) mod lattice;
pub(crate) mod palette;
pub(crate) mod planes;
pub(crate) mod rans;
pub(crate) mod sparse;
pub(crate) mod tables;

use crate::{Decode, DeviceError, Result, Session};
use mdl_codec::Scheme;

/// Decodes segments of one scheme. Some are left to the host: bytes that no kernel looks at, what rows
/// replace, and moves, which take the host less than the way to a device and back.
pub(crate) fn decode(session: &Session, scheme: Scheme, jobs: &[Decode<'_>]) -> Result<()> {
    match scheme {
        Scheme::Palette | Scheme::PaletteDelta | Scheme::PaletteDelta2 => palette::decode(session, jobs),
        Scheme::Lattice | Scheme::LatticeDelta | Scheme::LatticeDelta2 => lattice::decode(session, jobs),
        Scheme::Planes => planes::decode(session, jobs),
        Scheme::Delta => delta::decode(session, jobs),
        Scheme::Sparse => sparse::decode(session, jobs),
        Scheme::Overlay
        | Scheme::OverlayDelta
        | Scheme::OverlayDelta2
        | Scheme::OverlayScaled
        | Scheme::OverlayScaled2 => Err(DeviceError::Unsupported("rows that lie over a lattice")),
        Scheme::LatticeMoves => Err(DeviceError::Unsupported("moves on a lattice")),
        Scheme::Stored | Scheme::Zstd => Err(DeviceError::Unsupported("bytes that no kernel looks at")),
    }
}
