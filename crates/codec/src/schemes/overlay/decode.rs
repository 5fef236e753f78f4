//! Overlay decoder: what the lattice gives, then the runs over it.

use super::{Run, Source, has_factor, source_bits, times};
use crate::{
    Bases, CodecError, CpuEngine, Dtype, Engine, Result, Scheme, entropy::bits::Cursor, quant::lattice::moves,
    scheme_of, simd::Simd,
};
use std::ops::Range;

/// Runs as they are stored: read one by one, so that they take no memory however many there are.
#[derive(Clone, Debug)]
struct Runs<'a> {
    cursor: Cursor<'a>,
    left: usize,
    end: usize,
    /// Elements of the segment.
    n: usize,
    has_factor: bool,
}

impl Runs<'_> {
    fn read(&mut self) -> Result<Run> {
        const BAD: CodecError = CodecError::Corrupt("a run outside the segment");
        let (gap, word) = (self.cursor.varint()?, self.cursor.varint()?);
        let start = self.end.checked_add(gap).ok_or(BAD)?;
        let bits = source_bits(self.has_factor);
        let end = start.checked_add(word >> bits).filter(|&end| start < end && end <= self.n).ok_or(BAD)?;
        let source = match word & ((1 << bits) - 1) {
            0 => Source::Literal,
            1 => Source::Copied,
            2 => Source::Scaled,
            _ => return Err(CodecError::Corrupt("a run from nowhere")),
        };
        self.end = end;
        Ok(Run { elements: start..end, source })
    }
}

impl Iterator for Runs<'_> {
    type Item = Result<Run>;

    fn next(&mut self) -> Option<Result<Run>> {
        self.left = self.left.checked_sub(1)?;
        Some(self.read())
    }
}

/// The lattice segment inside an overlay, from what follows its scheme byte, and what comes after it.
pub(crate) fn inner<'a>(body: &'a [u8]) -> Result<(&'a [u8], Cursor<'a>)> {
    let mut cursor = Cursor::new(body);
    let len = cursor.varint()?;
    let inner = cursor.take(len)?;
    // Overlays in overlays would nest as deep as their bytes go.
    match scheme_of(inner)? {
        Scheme::Lattice | Scheme::LatticeDelta | Scheme::LatticeDelta2 | Scheme::LatticeMoves => Ok((inner, cursor)),
        _ => Err(CodecError::Corrupt("an overlay lies on a lattice")),
    }
}

/// A segment whose runs are checked.
#[derive(Debug)]
pub(crate) struct Reader<'a> {
    dtype: Dtype,
    inner: &'a [u8],
    /// 1 in schemes that have none.
    factor: f32,
    runs: Runs<'a>,
    /// Elements in literal runs.
    literals: usize,
    /// The segment that holds them; empty if there are none.
    literal: &'a [u8],
}

impl<'a> Reader<'a> {
    /// Reads `body` (what follows the scheme byte) of a segment of `n` elements.
    pub(crate) fn new(dtype: Dtype, scheme: Scheme, body: &'a [u8], n: usize) -> Result<Self> {
        let (inner, mut cursor) = inner(body)?;
        let has_factor = has_factor(scheme);
        let factor = if has_factor { f32::from_bits(cursor.u32()?) } else { 1.0 };
        if !factor.is_finite() {
            return Err(CodecError::Corrupt("a factor that is not finite"));
        }
        let left = cursor.varint()?;
        if left == 0 {
            return Err(CodecError::Corrupt("an overlay without runs"));
        }
        let runs = Runs { cursor: cursor.clone(), left, end: 0, n, has_factor };
        let (mut rest, mut literals, mut from_base) = (runs.clone(), 0, false);
        for run in rest.by_ref() {
            let run = run?;
            literals += if run.source == Source::Literal { run.elements.len() } else { 0 };
            from_base |= run.source != Source::Literal;
        }
        cursor = rest.cursor;
        let literal = cursor.rest();
        let mut needed = scheme_of(inner)?.bases().max(u8::from(from_base));
        if literals > 0 {
            let scheme = scheme_of(literal)?;
            if scheme > Scheme::PaletteDelta {
                return Err(CodecError::Corrupt("literal elements are stored lossless"));
            }
            needed = needed.max(scheme.bases());
        } else {
            cursor.done()?;
        }
        if needed > scheme.bases() {
            return Err(CodecError::Corrupt("an overlay needs a base that its scheme has not"));
        }
        Ok(Reader { dtype, inner, factor, runs, literals, literal })
    }

    /// Decodes the elements of `range` into `out`; the bases are those of the whole segment.
    pub(crate) fn decode(&self, simd: Simd, bases: Bases<'_>, range: Range<usize>, out: &mut [u8]) -> Result<()> {
        let (size, n, engine) = (self.dtype.size(), self.runs.n, CpuEngine::with(simd));
        engine.decode_range(self.dtype, self.inner, n * size, bases, range.clone(), out)?;
        let wanted = self.wanted(&range)?;
        let mut literal = vec![0; wanted.len() * size];
        if !wanted.is_empty() {
            let base = self.literal_base(bases.base, size)?;
            let bases = Bases::from(base.as_deref());
            engine.decode_range(self.dtype, self.literal, self.literals * size, bases, wanted, &mut literal)?;
        }
        let mut literal = &literal[..];
        for run in self.runs.clone() {
            let Run { elements, source } = run?;
            if elements.start >= range.end {
                break;
            }
            let (start, end) = (elements.start.max(range.start), elements.end.min(range.end));
            if start >= end {
                continue;
            }
            let to = &mut out[(start - range.start) * size..(end - range.start) * size];
            let base = || bases.base.and_then(|b| b.get(start * size..end * size)).ok_or(SHORT);
            match source {
                Source::Copied => to.copy_from_slice(base()?),
                Source::Scaled => times(self.dtype, base()?, self.factor, to),
                Source::Literal => {
                    let (from, rest) = literal.split_at_checked(to.len()).ok_or(SHORT)?;
                    to.copy_from_slice(from);
                    literal = rest;
                }
            }
        }
        Ok(())
    }

    /// Decodes the whole segment over its base, which `out` holds; for schemes of one base.
    pub(crate) fn decode_over(&self, simd: Simd, out: &mut [u8]) -> Result<()> {
        let (size, engine) = (self.dtype.size(), CpuEngine::with(simd));
        let bytes = |elements: &Range<usize>| elements.start * size..elements.end * size;
        // What the runs need of the base, before that is gone.
        let mut kept = Vec::new();
        for run in self.runs.clone() {
            let Run { elements, source } = run?;
            if source != Source::Literal {
                kept.extend_from_slice(out.get(bytes(&elements)).ok_or(SHORT)?);
            }
        }
        let mut literal = vec![0; self.literals * size];
        if self.literals > 0 {
            let base = self.literal_base(Some(out), size)?;
            engine.decode(self.dtype, self.literal, base.as_deref().into(), &mut literal)?;
        }
        match scheme_of(self.inner)? {
            // Of one segment there is no doubt.
            Scheme::LatticeMoves => moves::add_all(simd, self.dtype, &[&self.inner[1..]], out).map(|_| ())?,
            Scheme::Lattice => engine.decode(self.dtype, self.inner, Bases::NONE, out)?,
            _ => {
                let base = out.to_vec();
                engine.decode(self.dtype, self.inner, Bases::from(&base[..]), out)?;
            }
        }
        let (mut literal, mut kept) = (&literal[..], &kept[..]);
        for run in self.runs.clone() {
            let Run { elements, source } = run?;
            let to = out.get_mut(bytes(&elements)).ok_or(SHORT)?;
            let list = if source == Source::Literal { &mut literal } else { &mut kept };
            let (from, rest) = list.split_at_checked(to.len()).ok_or(SHORT)?;
            *list = rest;
            match source {
                Source::Scaled => times(self.dtype, from, self.factor, to),
                Source::Copied | Source::Literal => to.copy_from_slice(from),
            }
        }
        Ok(())
    }

    /// Which of the literal elements lie in `range`.
    fn wanted(&self, range: &Range<usize>) -> Result<Range<usize>> {
        let mut wanted = 0..0;
        for run in self.runs.clone() {
            let Run { elements, source } = run?;
            if source == Source::Literal {
                let before = |at: usize| at.clamp(elements.start, elements.end) - elements.start;
                wanted.start += before(range.start);
                wanted.end += before(range.end);
            }
        }
        Ok(wanted)
    }

    /// The base's elements under the literal ones, if these are stored against them.
    fn literal_base(&self, base: Option<&[u8]>, size: usize) -> Result<Option<Vec<u8>>> {
        if !scheme_of(self.literal)?.needs_base() {
            return Ok(None);
        }
        let base = base.ok_or(CodecError::MissingBase)?;
        let mut out = Vec::with_capacity(self.literals * size);
        for run in self.runs.clone() {
            let Run { elements, source } = run?;
            if source == Source::Literal {
                out.extend_from_slice(base.get(elements.start * size..elements.end * size).ok_or(SHORT)?);
            }
        }
        Ok(Some(out))
    }
}

/// Lengths are checked before anything is decoded.
const SHORT: CodecError = CodecError::BadInput("the base has another length");
