//! Bit packing and varints, shared by every coder.
//!
//! Bits are packed least significant first, as docs/format-segments.md says ("Conventions").

use crate::{CodecError, Result};

/// Appends bit fields to a byte vector, least significant bit first.
#[derive(Debug, Default)]
pub struct BitWriter {
    out: Vec<u8>,
    acc: u64,
    fill: u32,
}

impl BitWriter {
    /// A writer that will hold about `bytes` bytes.
    pub(crate) fn with_capacity(bytes: usize) -> Self {
        BitWriter { out: Vec::with_capacity(bytes), acc: 0, fill: 0 }
    }

    /// Appends the low `width` bits of `value`; higher bits of `value` must be zero. `width` is at most 56.
    #[inline(always)]
    pub fn put(&mut self, value: u64, width: u32) {
        debug_assert!(width <= 56 && value >> width == 0);
        self.acc |= value << self.fill;
        self.fill += width;
        let whole = self.fill / 8;
        // Eight bytes go out and the surplus is cut off again: one store instead of a loop over bytes.
        self.out.extend_from_slice(&self.acc.to_le_bytes());
        self.out.truncate(self.out.len() - 8 + whole as usize);
        self.acc = if whole == 8 { 0 } else { self.acc >> (whole * 8) };
        self.fill -= whole * 8;
    }

    /// As [`put`](Self::put) for widths up to 64.
    #[inline(always)]
    pub(crate) fn put_wide(&mut self, value: u64, width: u32) {
        if width <= 32 {
            self.put(value, width);
        } else {
            self.put(value & 0xffff_ffff, 32);
            self.put(value >> 32, width - 32);
        }
    }

    /// Appends fields of these widths, at most 56 each.
    #[inline]
    pub(crate) fn put_all(&mut self, fields: &[u64], widths: &[u64]) {
        // Eight bytes go out each time and the next ones over what is not whole yet: no branch, no length to change.
        let mut at = self.out.len();
        self.out.resize(at + 8 * (fields.len() + 1), 0);
        for (&field, &width) in fields.iter().zip(widths) {
            self.acc |= field << self.fill;
            self.out[at..at + 8].copy_from_slice(&self.acc.to_le_bytes());
            self.fill += width as u32;
            at += self.fill as usize / 8;
            self.acc >>= self.fill & 56;
            self.fill &= 7;
        }
        self.out.truncate(at);
    }

    /// The bytes, the last one padded with zero bits.
    pub fn finish(mut self) -> Vec<u8> {
        if self.fill > 0 {
            self.out.push(self.acc as u8);
        }
        self.out
    }
}

/// Reads bit fields, least significant bit first. Past the end it reads zeros; `ended_well` tells.
#[derive(Debug)]
pub struct BitReader<'a> {
    data: &'a [u8],
    pos: usize,
}

impl<'a> BitReader<'a> {
    /// A reader at the first bit of `data`.
    pub fn new(data: &'a [u8]) -> Self {
        BitReader { data, pos: 0 }
    }

    /// The next 57 or more bits (zeros past the end), without moving.
    #[inline(always)]
    pub(crate) fn peek(&self) -> u64 {
        let byte = self.pos >> 3;
        let word = match self.data.get(byte..byte + 8) {
            Some(s) => u64::from_le_bytes(s.try_into().unwrap_or_default()),
            None => tail_word(self.data, byte),
        };
        word >> (self.pos & 7)
    }

    /// Moves on by `width` bits.
    #[inline(always)]
    pub(crate) fn skip(&mut self, width: u32) {
        self.pos += width as usize;
    }

    /// The bytes from the next bit's on, and the place of that bit in the first of them.
    pub(crate) fn rest(&self) -> (&'a [u8], usize) {
        (self.data.get(self.pos >> 3..).unwrap_or_default(), self.pos & 7)
    }

    /// Reads `width` bits, at most 56.
    #[inline(always)]
    pub fn get(&mut self, width: u32) -> u64 {
        let v = self.peek() & ((1u64 << width) - 1);
        self.skip(width);
        v
    }

    /// Reads `width` bits, at most 64.
    #[inline(always)]
    pub(crate) fn get_wide(&mut self, width: u32) -> u64 {
        if width <= 32 {
            self.get(width)
        } else {
            let low = self.get(32);
            low | self.get(width - 32) << 32
        }
    }

    /// Bits between here and the end; 0 past it.
    #[inline(always)]
    pub(crate) fn bits_left(&self) -> usize {
        (self.data.len() * 8).saturating_sub(self.pos)
    }

    /// Bytes touched so far.
    pub(crate) fn bytes_used(&self) -> usize {
        self.pos.div_ceil(8)
    }

    /// Whether the bits read so far end within the last byte of the data: neither past it nor short of it.
    pub(crate) fn ended_well(&self) -> bool {
        self.bytes_used() == self.data.len()
    }
}

#[cold]
fn tail_word(data: &[u8], byte: usize) -> u64 {
    let mut w = [0u8; 8];
    let rest = data.get(byte..).unwrap_or_default();
    let n = rest.len().min(8);
    w[..n].copy_from_slice(&rest[..n]);
    u64::from_le_bytes(w)
}

/// Appends `v` as LEB128.
pub fn put_varint(out: &mut Vec<u8>, mut v: u64) {
    while v >= 0x80 {
        out.push(v as u8 | 0x80);
        v >>= 7;
    }
    out.push(v as u8);
}

/// Appends what `put` appends, after its length in four bytes.
pub(crate) fn put_with_length(out: &mut Vec<u8>, put: impl FnOnce(&mut Vec<u8>)) {
    let start = out.len();
    out.extend_from_slice(&[0; 4]);
    put(out);
    let len = (out.len() - start - 4) as u32;
    out[start..start + 4].copy_from_slice(&len.to_le_bytes());
}

/// A cursor over untrusted bytes; every read is checked.
#[derive(Clone, Debug)]
pub struct Cursor<'a> {
    rest: &'a [u8],
}

impl<'a> Cursor<'a> {
    /// A cursor at the start of `data`.
    pub fn new(data: &'a [u8]) -> Self {
        Cursor { rest: data }
    }

    /// The bytes not read yet.
    pub fn rest(&self) -> &'a [u8] {
        self.rest
    }

    /// The next `n` bytes.
    pub fn take(&mut self, n: usize) -> Result<&'a [u8]> {
        if n > self.rest.len() {
            return Err(CodecError::Corrupt("truncated"));
        }
        let (head, tail) = self.rest.split_at(n);
        self.rest = tail;
        Ok(head)
    }

    /// One byte.
    pub fn u8(&mut self) -> Result<u8> {
        Ok(self.take(1)?[0])
    }

    /// A little-endian 16-bit number.
    pub fn u16(&mut self) -> Result<u16> {
        let b = self.take(2)?;
        Ok(u16::from_le_bytes([b[0], b[1]]))
    }

    /// A little-endian 32-bit number.
    pub fn u32(&mut self) -> Result<u32> {
        let b = self.take(4)?;
        Ok(u32::from_le_bytes([b[0], b[1], b[2], b[3]]))
    }

    /// A LEB128 number of at most five bytes.
    pub fn varint(&mut self) -> Result<usize> {
        self.leb128(35).map(|v| v as usize)
    }

    /// A LEB128 number of at most nine bytes (63 bits).
    pub(crate) fn varint64(&mut self) -> Result<u64> {
        self.leb128(63)
    }

    #[inline(always)]
    fn leb128(&mut self, bits: u32) -> Result<u64> {
        let mut v = 0u64;
        for shift in (0..bits).step_by(7) {
            let b = self.u8()?;
            v |= u64::from(b & 0x7f) << shift;
            if b < 0x80 {
                return Ok(v);
            }
        }
        Err(CodecError::Corrupt("overlong number"))
    }

    /// Succeeds when everything was read.
    pub fn done(&self) -> Result<()> {
        if self.rest.is_empty() { Ok(()) } else { Err(CodecError::Corrupt("trailing bytes")) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn fields_of_every_width_come_back() {
        let mut w = BitWriter::default();
        for width in 0..=64u32 {
            w.put_wide(0x9e37_79b9_7f4a_7c15u64.checked_shr(64 - width).unwrap_or(0), width);
        }
        let bytes = w.finish();
        let mut r = BitReader::new(&bytes);
        for width in 0..=64u32 {
            assert_eq!(r.get_wide(width), 0x9e37_79b9_7f4a_7c15u64.checked_shr(64 - width).unwrap_or(0), "{width}");
        }
        assert!(r.ended_well());
        r.get(20);
        assert!(!r.ended_well());
    }

    #[test]
    fn varints_come_back_and_overlong_ones_do_not() {
        for v in [0u64, 1, 127, 128, 300, 1 << 23, u64::from(u32::MAX)] {
            let mut b = Vec::new();
            put_varint(&mut b, v);
            let mut c = Cursor::new(&b);
            assert_eq!(c.varint(), Ok(v as usize));
            assert!(c.done().is_ok());
        }
        assert!(Cursor::new(&[0xff; 9]).varint().is_err());
    }
}
