//! Fields of 1, 2 or 4 bits in bytes, the first element's lowest.
//!
//! Bytes are halved, and halves again, so that each step is a plain loop over bytes that a compiler makes wide.

/// Elements that are packed together: the smallest block has as many.
pub(super) const GROUP: usize = 32;
/// Bytes of a group of the widest fields.
const BYTES: usize = GROUP / 2;

/// Unpacks fields of `BITS` bits from as many bytes as they need.
#[inline(always)]
pub(super) fn unpack<const BITS: usize>(packed: &[u8], out: &mut [u8]) {
    for (out, packed) in out.chunks_mut(GROUP).zip(packed.chunks(GROUP * BITS / 8)) {
        let mut bytes = [0; BYTES];
        match packed.first_chunk() {
            Some(all) => bytes = *all,
            None => bytes[..packed.len()].copy_from_slice(packed),
        }
        let fields = match BITS {
            4 => halved::<BYTES, GROUP>(&bytes, 4),
            2 => halved::<BYTES, GROUP>(&halved::<8, BYTES>(&head(&bytes), 4), 2),
            _ => halved::<BYTES, GROUP>(&halved::<8, BYTES>(&halved::<4, 8>(&head(&bytes), 4), 2), 1),
        };
        match out.first_chunk_mut() {
            Some(all) => *all = fields,
            None => out.copy_from_slice(&fields[..out.len()]),
        }
    }
}

/// Packs fields of `BITS` bits, each below 2^`BITS`, into as many bytes as they need.
#[inline(always)]
pub(super) fn pack<const BITS: usize>(fields: &[u8], packed: &mut [u8]) {
    for (fields, packed) in fields.chunks(GROUP).zip(packed.chunks_mut(GROUP * BITS / 8)) {
        let mut group = [0; GROUP];
        match fields.first_chunk() {
            Some(all) => group = *all,
            None => group[..fields.len()].copy_from_slice(fields),
        }
        match BITS {
            4 => put(&joined::<GROUP, BYTES>(&group, 4), packed),
            2 => put(&joined::<BYTES, 8>(&joined::<GROUP, BYTES>(&group, 2), 4), packed),
            _ => put(&joined::<8, 4>(&joined::<BYTES, 8>(&joined::<GROUP, BYTES>(&group, 1), 2), 4), packed),
        }
    }
}

#[inline(always)]
fn head<const N: usize>(bytes: &[u8; BYTES]) -> [u8; N] {
    std::array::from_fn(|i| bytes[i])
}

#[inline(always)]
fn put<const N: usize>(bytes: &[u8; N], out: &mut [u8]) {
    match out.first_chunk_mut() {
        Some(all) => *all = *bytes,
        None => out.copy_from_slice(&bytes[..out.len()]),
    }
}

/// The lower `width` bits of each byte, and those above them: `M` is twice `N`.
#[inline(always)]
fn halved<const N: usize, const M: usize>(bytes: &[u8; N], width: u32) -> [u8; M] {
    let mut out = [0; M];
    for (o, b) in out.as_chunks_mut::<2>().0.iter_mut().zip(bytes) {
        *o = [b & ((1 << width) - 1), b >> width];
    }
    out
}

/// Pairs of fields of `width` bits as one: `M` is half of `N`.
#[inline(always)]
fn joined<const N: usize, const M: usize>(fields: &[u8; N], width: u32) -> [u8; M] {
    let mut out = [0; M];
    for (o, [low, high]) in out.iter_mut().zip(fields.as_chunks::<2>().0) {
        *o = low | high << width;
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::quant::uniform;

    fn check<const BITS: usize>() {
        for n in [0, 1, 3, 31, 32, 33, 64, 95, 512] {
            let fields: Vec<u8> = (0..n).map(|i| (uniform(7, i) * f64::from(1 << BITS)) as u8).collect();
            let mut packed = vec![0; (fields.len() * BITS).div_ceil(8)];
            pack::<BITS>(&fields, &mut packed);
            for (i, &field) in fields.iter().enumerate() {
                let at = i * BITS;
                assert_eq!(packed[at / 8] >> (at % 8) & ((1u16 << BITS) - 1) as u8, field, "{BITS} {n} {i}");
            }
            let mut back = vec![7; fields.len()];
            unpack::<BITS>(&packed, &mut back);
            assert_eq!(back, fields);
        }
    }

    #[test]
    fn fields_lie_where_the_format_says_and_come_back() {
        check::<1>();
        check::<2>();
        check::<4>();
    }
}
