//! Several lattice moves on top of each other: from floats to levels and back once, however many they are.

use super::{Reader, decode::Add};
use crate::{CodecError, Dtype, Result, simd::Simd};

/// Decodes the segments `bodies` (what follows the scheme byte of each), each against the one before and the first
/// against `out`, into `out`. False where this gives what one after the other gives only by luck, and `out` is then
/// unspecified: other lattices, other blocks, other dtypes than f32 (their numbers may lie elsewhere in the cell),
/// levels next to the limit.
pub(crate) fn add_all(simd: Simd, dtype: Dtype, bodies: &[&[u8]], out: &mut [u8]) -> Result<bool> {
    let (size, n) = (dtype.size(), out.len() / dtype.size());
    if dtype != Dtype::F32 && bodies.len() > 1 {
        return Ok(false);
    }
    let readers = bodies.iter().map(|body| Reader::new(dtype, body, n)).collect::<Result<Vec<_>>>()?;
    let Some((first, rest)) = readers.split_first() else { return Ok(true) };
    if rest.iter().any(|r| r.lattice != first.lattice || r.grid.log != first.grid.log) {
        return Ok(false);
    }
    // Refused blocks are told from broken ones by this error, which no block gives.
    const UNSURE: CodecError = CodecError::MissingBase;
    let done = first.grid.decode_range(&first.blocks, size, 0..n, out, |_, elements, out| {
        let blocks = readers.iter().map(|r| (r, r.blocks.get(elements.start >> r.grid.log)));
        let moves = blocks.map(|(r, data)| r.moves(simd, data.copied().unwrap_or_default(), elements.len()));
        let mut moves = moves.collect::<Result<Vec<_>>>()?;
        let start = first.lattice.known.start + elements.start;
        let sure = simd.compiled(Add { lattice: &first.lattice, simd, start, moves: &mut moves, out })?;
        if sure { Ok(()) } else { Err(UNSURE) }
    });
    match done {
        Err(UNSURE) => Ok(false),
        done => done.map(|()| true),
    }
}
