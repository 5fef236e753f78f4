//! Fields of a few bits, stored as bit planes of 32 elements: plane j of a group is one 32-bit word whose bit i is bit
//! j of element i (a warp ballot, an AVX2 byte mask).

use crate::{Result, entropy::Cursor};

/// Elements of a group.
pub(crate) const GROUP: usize = 32;

/// Bytes that `n` fields of `bits` bits take: whole groups.
pub(crate) fn size(n: usize, bits: u32) -> usize {
    n.div_ceil(GROUP) * bits as usize * 4
}

/// Appends the planes of byte fields (only their low `bits` bits are kept). Elements past the end count as zero.
#[inline(always)]
pub(crate) fn put(fields: &[u8], bits: u32, out: &mut Vec<u8>) {
    for group in fields.chunks(GROUP) {
        for j in 0..bits {
            let word = group.iter().enumerate().fold(0u32, |w, (i, &f)| w | u32::from(f >> j & 1) << i);
            out.extend_from_slice(&word.to_le_bytes());
        }
    }
}

/// Reads the planes of `out.len()` byte fields from `planes`, which has [`size`] bytes.
#[inline(always)]
pub(crate) fn get(planes: &[u8], bits: u32, out: &mut [u8]) {
    out.fill(0);
    if bits == 0 {
        return;
    }
    for (group, words) in out.chunks_mut(GROUP).zip(planes.chunks_exact(bits as usize * 4)) {
        for (j, w) in words.as_chunks::<4>().0.iter().enumerate() {
            let word = u32::from_le_bytes(*w);
            for (i, f) in group.iter_mut().enumerate() {
                *f |= ((word >> i & 1) as u8) << j;
            }
        }
    }
}

/// Appends bits `from..to` of wide fields, plane by plane within each group.
pub(crate) fn put_wide(fields: &[u64], from: u32, to: u32, out: &mut Vec<u8>) {
    for group in fields.chunks(GROUP) {
        for j in from..to {
            let word = group.iter().enumerate().fold(0u32, |w, (i, &f)| w | ((f >> j & 1) as u32) << i);
            out.extend_from_slice(&word.to_le_bytes());
        }
    }
}

/// Reads what [`put_wide`] wrote; other bits are zero.
pub(crate) fn get_wide(cursor: &mut Cursor<'_>, from: u32, to: u32, out: &mut [u64]) -> Result<()> {
    out.fill(0);
    for group in out.chunks_mut(GROUP) {
        for j in from..to {
            let word = cursor.u32()?;
            for (i, f) in group.iter_mut().enumerate() {
                *f |= u64::from(word >> i & 1) << j;
            }
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn fields_come_back() {
        for n in [0, 1, 31, 32, 33, 100] {
            let fields: Vec<u8> = (0..n).map(|i| (i * 37 % 256) as u8).collect();
            for bits in 0..=8 {
                let kept: Vec<u8> = fields.iter().map(|&f| f & ((1u16 << bits) - 1) as u8).collect();
                let mut planes = Vec::new();
                put(&kept, bits, &mut planes);
                assert_eq!(planes.len(), size(n, bits));
                let mut back = vec![1; n];
                get(&planes, bits, &mut back);
                assert_eq!(back, kept);
            }
        }
    }
}
