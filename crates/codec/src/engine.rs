//! The `Engine` trait: what every compression engine (CPU here, CUDA elsewhere) offers to `mdl-repo`. Neighbours: the
//! coders of this crate. It must not know about files, objects, packs or threads of its callers.

use crate::{Device, Dtype, error::CodecError, quant::lattice::Hint};
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
    /// Multiples of a step, shaped and shifted element by element, alone (a quantiser's snapshot).
    Lattice = 7,
    /// The same, each level in the context of where the base's value lies in its cell (a quantiser's delta).
    LatticeDelta = 8,
    /// As `PaletteDelta`, in the context of the base and of the base's last move.
    PaletteDelta2 = 9,
    /// As `LatticeDelta`, likewise.
    LatticeDelta2 = 10,
}

impl Scheme {
    /// How many relatives decoding needs: none, the base, or the base and the base's base as the encoder saw it.
    pub const fn relatives(self) -> u8 {
        match self {
            Scheme::Stored | Scheme::Zstd | Scheme::Planes | Scheme::Palette | Scheme::Lattice => 0,
            Scheme::Delta | Scheme::Sparse | Scheme::PaletteDelta | Scheme::LatticeDelta => 1,
            Scheme::PaletteDelta2 | Scheme::LatticeDelta2 => 2,
        }
    }

    /// Whether decoding needs the base segment.
    pub const fn needs_base(self) -> bool {
        self.relatives() > 0
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
            Scheme::Lattice => "lattice",
            Scheme::LatticeDelta => "lattice-delta",
            Scheme::PaletteDelta2 => "palette-delta-2",
            Scheme::LatticeDelta2 => "lattice-delta-2",
        }
    }
}

/// The decoded segments, at the same place and of the same length, of the tensors that a segment is stored against.
#[derive(Clone, Copy, Debug, Default)]
pub struct Relatives<'a> {
    /// Of the parent's tensor.
    pub base: Option<&'a [u8]>,
    /// Of that tensor's own base. Without a base it is not looked at.
    pub grand: Option<&'a [u8]>,
}

impl Relatives<'_> {
    /// No relatives: what is encoded so stands alone.
    pub const NONE: Relatives<'static> = Relatives {
        base: None,
        grand: None,
    };
}

impl<'a> From<Option<&'a [u8]>> for Relatives<'a> {
    /// A base, if there is one.
    fn from(base: Option<&'a [u8]>) -> Self {
        Relatives { base, grand: None }
    }
}

impl<'a> From<&'a [u8]> for Relatives<'a> {
    /// A base.
    fn from(base: &'a [u8]) -> Self {
        Some(base).into()
    }
}

/// An encoded segment.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Encoded {
    /// Self-describing bytes (scheme byte first).
    pub bytes: Vec<u8>,
    /// The scheme chosen; `scheme.relatives()` says which relatives are needed to decode.
    pub scheme: Scheme,
}

/// A lossless compression engine. Output is a pure function of the input: every engine gives identical bytes.
pub trait Engine: Send + Sync + std::fmt::Debug {
    /// Name for `mdl doctor` and logs, such as `cpu`.
    fn name(&self) -> &str;

    /// Encodes one segment: `raw` holds little-endian elements of `dtype`, at most [`SEGMENT_BYTES`] long and a whole
    /// number of elements; the relatives, where given, have the same length. Picks the smallest scheme by a cheap
    /// estimate; never larger than stored plus one byte.
    ///
    /// `hint` says on which lattice the elements are thought to lie, which no encoder could find out. Where they do, the
    /// lattice competes with the other schemes; where they do not, the hint says nothing.
    ///
    /// # Errors
    /// Lengths that break the rules above.
    fn encode(
        &self,
        dtype: Dtype,
        raw: &[u8],
        relatives: Relatives<'_>,
        hint: Option<&Hint>,
    ) -> Result<Encoded, CodecError>;

    /// Decodes `encoded` into `out`, whose length is the segment's decoded length. `relatives` as given to `encode`
    /// (those that the scheme needs; others are not looked at).
    ///
    /// # Errors
    /// Corrupt or truncated bytes, missing relatives, lengths that disagree. Never panics; on an error `out` is unspecified.
    fn decode(&self, dtype: Dtype, encoded: &[u8], relatives: Relatives<'_>, out: &mut [u8]) -> Result<(), CodecError>;

    /// Decodes only the elements in `range` (element indices inside the segment) into `out`, touching only the blocks
    /// that hold them. `len` is the decoded byte length of the whole segment; the relatives cover all of it.
    ///
    /// # Errors
    /// As `decode`.
    fn decode_range(
        &self,
        dtype: Dtype,
        encoded: &[u8],
        len: usize,
        relatives: Relatives<'_>,
        range: Range<usize>,
        out: &mut [u8],
    ) -> Result<(), CodecError>;

    /// What it can do with tensors in the memory of device number `ordinal`; none where it cannot reach it.
    fn device(&self, ordinal: u32) -> Option<&dyn Device> {
        let _ = ordinal;
        None
    }
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
        Some(7) => Ok(Scheme::Lattice),
        Some(8) => Ok(Scheme::LatticeDelta),
        Some(9) => Ok(Scheme::PaletteDelta2),
        Some(10) => Ok(Scheme::LatticeDelta2),
        Some(_) => Err(CodecError::Corrupt("unknown segment scheme")),
        None => Err(CodecError::Corrupt("empty segment")),
    }
}
