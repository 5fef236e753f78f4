//! Elias delta codes for the numbers of a table.

use crate::{
    CodecError, Result,
    entropy::{BitReader, BitWriter},
};

/// Most bits of a number: the zigzag of a 32-bit token, plus 1.
const NUMBER_BITS: u32 = 33;

/// Elias delta: the bit length of the bit length in unary, the bit length, the number (at least 1), each without its
/// top bit.
pub(super) fn put_number(w: &mut BitWriter, v: u64) {
    let len = u64::from(64 - v.leading_zeros());
    let len_bits = 64 - len.leading_zeros();
    w.put(1 << (len_bits - 1), len_bits);
    w.put(len ^ 1 << (len_bits - 1), len_bits - 1);
    w.put(v ^ 1 << (len - 1), len as u32 - 1);
}

/// Reads what [`put_number`] wrote; numbers of at most 33 bits, never 0.
pub(super) fn get_number(r: &mut BitReader<'_>) -> Result<u64> {
    let zeros = r.peek().trailing_zeros();
    if zeros > NUMBER_BITS.ilog2() {
        return Err(CodecError::Corrupt("a number too large"));
    }
    r.skip(zeros + 1);
    let len = 1 << zeros | r.get(zeros) as u32;
    if len > NUMBER_BITS {
        return Err(CodecError::Corrupt("a number too large"));
    }
    Ok(1 << (len - 1) | r.get(len - 1))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_of_every_length_come_back() {
        let numbers: Vec<u64> = (0..=32).flat_map(|b| [1 << b, (1 << b) + (1 << b) / 2]).collect();
        let mut w = BitWriter::default();
        numbers.iter().for_each(|&v| put_number(&mut w, v));
        let bytes = w.finish();
        let mut r = BitReader::new(&bytes);
        numbers.iter().for_each(|&v| assert_eq!(get_number(&mut r), Ok(v)));
        assert!(get_number(&mut BitReader::new(&[0; 9])).is_err());
        // 63 bits long: zeros, then all ones.
        assert!(get_number(&mut BitReader::new(&[0xe0, 255, 255])).is_err());
    }
}
