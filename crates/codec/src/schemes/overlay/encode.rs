//! Overlay encoder: the rows off the lattice become runs, and the lattice codes placeholders there.

use super::{Run, Source, overlay, scaled};
use crate::{
    Bases, CodecError, CpuEngine, Dtype, Engine, Result, Scheme,
    entropy::bits::put_varint,
    quant::{
        lattice,
        lattice::{
            Hint,
            encode::elements,
            rows::{fill, off_rows, rows},
        },
    },
    scheme_of,
    simd::Simd,
};
use std::ops::Range;

/// What encodes the segment on the lattice: [`lattice::encode`], or [`lattice::encode_best`].
type Inner = fn(Simd, &Hint, Dtype, &[u8], Bases<'_>) -> Result<(Scheme, Vec<u8>)>;

/// Encodes `raw`, of which some rows are on the hint's lattice and some are not; scheme byte first. Other arguments as
/// for [`lattice::encode`].
///
/// # Errors
/// As there; a segment that is wholly on the lattice, or nowhere on it and nowhere the base's times a factor.
pub(crate) fn encode(
    simd: Simd,
    hint: &Hint,
    dtype: Dtype,
    raw: &[u8],
    bases: Bases<'_>,
    on_lattice: Inner,
) -> Result<(Scheme, Vec<u8>)> {
    elements(hint, dtype, raw.len(), [bases.base, bases.grandparent].map(|r| r.map(<[u8]>::len)))?;
    let off = off_rows(simd, hint, raw);
    const NONE: CodecError = CodecError::BadInput("no row is off the lattice, or all are");
    if !off.contains(&true) {
        return Err(NONE);
    }
    let factor = factor(hint, &off, dtype, raw, bases.base);
    if !off.contains(&false) && factor.is_none() {
        return Err(NONE);
    }
    let size = dtype.size();
    let runs = runs(hint, &off, dtype, raw, bases.base, factor);
    let (inner_scheme, inner) = inner(simd, hint, dtype, raw, &off, bases, on_lattice)?;
    let mut needed = inner_scheme.bases().max(u8::from(runs.iter().any(|r| r.source != Source::Literal)));
    let literal = literals(&runs, raw, size);
    let literal = match literal.is_empty() {
        true => Vec::new(),
        false => {
            let base = bases.base.map(|base| literals(&runs, base, size));
            // Without a hint: an ordinary scheme, with the base where that is smaller.
            let done = CpuEngine::with(simd).encode(dtype, &literal, base.as_deref().into(), None)?;
            needed = needed.max(scheme_of(&done.bytes)?.bases());
            done.bytes
        }
    };
    let scheme = overlay(needed, factor.is_some());
    let mut out = vec![scheme as u8];
    put_varint(&mut out, inner.len() as u64);
    out.extend_from_slice(&inner);
    if let Some(factor) = factor {
        out.extend_from_slice(&factor.to_bits().to_le_bytes());
    }
    put_varint(&mut out, runs.len() as u64);
    let mut end = 0;
    for run in &runs {
        run.put(end, factor.is_some(), &mut out);
        end = run.elements.end;
    }
    out.extend_from_slice(&literal);
    Ok((scheme, out))
}

/// The factor of rows that are off and the base's times one, but for the base's own.
fn factor(hint: &Hint, off: &[bool], dtype: Dtype, raw: &[u8], base: Option<&[u8]>) -> Option<f32> {
    let (base, size) = (base?, dtype.size());
    let off = rows(hint, off.len()).filter(|row| off[row.start]);
    let pairs = off.map(|row| row.start * size..row.end * size).map(|bytes| (&raw[bytes.clone()], &base[bytes]));
    scaled::find(dtype, pairs.filter(|(row, base)| row != base))
}

/// The rows that are off, neighbours of one kind as one run.
fn runs(hint: &Hint, off: &[bool], dtype: Dtype, raw: &[u8], base: Option<&[u8]>, factor: Option<f32>) -> Vec<Run> {
    let size = dtype.size();
    let source = |bytes: Range<usize>| {
        let (row, Some(base)) = (&raw[bytes.clone()], base.and_then(|b| b.get(bytes))) else { return Source::Literal };
        match factor {
            _ if row == base => Source::Copied,
            Some(factor) if scaled::is_scaled(dtype, row, base, factor) => Source::Scaled,
            _ => Source::Literal,
        }
    };
    let mut runs: Vec<Run> = Vec::new();
    for elements in rows(hint, off.len()).filter(|row| off[row.start]) {
        let source = source(elements.start * size..elements.end * size);
        match runs.last_mut() {
            Some(last) if last.source == source && last.elements.end == elements.start => {
                last.elements.end = elements.end;
            }
            _ => runs.push(Run { elements, source }),
        }
    }
    runs
}

/// The literal elements, one after the other.
fn literals(runs: &[Run], of: &[u8], size: usize) -> Vec<u8> {
    let parts = runs
        .iter()
        .filter(|r| r.source == Source::Literal)
        .map(|r| &of[r.elements.start * size..r.elements.end * size]);
    parts.flatten().copied().collect()
}

/// The segment on the lattice, with placeholders in the rows that are off.
fn inner(
    simd: Simd,
    hint: &Hint,
    dtype: Dtype,
    raw: &[u8],
    off: &[bool],
    bases: Bases<'_>,
    on_lattice: Inner,
) -> Result<(Scheme, Vec<u8>)> {
    let mut filled = raw.to_vec();
    fill(simd, hint, off, bases.base, &mut filled);
    let found = on_lattice(simd, hint, dtype, &filled, bases)?;
    if found.0 != Scheme::Lattice || bases.base.is_none() {
        return Ok(found);
    }
    // Without the base its values are no cheaper than others.
    fill(simd, hint, off, None, &mut filled);
    let alone = lattice::encode(simd, hint, dtype, &filled, Bases::NONE)?;
    Ok(if alone.1.len() <= found.1.len() { alone } else { found })
}
