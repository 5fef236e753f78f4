//! Header of a lattice segment: its share of the lattice's parameters, so that it decodes without the tensor's.
//!
//! Factors are kept of those rows and columns only that the segment's elements lie in.

use crate::{
    Bases, CodecError, CpuEngine, Dtype, Engine, Result, SEGMENT_BYTES, Scheme,
    entropy::{Cursor, put_varint},
    quant::lattice::{Lattice, Piece, factor, step_is_valid, to_bf16},
    scheme_of,
};

const ROWS: u8 = 1;
const COLS: u8 = 2;
const SEED: u8 = 4;
/// Bits of the flags below the log2 of the lanes.
const FLAG_BITS: u8 = 3;
const BAD: CodecError = CodecError::Corrupt("bad parameters of a lattice");

/// What a segment says of itself.
#[derive(Debug)]
pub(super) struct Header {
    /// Knows the segment's elements and no others.
    pub(super) lattice: Lattice,
    /// log2 of the lanes of its streams.
    pub(super) lanes: u8,
}

/// Appends what `n` elements (at least 1) of `lattice` from `start` on need.
pub(super) fn put(lattice: &Lattice, start: usize, n: usize, lanes: u8, out: &mut Vec<u8>) -> Result<()> {
    let piece = Piece::new(lattice, start, n * lattice.dtype.size())?;
    let flag = |set: bool, f: u8| if set { f } else { 0 };
    out.push(
        flag(!lattice.rows.is_empty(), ROWS)
            | flag(!lattice.factors.is_empty(), COLS)
            | flag(lattice.seed.is_some(), SEED)
            | lanes << FLAG_BITS,
    );
    out.extend_from_slice(&lattice.step.to_le_bytes());
    put_varint(out, start as u64);
    put_varint(out, lattice.cols as u64);
    out.extend(lattice.seed.iter().flat_map(|s| s.to_le_bytes()));
    put_factors(&piece.rows, out)?;
    put_factors(&piece.factors, out)
}

/// Appends factors, if there are any, as an encoded bf16 segment after its length.
fn put_factors(list: &[f32], out: &mut Vec<u8>) -> Result<()> {
    let raw: Vec<u8> = list.iter().flat_map(|f| to_bf16(*f).to_le_bytes()).collect();
    if !raw.is_empty() {
        // Never zstd, so that these bytes do not change with its releases.
        let one = |scheme| CpuEngine::new().encode_as(scheme, Dtype::BF16, &raw, Bases::NONE, None);
        let (a, b) = (one(Scheme::Palette)?.bytes, one(Scheme::Planes)?.bytes);
        let least = if a.len() < b.len() { a } else { b };
        put_varint(out, least.len() as u64);
        out.extend_from_slice(&least);
    }
    Ok(())
}

/// Reads what [`put`] wrote for a segment of `n` elements.
pub(super) fn get(cursor: &mut Cursor<'_>, dtype: Dtype, n: usize) -> Result<Header> {
    if !matches!(dtype, Dtype::F32 | Dtype::BF16 | Dtype::F16) || n == 0 || n > SEGMENT_BYTES / dtype.size() {
        return Err(CodecError::Corrupt("no lattice has this dtype and length"));
    }
    let flags = cursor.u8()?;
    let lanes = flags >> FLAG_BITS;
    let step = cursor.u16()? as i16;
    let (start, cols) = (cursor.varint64()?, cursor.varint64()?);
    let [start, cols] = [start, cols].map(|v| usize::try_from(v).unwrap_or(usize::MAX));
    let end = start.checked_add(n).ok_or(BAD)?;
    if !step_is_valid(step) || cols == 0 {
        return Err(BAD);
    }
    let seed = if flags & SEED != 0 { Some(u64::from(cursor.u32()?) | u64::from(cursor.u32()?) << 32) } else { None };
    let mut lattice = Lattice { dtype, step, cols, known: start..end, rows: Vec::new(), factors: Vec::new(), seed };
    if flags & ROWS != 0 {
        lattice.rows = get_factors(cursor, lattice.rows_of(start, n).len())?;
    }
    if flags & COLS != 0 {
        lattice.factors = get_factors(cursor, n.min(cols))?;
    }
    Ok(Header { lattice, lanes })
}

/// Reads `n` factors; `n` is at most the segment's elements.
fn get_factors(cursor: &mut Cursor<'_>, n: usize) -> Result<Vec<f32>> {
    let len = cursor.varint()?;
    let bytes = cursor.take(len)?;
    // A lattice of factors of a lattice of factors would nest as deep as its bytes go.
    if scheme_of(bytes)? > Scheme::Palette {
        return Err(BAD);
    }
    let mut raw = vec![0u8; 2 * n];
    CpuEngine::new().decode(Dtype::BF16, bytes, Bases::NONE, &mut raw)?;
    let value = |b: &[u8; 2]| factor(u16::from_le_bytes(*b)).ok_or(BAD);
    raw.as_chunks::<2>().0.iter().map(value).collect()
}
