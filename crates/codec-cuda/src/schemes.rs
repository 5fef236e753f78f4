//! Dispatch from schemes to the modules that code them.

use crate::device::session::{Session, View};
use crate::error::{DeviceError, Result};
use crate::job::{Decode, Encode};
use mdl_codec::engine_internals::{Choice, Plan};
use mdl_codec::quant::lattice::Hint;
use mdl_codec::{CodecError, CpuEngine, Dtype, Encoded, Relatives, Scheme};

/// An encoding and its scheme; none where the module passes the segment on to the host.
pub(crate) type Made = Vec<Option<(Scheme, Vec<u8>)>>;

fn with(scheme: Scheme, all: Vec<Option<Vec<u8>>>) -> Made {
    all.into_iter().map(|bytes| Some((scheme, bytes?))).collect()
}

/// Scheme "planes" by the plans given.
pub(crate) fn planes(session: &Session, jobs: &[(Encode<'_>, Plan)]) -> Result<Made> {
    Ok(with(Scheme::Planes, crate::planes::encode(session, jobs)?))
}

/// Scheme "delta".
pub(crate) fn delta(session: &Session, jobs: &[Encode<'_>]) -> Result<Made> {
    let made = crate::delta::encode(session, jobs)?;
    Ok(with(Scheme::Delta, made.into_iter().map(Some).collect()))
}

/// Scheme "sparse".
pub(crate) fn sparse(session: &Session, jobs: &[Encode<'_>]) -> Result<Made> {
    Ok(with(Scheme::Sparse, crate::sparse::encode(session, jobs)?))
}

/// The schemes of few values, from the samples given; none where the sample has more.
pub(crate) fn palette(session: &Session, jobs: &[(Encode<'_>, Vec<u8>)]) -> Result<Made> {
    crate::palette::encode(session, jobs)
}

/// The lattice's schemes; none where the values are not on it.
pub(crate) fn lattice(session: &Session, jobs: &[(Encode<'_>, &Hint)]) -> Result<Made> {
    crate::lattice::encode(session, jobs)
}

/// Decodes segments of one scheme, which is not stored or zstd.
pub(crate) fn decode(session: &Session, scheme: Scheme, jobs: &[Decode<'_>]) -> Result<()> {
    match scheme {
        Scheme::Palette | Scheme::PaletteDelta | Scheme::PaletteDelta2 => crate::palette::decode(session, jobs),
        Scheme::Lattice | Scheme::LatticeDelta | Scheme::LatticeDelta2 => crate::lattice::decode(session, jobs),
        Scheme::Planes => crate::planes::decode(session, jobs),
        Scheme::Delta => crate::delta::decode(session, jobs),
        Scheme::Sparse => crate::sparse::decode(session, jobs),
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
