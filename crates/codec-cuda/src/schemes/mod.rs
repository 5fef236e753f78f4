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

use crate::{
    device::session::{Session, View},
    error::{DeviceError, Result},
    job::{Decode, Encode},
};
use mdl_codec::{
    CodecError, CpuEngine, Dtype, Encoded, Relatives, Scheme,
    engine_internals::{Choice, Plan},
    quant::lattice::Hint,
};

/// An encoding and its scheme; none where the module passes the segment on to the host.
pub(crate) type Made = Vec<Option<(Scheme, Vec<u8>)>>;

fn with(scheme: Scheme, all: Vec<Option<Vec<u8>>>) -> Made {
    all.into_iter().map(|bytes| Some((scheme, bytes?))).collect()
}

/// Scheme "planes" by the plans given.
pub(crate) fn planes(session: &Session, jobs: &[(Encode<'_>, Plan)]) -> Result<Made> {
    Ok(with(Scheme::Planes, crate::schemes::planes::encode(session, jobs)?))
}

/// Scheme "delta".
pub(crate) fn delta(session: &Session, jobs: &[Encode<'_>]) -> Result<Made> {
    let made = crate::schemes::delta::encode(session, jobs)?;
    Ok(with(Scheme::Delta, made.into_iter().map(Some).collect()))
}

/// Scheme "sparse".
pub(crate) fn sparse(session: &Session, jobs: &[Encode<'_>]) -> Result<Made> {
    Ok(with(Scheme::Sparse, crate::schemes::sparse::encode(session, jobs)?))
}

/// The schemes of few values, from the samples given; none where the sample has more.
pub(crate) fn palette(session: &Session, jobs: &[(Encode<'_>, Vec<u8>)]) -> Result<Made> {
    crate::schemes::palette::encode(session, jobs)
}

/// The lattice's schemes; none where the values are not on it.
pub(crate) fn lattice(session: &Session, jobs: &[(Encode<'_>, &Hint)]) -> Result<Made> {
    crate::schemes::lattice::encode(session, jobs)
}

/// Decodes segments of one scheme, which is not stored or zstd.
pub(crate) fn decode(session: &Session, scheme: Scheme, jobs: &[Decode<'_>]) -> Result<()> {
    match scheme {
        Scheme::Palette | Scheme::PaletteDelta | Scheme::PaletteDelta2 => {
            crate::schemes::palette::decode(session, jobs)
        }
        Scheme::Lattice | Scheme::LatticeDelta | Scheme::LatticeDelta2 => {
            crate::schemes::lattice::decode(session, jobs)
        }
        Scheme::Planes => crate::schemes::planes::decode(session, jobs),
        Scheme::Delta => crate::schemes::delta::decode(session, jobs),
        Scheme::Sparse => crate::schemes::sparse::decode(session, jobs),
        Scheme::Stored | Scheme::Zstd => Err(DeviceError::Unsupported("bytes that no kernel looks at")),
    }
}

/// Encodes on the host as the estimate chose.
pub(crate) fn on_host(
    cpu: &CpuEngine,
    dtype: Dtype,
    raw: &[u8],
    relatives: Relatives<'_>,
    choice: Choice,
) -> std::result::Result<Encoded, CodecError> {
    cpu.encode_chosen(choice, dtype, raw, relatives)
}

/// BLAKE3 in key derivation mode for `context`, of head and content.
pub(crate) fn hash(session: &Session, context: &str, list: &[(Vec<u8>, View<'_>)]) -> Result<Vec<[u8; 32]>> {
    crate::blake3::hash_all(session, context, list)
}
