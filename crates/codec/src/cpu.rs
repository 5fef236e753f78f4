//! The CPU engine, and the reference for every other one.

use crate::{
    Bases, CodecError, Dtype, Encoded, Engine, Result, SEGMENT_BYTES, Scheme, decide,
    engine::one_by_one,
    entropy::Grid,
    estimate,
    estimate::Choice,
    quant::{lattice, lattice::Hint},
    scheme_of,
    schemes::{Numbers, PlanesPlan, delta, overlay, palette, planes, sparse},
    simd::Simd,
};
use std::ops::Range;

/// Level of zstd for segments that are stored so.
const ZSTD_LEVEL: i32 = 3;

/// Compresses on the processor, over all threads of the current rayon pool, or those that [`crate::alone`] and
/// [`crate::on_team`] name. The bytes do not depend on the number of threads, nor on the processor's vector
/// instructions.
#[derive(Clone, Copy, Debug)]
pub struct CpuEngine {
    simd: Simd,
    fine: bool,
}

impl CpuEngine {
    /// An engine that uses the fastest instructions this processor has.
    #[must_use]
    pub fn new() -> Self {
        CpuEngine::with(Simd::detect())
    }

    /// An engine that uses no special instructions: slower, the same bytes.
    #[must_use]
    pub fn portable() -> Self {
        CpuEngine::with(Simd::scalar())
    }

    /// The engine for tensors that are decoded again and again, as weights in memory are: it cuts short ones in smaller
    /// blocks, which are decoded side by side, at about 140 bytes a block and coded plane: up to 0.2 % of bf16, 0.5 %
    /// of elements of one byte.
    #[must_use]
    pub fn fine(self) -> Self {
        CpuEngine { fine: true, ..self }
    }

    /// An engine for every set of instructions that this machine has, from the least: for tests, in which all must give
    /// the same bytes.
    #[doc(hidden)]
    #[must_use]
    pub fn every() -> Vec<Self> {
        Simd::all().into_iter().map(CpuEngine::with).collect()
    }

    /// An engine that uses these instructions.
    pub(crate) fn with(simd: Simd) -> Self {
        CpuEngine { simd, fine: false }
    }

    /// The instructions that it uses.
    pub(crate) fn simd(&self) -> Simd {
        self.simd
    }

    /// Encodes with a scheme of the caller's choice, if it applies to this input and comes out no larger than stored.
    /// For tests and benchmarks; [`Engine::encode`] chooses by itself. A scheme with bases may turn out as the same
    /// without, where they do not help.
    ///
    /// # Errors
    /// Lengths as for [`Engine::encode`]; a scheme that needs bases without them, a lattice or an overlay without a
    /// hint that fits.
    pub fn encode_as(
        &self,
        scheme: Scheme,
        dtype: Dtype,
        raw: &[u8],
        bases: Bases<'_>,
        hint: Option<&Hint>,
    ) -> Result<Encoded> {
        check(dtype, raw, bases)?;
        let base = bases.base;
        if scheme.bases() > u8::from(base.is_some()) + u8::from(base.and(bases.grandparent).is_some()) {
            return Err(CodecError::MissingBase);
        }
        let numbers = Numbers::from_dtype(dtype);
        let palette = |bases| {
            palette::encode(self.simd, numbers, raw, bases, &estimate::sampled(dtype, raw))
                .map_or_else(|| stored(raw), |(scheme, bytes)| shorter(scheme, bytes, raw))
        };
        let bytes = match scheme {
            Scheme::Stored => return Ok(stored(raw)),
            Scheme::Palette => return Ok(palette(Bases::NONE)),
            Scheme::PaletteDelta => return Ok(palette(base.into())),
            Scheme::PaletteDelta2 => return Ok(palette(bases)),
            Scheme::Lattice | Scheme::LatticeDelta | Scheme::LatticeDelta2 => {
                let grandparent = bases.grandparent.filter(|_| scheme == Scheme::LatticeDelta2);
                let base = base.filter(|_| scheme != Scheme::Lattice);
                let hint = hint.ok_or(CodecError::BadInput("a lattice needs to be known"))?;
                let (scheme, bytes) = lattice::encode(self.simd, hint, dtype, raw, Bases { base, grandparent })?;
                return Ok(shorter(scheme, bytes, raw));
            }
            Scheme::LatticeMoves => {
                let hint = hint.ok_or(CodecError::BadInput("a lattice needs to be known"))?;
                let base = base.ok_or(CodecError::MissingBase)?;
                lattice::moves::encode(self.simd, hint, dtype, raw, base)?
            }
            Scheme::Overlay
            | Scheme::OverlayDelta
            | Scheme::OverlayDelta2
            | Scheme::OverlayScaled
            | Scheme::OverlayScaled2 => {
                let grandparent = bases.grandparent.filter(|_| scheme.bases() == 2);
                let base = base.filter(|_| scheme != Scheme::Overlay);
                let hint = hint.ok_or(CodecError::BadInput("a lattice needs to be known"))?;
                let bases = Bases { base, grandparent };
                let (scheme, bytes) = overlay::encode(self.simd, hint, dtype, raw, bases, lattice::encode)?;
                return Ok(shorter(scheme, bytes, raw));
            }
            Scheme::Zstd => zstd_bytes(raw)?,
            Scheme::Planes => self.encode_planes(estimate::plan(dtype, raw), numbers.size, raw)?,
            Scheme::Delta => delta::encode(self.simd, numbers, raw, base.ok_or(CodecError::MissingBase)?),
            Scheme::Sparse => sparse::encode(self.simd, numbers, raw, base.ok_or(CodecError::MissingBase)?)?,
        };
        Ok(shorter(scheme, bytes, raw))
    }

    fn encode_planes(&self, plan: PlanesPlan, size: usize, raw: &[u8]) -> Result<Vec<u8>> {
        let n = raw.len() / size;
        let grid = if self.fine { Grid::fine(n) } else { Grid::new(n) };
        planes::encode(self.simd, plan, grid, size, raw)
    }

    /// The smallest encoding with these bases.
    fn best(&self, dtype: Dtype, raw: &[u8], bases: Bases<'_>, hint: Option<&Hint>) -> Result<Encoded> {
        // A segment of which no row is on the lattice of its hint is encoded as if there were no hint.
        let on = hint.and_then(|h| {
            let whole = lattice::encode_best(self.simd, h, dtype, raw, bases);
            whole.ok().or_else(|| self.encode_overlay(h, dtype, raw, bases))
        });
        let (choice, cost) = estimate::choose(self.simd, dtype, raw, bases.base);
        match on {
            Some((scheme, bytes)) if decide::lattice_wins(bytes.len(), cost) => Ok(shorter(scheme, bytes, raw)),
            Some((scheme, bytes)) => {
                let plain = self.encode_chosen(choice, dtype, raw, bases)?;
                Ok(if bytes.len() <= plain.bytes.len() { Encoded { bytes, scheme } } else { plain })
            }
            None => self.encode_chosen(choice, dtype, raw, bases),
        }
    }

    /// Encodes a segment of which some rows are not on the lattice; none if all are or none is. GPU engines leave these
    /// segments to this one.
    #[doc(hidden)]
    pub fn encode_overlay(&self, hint: &Hint, dtype: Dtype, raw: &[u8], bases: Bases<'_>) -> Option<(Scheme, Vec<u8>)> {
        overlay::encode(self.simd, hint, dtype, raw, bases, lattice::encode_best).ok()
    }

    /// Encodes a segment whose base is on its lattice as moves, or alone if that is shorter; none if the base or the
    /// segment is not. GPU engines leave these segments to this one.
    #[doc(hidden)]
    pub fn encode_moves(&self, hint: &Hint, dtype: Dtype, raw: &[u8], base: &[u8]) -> Option<(Scheme, Vec<u8>)> {
        lattice::moves_or_alone(self.simd, hint, dtype, raw, base).ok().flatten()
    }

    /// Encodes as the estimate chose: the part that GPU engines leave to this one.
    #[doc(hidden)]
    pub fn encode_chosen(&self, choice: Choice, dtype: Dtype, raw: &[u8], bases: Bases<'_>) -> Result<Encoded> {
        let numbers = Numbers::from_dtype(dtype);
        let (scheme, bytes) = match (choice, bases.base) {
            (Choice::Delta, Some(base)) => (Scheme::Delta, delta::encode(self.simd, numbers, raw, base)),
            (Choice::Sparse, Some(base)) => (Scheme::Sparse, sparse::encode(self.simd, numbers, raw, base)?),
            (Choice::Planes(plan), _) => (Scheme::Planes, self.encode_planes(plan, numbers.size, raw)?),
            (Choice::Palette, _) => {
                let sample = estimate::sampled(dtype, raw);
                match palette::encode(self.simd, numbers, raw, bases, &sample) {
                    Some(done) => done,
                    None => (Scheme::Zstd, zstd_bytes(raw)?),
                }
            }
            _ => (Scheme::Zstd, zstd_bytes(raw)?),
        };
        Ok(shorter(scheme, bytes, raw))
    }
}

impl Default for CpuEngine {
    fn default() -> Self {
        CpuEngine::new()
    }
}

/// Refuses lengths that break the rules of [`Engine::encode`].
pub fn check(dtype: Dtype, raw: &[u8], bases: Bases<'_>) -> Result<()> {
    if raw.len() > SEGMENT_BYTES {
        return Err(CodecError::BadInput("a segment longer than SEGMENT_BYTES"));
    }
    if !raw.len().is_multiple_of(dtype.size()) {
        return Err(CodecError::BadInput("not a whole number of elements"));
    }
    let given = [bases.base, bases.grandparent];
    if given.into_iter().flatten().any(|b| b.len() != raw.len()) {
        return Err(CodecError::BadInput("the base has another length"));
    }
    Ok(())
}

/// The bases that a scheme needs, each of `len` bytes.
fn needed<'a>(scheme: Scheme, bases: Bases<'a>, len: usize) -> Result<Bases<'a>> {
    let need = |given: Option<&'a [u8]>, count| match given {
        _ if scheme.bases() < count => Ok(None),
        None => Err(CodecError::MissingBase),
        Some(b) if b.len() != len => Err(CodecError::BadInput("the base has another length")),
        some => Ok(some),
    };
    Ok(Bases { base: need(bases.base, 1)?, grandparent: need(bases.grandparent, 2)? })
}

fn stored(raw: &[u8]) -> Encoded {
    Encoded { bytes: [&[Scheme::Stored as u8], raw].concat(), scheme: Scheme::Stored }
}

/// The encoding, unless it is longer than the bytes themselves.
fn shorter(scheme: Scheme, bytes: Vec<u8>, raw: &[u8]) -> Encoded {
    if decide::pays(bytes.len(), raw.len()) { Encoded { bytes, scheme } } else { stored(raw) }
}

fn zstd_bytes(raw: &[u8]) -> Result<Vec<u8>> {
    let frame = zstd::bulk::compress(raw, ZSTD_LEVEL).map_err(|_| CodecError::BadInput("zstd refused the segment"))?;
    Ok([&[Scheme::Zstd as u8], frame.as_slice()].concat())
}

impl Engine for CpuEngine {
    fn name(&self) -> &str {
        "cpu"
    }

    fn encode(&self, dtype: Dtype, raw: &[u8], bases: Bases<'_>, hint: Option<&Hint>) -> Result<Encoded> {
        check(dtype, raw, bases)?;
        if raw.is_empty() {
            return Ok(stored(raw));
        }
        let best = self.best(dtype, raw, bases, hint)?;
        if !decide::wants_without_grand(raw.len(), best.scheme) {
            return Ok(best);
        }
        let base = Bases { grandparent: None, ..bases };
        Ok(decide::with_or_without_grand(best, self.best(dtype, raw, base, hint)?))
    }

    fn decode(&self, dtype: Dtype, encoded: &[u8], bases: Bases<'_>, out: &mut [u8]) -> Result<()> {
        let len = out.len();
        self.decode_range(dtype, encoded, len, bases, 0..len / dtype.size(), out)
    }

    fn decode_chain(&self, dtype: Dtype, chain: &[&[u8]], bases: Bases<'_>, out: &mut [u8]) -> Result<()> {
        if out.len() > SEGMENT_BYTES || !out.len().is_multiple_of(dtype.size()) {
            return Err(CodecError::BadInput("a range outside the segment"));
        }
        let (first, mut rest) = chain.split_first().ok_or(CodecError::BadInput("a chain without segments"))?;
        self.decode(dtype, first, bases, out)?;
        let is_moves = |encoded: &&[u8]| matches!(scheme_of(encoded), Ok(Scheme::LatticeMoves));
        while let Some((next, others)) = rest.split_first() {
            let run = rest.iter().take_while(|e| is_moves(e)).count();
            if run == 0 {
                match scheme_of(next)? {
                    scheme if scheme.is_overlay() && scheme.bases() == 1 => {
                        let n = out.len() / dtype.size();
                        overlay::Reader::new(dtype, scheme, &next[1..], n)?.decode_over(self.simd, out)?;
                    }
                    _ => {
                        let base = out.to_vec();
                        self.decode(dtype, next, Bases::from(&base[..]), out)?;
                    }
                }
                rest = others;
                continue;
            }
            let bodies: Vec<&[u8]> = rest[..run].iter().map(|encoded| &encoded[1..]).collect();
            if !lattice::moves::add_all(self.simd, dtype, &bodies, out)? {
                return one_by_one(self, dtype, chain, bases, out);
            }
            rest = &rest[run..];
        }
        Ok(())
    }

    fn decode_range(
        &self,
        dtype: Dtype,
        encoded: &[u8],
        len: usize,
        bases: Bases<'_>,
        range: Range<usize>,
        out: &mut [u8],
    ) -> Result<()> {
        let size = dtype.size();
        if len > SEGMENT_BYTES || !len.is_multiple_of(size) || range.start > range.end || range.end > len / size {
            return Err(CodecError::BadInput("a range outside the segment"));
        }
        if out.len() != range.len() * size {
            return Err(CodecError::BadInput("output and range differ in length"));
        }
        let scheme = scheme_of(encoded)?;
        let body = &encoded[1..];
        let bases = needed(scheme, bases, len)?;
        let base = bases.base.unwrap_or_default();
        // Complex types are read as numbers of 8 bytes.
        let numbers = Numbers::from_dtype(dtype);
        let per = size / numbers.size;
        let (n, range) = (len / numbers.size, range.start * per..range.end * per);
        match scheme {
            Scheme::Stored => stored_range(body, len, range.start * numbers.size, out),
            Scheme::Zstd => zstd_range(body, len, range.start * numbers.size, out),
            Scheme::Planes => planes::Reader::new(dtype, numbers.size, body, n)?.decode(self.simd, range, out),
            Scheme::Delta => delta::Reader::new(numbers, body, n)?.decode(self.simd, base, range, out),
            Scheme::Sparse => sparse::Reader::new(numbers, body, n)?.decode(self.simd, base, range, out),
            Scheme::Palette | Scheme::PaletteDelta => {
                palette::Reader::new(numbers, scheme.needs_base(), body, n)?.decode(self.simd, base, range, out)
            }
            Scheme::PaletteDelta2 => {
                palette::family::Reader::new(numbers, body, n)?.decode(self.simd, bases, range, out)
            }
            Scheme::Lattice | Scheme::LatticeDelta | Scheme::LatticeDelta2 => {
                lattice::Reader::new(dtype, scheme, body, n)?.decode(self.simd, bases, range, out)
            }
            Scheme::LatticeMoves => lattice::moves::Reader::new(dtype, body, n)?.decode(self.simd, base, range, out),
            Scheme::Overlay
            | Scheme::OverlayDelta
            | Scheme::OverlayDelta2
            | Scheme::OverlayScaled
            | Scheme::OverlayScaled2 => {
                overlay::Reader::new(dtype, scheme, body, n)?.decode(self.simd, bases, range, out)
            }
        }
    }
}

fn stored_range(body: &[u8], len: usize, start: usize, out: &mut [u8]) -> Result<()> {
    if body.len() != len {
        return Err(CodecError::Corrupt("stored length differs"));
    }
    out.copy_from_slice(&body[start..start + out.len()]);
    Ok(())
}

fn zstd_range(body: &[u8], len: usize, start: usize, out: &mut [u8]) -> Result<()> {
    const BAD: CodecError = CodecError::Corrupt("bad zstd frame");
    if out.len() == len {
        let n = zstd::bulk::decompress_to_buffer(body, out).map_err(|_| BAD)?;
        return if n == len { Ok(()) } else { Err(BAD) };
    }
    let whole = zstd::bulk::decompress(body, len).map_err(|_| BAD)?;
    if whole.len() != len {
        return Err(BAD);
    }
    out.copy_from_slice(&whole[start..start + out.len()]);
    Ok(())
}
