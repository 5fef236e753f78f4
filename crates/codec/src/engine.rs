//! The `Engine` trait: what every compression engine (CPU here, CUDA in mdl-codec-cuda) offers to `mdl-repo`.

use crate::{
    Device, Dtype, Result,
    error::CodecError,
    quant,
    quant::{
        Codebook, Cuts, Deviation, Sketch, Values,
        lattice::{Hint, Lattice, Outcome},
        rest_of, sensitivities,
    },
};
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
    /// `Lattice`, some rows of which are stored exactly.
    Overlay = 11,
    /// The same on `Lattice` or `LatticeDelta`: rows may be copied from the base, or coded against it.
    OverlayDelta = 12,
    /// The same on `LatticeDelta2`.
    OverlayDelta2 = 13,
    /// As `OverlayDelta`; rows may also be the base's times one factor (weight decay of rows without a gradient).
    OverlayScaled = 14,
    /// As `OverlayDelta2`, likewise.
    OverlayScaled2 = 15,
    /// Multiples of a step of which few differ from the base's: which ones, as masks of four, and by how much.
    LatticeMoves = 16,
}

impl Scheme {
    /// Every scheme in the order of the first bytes, its name, and how many bases decoding needs.
    const ALL: [(Scheme, &str, u8); 17] = [
        (Scheme::Stored, "stored", 0),
        (Scheme::Zstd, "zstd", 0),
        (Scheme::Planes, "planes", 0),
        (Scheme::Delta, "delta", 1),
        (Scheme::Sparse, "sparse", 1),
        (Scheme::Palette, "palette", 0),
        (Scheme::PaletteDelta, "palette-delta", 1),
        (Scheme::Lattice, "lattice", 0),
        (Scheme::LatticeDelta, "lattice-delta", 1),
        (Scheme::PaletteDelta2, "palette-delta-2", 2),
        (Scheme::LatticeDelta2, "lattice-delta-2", 2),
        (Scheme::Overlay, "overlay", 0),
        (Scheme::OverlayDelta, "overlay-delta", 1),
        (Scheme::OverlayDelta2, "overlay-delta-2", 2),
        (Scheme::OverlayScaled, "overlay-scaled", 1),
        (Scheme::OverlayScaled2, "overlay-scaled-2", 2),
        (Scheme::LatticeMoves, "lattice-moves", 1),
    ];

    /// How many bases decoding needs: none, the base, or the base and the base's base as the encoder saw it.
    pub const fn bases(self) -> u8 {
        Scheme::ALL[self as usize].2
    }

    /// Whether decoding needs the base segment.
    pub const fn needs_base(self) -> bool {
        self.bases() > 0
    }

    /// Whether rows are laid over a lattice.
    pub const fn is_overlay(self) -> bool {
        use Scheme::{Overlay, OverlayDelta, OverlayDelta2, OverlayScaled, OverlayScaled2};
        matches!(self, Overlay | OverlayDelta | OverlayDelta2 | OverlayScaled | OverlayScaled2)
    }

    /// Lower-case name for listings.
    pub const fn name(self) -> &'static str {
        Scheme::ALL[self as usize].1
    }
}

/// The decoded segments, at the same place and of the same length, of the tensors that a segment is stored against.
#[derive(Clone, Copy, Debug, Default)]
pub struct Bases<'a> {
    /// Of the parent's tensor.
    pub base: Option<&'a [u8]>,
    /// Of that tensor's own base. Without a base it is not looked at.
    pub grandparent: Option<&'a [u8]>,
}

impl Bases<'_> {
    /// No bases.
    pub const NONE: Bases<'static> = Bases { base: None, grandparent: None };
}

impl<'a> From<Option<&'a [u8]>> for Bases<'a> {
    /// A base, if there is one.
    fn from(base: Option<&'a [u8]>) -> Self {
        Bases { base, grandparent: None }
    }
}

impl<'a> From<&'a [u8]> for Bases<'a> {
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
    /// The scheme chosen; `scheme.bases()` says which bases are needed to decode.
    pub scheme: Scheme,
}

/// A compression engine. Output is a pure function of the input: every engine gives identical bytes, counts and sums.
///
/// Lossless coding is what an engine must do. The passes over whole tensors that a lossy commit makes, from
/// [`sketch`](Engine::sketch) on, have a default on the processor: little-endian f64, f32, f16 or bf16 of any number of
/// elements (a lattice: f32, f16 or bf16), in one piece. Their errors are those of what they link to.
pub trait Engine: Send + Sync + std::fmt::Debug {
    /// Name for `mdl doctor` and logs, such as `cpu`.
    fn name(&self) -> &str;

    /// Encodes one segment: `raw` holds little-endian elements of `dtype`, at most [`SEGMENT_BYTES`] long and a whole
    /// number of elements; the bases, where given, have the same length. Picks the smallest scheme by a cheap
    /// estimate; never larger than stored plus one byte.
    ///
    /// `hint` says on which lattice the elements are thought to lie, which no encoder could find out. Where they do,
    /// the lattice competes with the other schemes; where only whole rows are off it, an overlay on it does; else the
    /// hint says nothing.
    ///
    /// # Errors
    /// Lengths that break the rules above.
    fn encode(&self, dtype: Dtype, raw: &[u8], bases: Bases<'_>, hint: Option<&Hint>) -> Result<Encoded>;

    /// Decodes `encoded` into `out`, whose length is the segment's decoded length. `bases` as given to `encode`
    /// (those that the scheme needs; others are not looked at).
    ///
    /// # Errors
    /// Corrupt or truncated bytes, missing bases, lengths that disagree. Never panics; on an error `out` is
    /// unspecified.
    fn decode(&self, dtype: Dtype, encoded: &[u8], bases: Bases<'_>, out: &mut [u8]) -> Result<()>;

    /// Decodes a segment that stands on others: `chain[0]` with these bases, every other one with the one before as its
    /// base, the last one into `out`. No other scheme than that of `chain[0]` may need two bases. Engines that see
    /// what several have in common are faster than one call after the other.
    ///
    /// # Errors
    /// As for [`decode`](Engine::decode); an empty chain.
    fn decode_chain(&self, dtype: Dtype, chain: &[&[u8]], bases: Bases<'_>, out: &mut [u8]) -> Result<()> {
        one_by_one(self, dtype, chain, bases, out)
    }

    /// Decodes only the elements in `range` (element indices inside the segment) into `out`, touching only the blocks
    /// that hold them. `len` is the decoded byte length of the whole segment; the bases cover all of it.
    fn decode_range(
        &self,
        dtype: Dtype,
        encoded: &[u8],
        len: usize,
        bases: Bases<'_>,
        range: Range<usize>,
        out: &mut [u8],
    ) -> Result<()>;

    /// How often each key occurs: [`Sketch::from_values`] (Inshrinkerator, section 4.3, Algorithm 1). For a
    /// [`Survey`](quant::Survey) where no gradient is known; [`rest_of`] makes codebooks' points from it.
    ///
    /// # Errors
    /// None on the CPU, which does what a device fails to do.
    fn sketch(&self, values: Values<'_>) -> Result<Sketch> {
        Ok(Sketch::from_values(values))
    }

    /// Sketches of the weights and of their [`sensitivities`] |g w|, which are computed in f32 (section 4.1): what
    /// [`Survey::add_counted`](quant::Survey::add_counted) takes. Weights and gradient may be of different dtypes.
    fn survey(&self, weights: Values<'_>, gradient: Values<'_>) -> Result<[Sketch; 2]> {
        Ok([self.sketch(weights)?, sensitivities(weights, gradient)?])
    }

    /// A sketch of the weights that the cuts neither prune nor protect, for a codebook: [`quant::rest`] (sections 4.2
    /// to 4.4). Without a gradient sensitivities decide nothing.
    fn rest(&self, weights: Values<'_>, gradient: Option<Values<'_>>, cuts: &Cuts) -> Result<Sketch> {
        match gradient {
            Some(_) => quant::rest(weights, gradient, cuts),
            None => Ok(rest_of(&self.sketch(weights)?, cuts)),
        }
    }

    /// Writes what the weights become under these cuts and this codebook to `out`, which is as long as they are:
    /// [`quant::restore`] (section 4.4: the nearest bin, 0 where pruned, bf16 where protected). False: there are NaNs
    /// or infinities (as f32) and the tensor must stay lossless; what was written is of no use.
    fn restore(
        &self,
        weights: Values<'_>,
        gradient: Option<Values<'_>>,
        cuts: &Cuts,
        codebook: &Codebook,
        out: &mut [u8],
    ) -> Result<bool> {
        quant::restore(weights, gradient, cuts, codebook, out)
    }

    /// As [`restore`](Engine::restore), and how far `out` then is from the weights. None: the tensor must stay
    /// lossless.
    fn restore_measured(
        &self,
        weights: Values<'_>,
        gradient: Option<Values<'_>>,
        cuts: &Cuts,
        codebook: &Codebook,
        out: &mut [u8],
    ) -> Result<Option<Deviation>> {
        match self.restore(weights, gradient, cuts, codebook, out)? {
            true => self.deviation(weights.dtype(), weights.bytes(), out).map(Some),
            false => Ok(None),
        }
    }

    /// Quantises `w`, the elements from `start` on in the lattice's dtype, and writes the reconstruction to `rec`,
    /// which is as long: [`Lattice::quantise`] (docs/format-lattice.md). A tensor that must stay lossless is an
    /// outcome, not an error; what was written is then of no use.
    fn quantise(&self, lattice: &Lattice, start: usize, w: &[u8], rec: &mut [u8]) -> Result<Outcome> {
        lattice.quantise(start, w, rec)
    }

    /// As [`quantise`](Engine::quantise), and how far `rec` then is from `w`. None: the tensor must stay lossless.
    fn quantise_measured(
        &self,
        lattice: &Lattice,
        start: usize,
        w: &[u8],
        rec: &mut [u8],
    ) -> Result<Option<Deviation>> {
        match self.quantise(lattice, start, w, rec)? {
            Outcome::Quantised => self.deviation(lattice.dtype(), w, rec).map(Some),
            Outcome::Lossless(_) => Ok(None),
        }
    }

    /// How far a reconstruction is from its tensor, in the units of the elements: [`Deviation::between`], sums made in
    /// the order that is stated there.
    fn deviation(&self, dtype: Dtype, raw: &[u8], rec: &[u8]) -> Result<Deviation> {
        Deviation::between(dtype, raw, rec)
    }

    /// The device engine for tensors in the memory of device number `ordinal`; none where it cannot reach it.
    fn device(&self, ordinal: u32) -> Option<&dyn Device> {
        let _ = ordinal;
        None
    }
}

/// [`Engine::decode_chain`] as one call after the other.
pub(crate) fn one_by_one<E: Engine + ?Sized>(
    engine: &E,
    dtype: Dtype,
    chain: &[&[u8]],
    bases: Bases<'_>,
    out: &mut [u8],
) -> Result<()> {
    let (first, rest) = chain.split_first().ok_or(CodecError::BadInput("a chain without segments"))?;
    engine.decode(dtype, first, bases, out)?;
    if rest.is_empty() {
        return Ok(());
    }
    let mut base = out.to_vec();
    for (i, next) in rest.iter().enumerate() {
        // Every other one is decoded into the spare memory.
        let [from, to] = if i % 2 == 0 { [&mut base[..], out] } else { [&mut *out, &mut base[..]] };
        engine.decode(dtype, next, Bases::from(&*from), to)?;
    }
    if rest.len() % 2 == 0 {
        out.copy_from_slice(&base);
    }
    Ok(())
}

/// The scheme of an encoded segment, from its first byte.
///
/// # Errors
/// Empty input or an unknown scheme.
pub fn scheme_of(encoded: &[u8]) -> Result<Scheme> {
    let byte = *encoded.first().ok_or(CodecError::Corrupt("empty segment"))?;
    Scheme::ALL.get(usize::from(byte)).map(|s| s.0).ok_or(CodecError::Corrupt("unknown segment scheme"))
}
