//! Coder of the low bytes of floats: noise as a rule, but zero at the end in "clean" stretches (rows that were once f16
//! or bf16).
//!
//! Groups of 128 elements share one count of trailing zero bits. Count 0: the low bytes as they are, element by
//! element. Otherwise: the bits above the count, as bit planes of 32 elements.

use crate::{
    CodecError, Result,
    entropy::Cursor,
    schemes::bitplane,
    simd::{CHUNK, Simd},
};

/// Elements that share a count.
pub const GROUP: usize = 128;

/// The counts of the elements in `raw`, elements of `size` bytes of which the first `low` are low bytes.
pub(crate) fn counts(raw: &[u8], size: usize, low: usize) -> Vec<u8> {
    let mut out = vec![0; (raw.len() / size).div_ceil(GROUP)];
    put_counts(raw, size, low, &mut out);
    out
}

/// As [`counts`], into `out`.
pub(crate) fn put_counts(raw: &[u8], size: usize, low: usize, out: &mut [u8]) {
    raw.chunks(GROUP * size).zip(out).for_each(|(g, o)| *o = count(g, size, low));
}

fn count(group: &[u8], size: usize, low: usize) -> u8 {
    let n = group.len() / size;
    let all = match (size, low) {
        (4, 2) => group.as_chunks::<4>().0.iter().fold(0, |a, e| a | u32::from_le_bytes(*e)).into(),
        (8, 6) => group.as_chunks::<8>().0.iter().fold(0, |a, e| a | u64::from_le_bytes(*e)),
        _ => (0..n).fold(0, |a, i| a | low_of(group, size, low, i)),
    };
    let bits = 8 * low as u32;
    let zeros = all.trailing_zeros().min(bits);
    // A short last group pays for whole words: it stays as it is unless planes are really smaller.
    if bitplane::size(n, bits - zeros) < n * low { zeros as u8 } else { 0 }
}

/// The low bytes of element `i` as a number.
#[inline(always)]
fn low_of(group: &[u8], size: usize, low: usize, i: usize) -> u64 {
    let mut b = [0u8; 8];
    b[..low].copy_from_slice(&group[i * size..i * size + low]);
    u64::from_le_bytes(b)
}

/// Bytes that groups with these counts take; `n` elements.
pub(crate) fn stored_size(counts: &[u8], n: usize, low: usize) -> usize {
    let group = |(g, &c): (usize, &u8)| {
        let n = GROUP.min(n - g * GROUP);
        if c == 0 { n * low } else { bitplane::size(n, 8 * low as u32 - u32::from(c)) }
    };
    counts.iter().enumerate().map(group).sum()
}

pub(crate) fn put(simd: Simd, raw: &[u8], size: usize, low: usize, counts: &[u8], out: &mut Vec<u8>) {
    let mut fields = [0u64; GROUP];
    out.reserve(stored_size(counts, raw.len() / size, low));
    let mut rest = raw;
    for run in counts.chunk_by(|a, b| a == b) {
        let (part, tail) = rest.split_at(rest.len().min(run.len() * GROUP * size));
        rest = tail;
        if run[0] == 0 {
            put_whole(simd, part, size, low, out);
            continue;
        }
        for group in part.chunks(GROUP * size) {
            let n = group.len() / size;
            for (i, f) in fields[..n].iter_mut().enumerate() {
                *f = low_of(group, size, low, i);
            }
            bitplane::put_wide(&fields[..n], u32::from(run[0]), 8 * low as u32, out);
        }
    }
}

fn put_whole(simd: Simd, part: &[u8], size: usize, low: usize, out: &mut Vec<u8>) {
    if (size, low) == (4, 2) {
        let mut halves = [0u8; 2 * CHUNK];
        for part in part.chunks(4 * CHUNK) {
            let halves = &mut halves[..part.len() / 2];
            simd.low_halves(part, halves);
            out.extend_from_slice(halves);
        }
        return;
    }
    part.chunks_exact(size).for_each(|e| out.extend_from_slice(&e[..low]));
}

/// The lower halves of 4-byte elements.
#[inline(always)]
pub(crate) fn low_halves(group: &[u8], out: &mut [u8]) {
    for (o, e) in out.as_chunks_mut::<2>().0.iter_mut().zip(group.as_chunks::<4>().0) {
        *o = (u32::from_le_bytes(*e) as u16).to_le_bytes();
    }
}

/// Reads the groups and joins them with the heads (two bytes each) into whole elements of `size` bytes.
pub(crate) fn get(
    simd: Simd,
    cursor: &mut Cursor<'_>,
    size: usize,
    low: usize,
    counts: &[u8],
    heads: &[u8],
    out: &mut [u8],
) -> Result<()> {
    let bits = 8 * low as u32;
    let mut fields = [0u64; GROUP];
    for ((group, heads), &c) in out.chunks_mut(GROUP * size).zip(heads.chunks(2 * GROUP)).zip(counts) {
        let fields = &mut fields[..heads.len() / 2];
        if c == 0 {
            let data = cursor.take(fields.len() * low)?;
            if (size, low) == (4, 2) {
                simd.join_halves(data, heads, group);
                continue;
            }
            for (f, d) in fields.iter_mut().zip(data.chunks_exact(low)) {
                *f = low_of(d, low, low, 0);
            }
        } else if u32::from(c) > bits {
            return Err(CodecError::Corrupt("more trailing zeros than bits"));
        } else {
            bitplane::get_wide(cursor, u32::from(c), bits, fields)?;
        }
        for ((e, f), h) in group.chunks_exact_mut(size).zip(fields.iter()).zip(heads.as_chunks::<2>().0) {
            e[..low].copy_from_slice(&f.to_le_bytes()[..low]);
            e[low..].copy_from_slice(h);
        }
    }
    Ok(())
}

/// Elements of 4 bytes from their lower halves and their heads, two bytes each.
#[inline(always)]
pub(crate) fn join_halves(data: &[u8], heads: &[u8], group: &mut [u8]) {
    for ((e, l), h) in
        group.as_chunks_mut::<4>().0.iter_mut().zip(data.as_chunks::<2>().0).zip(heads.as_chunks::<2>().0)
    {
        *e = (u32::from(u16::from_le_bytes(*h)) << 16 | u32::from(u16::from_le_bytes(*l))).to_le_bytes();
    }
}
