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

/// Decodes segments of one scheme, which is not stored or zstd.
pub(crate) fn decode(session: &Session, scheme: Scheme, jobs: &[Decode<'_>]) -> Result<()> {
    match scheme {
        Scheme::Palette | Scheme::PaletteDelta | Scheme::PaletteDelta2 => palette::decode(session, jobs),
        Scheme::Lattice | Scheme::LatticeDelta | Scheme::LatticeDelta2 => lattice::decode(session, jobs),
        Scheme::Planes => planes::decode(session, jobs),
        Scheme::Delta => delta::decode(session, jobs),
        Scheme::Sparse => sparse::decode(session, jobs),
        Scheme::Stored | Scheme::Zstd => Err(DeviceError::Unsupported("bytes that no kernel looks at")),
    }
}
