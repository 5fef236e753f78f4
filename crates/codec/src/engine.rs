//! The `Engine` trait: what every compression engine (CPU here, CUDA elsewhere) offers to `mdl-repo`. Neighbours: the
//! coders of this crate. It must not know about files, objects, packs or threads of its callers.

use crate::{Dtype, error::CodecError};
use std::ops::Range;

/// Longest segment an engine is asked to encode, in bytes of decoded data (8 MiB). A longer tensor is cut into
/// segments of exactly this length and a shorter last one, so that memory and range reads stay bounded.
pub const SEGMENT_BYTES: usize = 8 << 20;

/// How a segment came to be stored; the first byte of its encoding (docs/format.md, "Segments").
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
#[repr(u8)]
pub enum Scheme {
    /// The bytes as they are.
    Stored = 0,
    /// zstd over the bytes.
    Zstd = 1,
    /// Float planes: entropy-coded exponents (NeuZip section 2.2, generalised), the rest coded where it pays.
    Planes = 2,
    /// Monotone-integer difference to the base, (sign, msb) coded in the context of the base's exponent.
    Delta = 3,
    /// Difference to a base that is nearly equal: positions and differences of the changed elements.
    Sparse = 4,
    /// Few distinct values: a table and coded indices (eDKM; a quantiser's snapshot).
    Palette = 5,
    /// The same, coded in the context of where the base's value falls in the table (a quantiser's delta).
    PaletteDelta = 6,
}

impl Scheme {
    /// Whether decoding needs the base segment.
    pub const fn needs_base(self) -> bool {
        matches!(self, Scheme::Delta | Scheme::Sparse | Scheme::PaletteDelta)
    }

    /// Lower-case name for listings.
    pub const fn name(self) -> &'static str {
        match self {
            Scheme::Stored => "stored",
            Scheme::Zstd => "zstd",
            Scheme::Planes => "planes",
            Scheme::Delta => "delta",
            Scheme::Sparse => "sparse",
            Scheme::Palette => "palette",
            Scheme::PaletteDelta => "palette-delta",
        }
    }
}

/// An encoded segment.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Encoded {
    /// Self-describing bytes (scheme byte first).
    pub bytes: Vec<u8>,
    /// The scheme chosen; `scheme.needs_base()` says whether the base is needed to decode.
    pub scheme: Scheme,
}

/// A lossless compression engine. Output is a pure function of the input: every engine gives identical bytes.
pub trait Engine: Send + Sync + std::fmt::Debug {
    /// Name for `mdl doctor` and logs, such as `cpu`.
    fn name(&self) -> &str;

    /// Encodes one segment: `raw` holds little-endian elements of `dtype`, at most [`SEGMENT_BYTES`] long and a whole
    /// number of elements; `base`, where given, is the decoded segment at the same place of the parent's tensor and
    /// has the same length. Picks the smallest scheme by a cheap estimate; never larger than stored plus one byte.
    ///
    /// # Errors
    /// Lengths that break the rules above.
    fn encode(&self, dtype: Dtype, raw: &[u8], base: Option<&[u8]>) -> Result<Encoded, CodecError>;

    /// Decodes `encoded` into `out`, whose length is the segment's decoded length. `base` as given to `encode`
    /// (required exactly when the scheme needs it).
    ///
    /// # Errors
    /// Corrupt or truncated bytes, a missing base, lengths that disagree. Never panics; on an error `out` is unspecified.
    fn decode(&self, dtype: Dtype, encoded: &[u8], base: Option<&[u8]>, out: &mut [u8]) -> Result<(), CodecError>;

    /// Decodes only the elements in `range` (element indices inside the segment) into `out`, touching only the blocks
    /// that hold them. `len` is the decoded byte length of the whole segment; `base` covers the whole segment.
    ///
    /// # Errors
    /// As `decode`.
    fn decode_range(
        &self,
        dtype: Dtype,
        encoded: &[u8],
        len: usize,
        base: Option<&[u8]>,
        range: Range<usize>,
        out: &mut [u8],
    ) -> Result<(), CodecError>;
}

/// The scheme of an encoded segment, from its first byte.
///
/// # Errors
/// Empty input or an unknown scheme.
pub fn scheme_of(encoded: &[u8]) -> Result<Scheme, CodecError> {
    match encoded.first() {
        Some(0) => Ok(Scheme::Stored),
        Some(1) => Ok(Scheme::Zstd),
        Some(2) => Ok(Scheme::Planes),
        Some(3) => Ok(Scheme::Delta),
        Some(4) => Ok(Scheme::Sparse),
        Some(5) => Ok(Scheme::Palette),
        Some(6) => Ok(Scheme::PaletteDelta),
        Some(_) => Err(CodecError::Corrupt("unknown segment scheme")),
        None => Err(CodecError::Corrupt("empty segment")),
    }
}
