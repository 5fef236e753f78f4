//! Overlay encoder: the rows off the lattice become runs, and the lattice codes placeholders there.

use super::{Run, overlay};
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

/// Encodes `raw`, of which some rows are on the hint's lattice and some are not; scheme byte first. Arguments as for
/// [`lattice::encode`].
///
/// # Errors
/// As there; a segment that is wholly on the lattice or nowhere.
pub(crate) fn encode(simd: Simd, hint: &Hint, dtype: Dtype, raw: &[u8], bases: Bases<'_>) -> Result<(Scheme, Vec<u8>)> {
    elements(hint, dtype, raw.len(), [bases.base, bases.grandparent].map(|r| r.map(<[u8]>::len)))?;
    let off = off_rows(simd, hint, raw);
    if !off.contains(&true) || !off.contains(&false) {
        return Err(CodecError::BadInput("no row is off the lattice, or all are"));
    }
    let size = dtype.size();
    let runs = runs(hint, &off, raw, bases.base, size);
    let (inner_scheme, inner) = inner(simd, hint, dtype, raw, &off, bases)?;
    let mut needed = inner_scheme.bases().max(u8::from(runs.iter().any(|r| r.copied)));
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
    let scheme = overlay(needed);
    let mut out = vec![scheme as u8];
    put_varint(&mut out, inner.len() as u64);
    out.extend_from_slice(&inner);
    put_varint(&mut out, runs.len() as u64);
    let mut end = 0;
    for run in &runs {
        run.put(end, &mut out);
        end = run.elements.end;
    }
    out.extend_from_slice(&literal);
    Ok((scheme, out))
}

/// The rows that are off, neighbours of one kind as one run.
fn runs(hint: &Hint, off: &[bool], raw: &[u8], base: Option<&[u8]>, size: usize) -> Vec<Run> {
    let mut runs: Vec<Run> = Vec::new();
    for elements in rows(hint, off.len()).filter(|row| off[row.start]) {
        let bytes = elements.start * size..elements.end * size;
        let copied = base.and_then(|b| b.get(bytes.clone())) == Some(&raw[bytes]);
        match runs.last_mut() {
            Some(last) if last.copied == copied && last.elements.end == elements.start => {
                last.elements.end = elements.end;
            }
            _ => runs.push(Run { elements, copied }),
        }
    }
    runs
}

/// The literal elements, one after the other.
fn literals(runs: &[Run], of: &[u8], size: usize) -> Vec<u8> {
    let parts = runs.iter().filter(|r| !r.copied).map(|r| &of[r.elements.start * size..r.elements.end * size]);
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
) -> Result<(Scheme, Vec<u8>)> {
    let mut filled = raw.to_vec();
    fill(simd, hint, off, bases.base, &mut filled);
    let found = lattice::encode(simd, hint, dtype, &filled, bases)?;
    if found.0 != Scheme::Lattice || bases.base.is_none() {
        return Ok(found);
    }
    // Without the base its values are no cheaper than others.
    fill(simd, hint, off, None, &mut filled);
    let alone = lattice::encode(simd, hint, dtype, &filled, Bases::NONE)?;
    Ok(if alone.1.len() <= found.1.len() { alone } else { found })
}
