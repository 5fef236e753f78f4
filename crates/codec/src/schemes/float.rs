//! Splits a float into symbol (exponent and top mantissa bits), raw field (sign and the rest of the top 16 bits) and
//! low bytes.
//!
//! NeuZip (arXiv 2410.20650, section 2.2) codes the exponent alone; the top mantissa bits are not uniform within a
//! binade, so coding some of them with it saves up to 0.07 bit an element.

use crate::Dtype;

/// How the bits of a float dtype are laid out, from the top: sign, exponent, mantissa.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Shape {
    /// Bytes of an element.
    pub size: usize,
    /// Exponent bits.
    pub exponent: u32,
    /// Bits of the head: the top two bytes, or the only one.
    pub head_bits: u32,
}

impl Shape {
    /// The layout of `dtype`, if it is a float.
    pub fn from_dtype(dtype: Dtype) -> Option<Shape> {
        let (exponent, head_bits) = match dtype {
            Dtype::F64 => (11, 16),
            Dtype::F32 | Dtype::BF16 => (8, 16),
            Dtype::F16 => (5, 16),
            Dtype::F8E4M3 => (4, 8),
            Dtype::F8E5M2 => (5, 8),
            _ => return None,
        };
        Some(Shape { size: dtype.size(), exponent, head_bits })
    }

    /// Bytes of an element below its head.
    pub fn low_bytes(self) -> usize {
        self.size - self.head_bits as usize / 8
    }
}

/// Where the head is cut: a key of `exponent + k` bits becomes the symbol, the other bits the raw field.
///
/// Key 0 is symbol 0, keys `lo..lo + 254` are symbols 1 to 254, any other key is an exception (symbol 255). Where the
/// key has at most 8 bits `lo` is 1 and the symbol is the key: there are no exceptions then.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Cut {
    /// The dtype's layout.
    pub shape: Shape,
    /// Mantissa bits in the key.
    pub k: u32,
    /// First key of the window.
    pub lo: u16,
}

/// The symbol of an element whose key is outside the window.
pub(crate) const EXCEPTION: u8 = 255;

impl Cut {
    /// Whether there is a window at all.
    pub fn windowed(self) -> bool {
        self.shape.exponent + self.k > 8
    }

    /// Bits of the raw field, sign included.
    pub fn field_bits(self) -> u32 {
        self.shape.head_bits - self.shape.exponent - self.k
    }

    /// Whether this is a cut that a decoder can follow.
    pub fn valid(self) -> bool {
        let key_bits = self.shape.exponent + self.k;
        let fits = key_bits < self.shape.head_bits && self.field_bits() <= 8;
        fits && if self.windowed() { self.lo >= 1 && u32::from(self.lo) + 254 < 1 << key_bits } else { self.lo == 1 }
    }

    /// The symbol of a key.
    #[inline(always)]
    pub(crate) fn symbol(self, key: u16) -> u8 {
        let in_window = key.wrapping_sub(self.lo);
        let s = if in_window < 254 + u16::from(!self.windowed()) { in_window as u8 + 1 } else { EXCEPTION };
        if key == 0 { 0 } else { s }
    }

    /// The key of an element's magnitude (the head without its sign).
    #[inline(always)]
    pub(crate) fn key(self, head: u16) -> u16 {
        (head & ((1u32 << (self.shape.head_bits - 1)) - 1) as u16) >> (self.field_bits() - 1)
    }

    /// The raw field of a head: sign on top of the bits below the key.
    #[inline(always)]
    pub(crate) fn field(self, head: u16) -> u8 {
        let below = self.field_bits() - 1;
        ((head >> (self.shape.head_bits - 1)) << below | head & ((1 << below) - 1)) as u8
    }

    /// The head that a symbol and a field came from (for exceptions: with some key).
    #[inline(always)]
    pub(crate) fn head(self, symbol: u8, field: u8) -> u16 {
        let key = if symbol == 0 { 0 } else { (self.lo - 1).wrapping_add(u16::from(symbol)) };
        self.head_of_key(key, field)
    }

    /// The head that a key and a field came from.
    #[inline(always)]
    pub(crate) fn head_of_key(self, key: u16, field: u8) -> u16 {
        let below = self.field_bits() - 1;
        let field = u16::from(field);
        (field >> below) << (self.shape.head_bits - 1) | key.wrapping_shl(below) | field & ((1 << below) - 1)
    }

    /// Symbols of the elements in `raw`.
    #[inline(always)]
    pub(crate) fn symbols(self, raw: &[u8], out: &mut [u8]) {
        match self.shape.size {
            1 => map_heads::<1>(raw, out, |h| self.symbol(self.key(h))),
            2 => map_heads::<2>(raw, out, |h| self.symbol(self.key(h))),
            4 => map_heads::<4>(raw, out, |h| self.symbol(self.key(h))),
            _ => map_heads::<8>(raw, out, |h| self.symbol(self.key(h))),
        }
    }

    /// Raw fields of the elements in `raw`.
    #[inline(always)]
    pub(crate) fn fields(self, raw: &[u8], out: &mut [u8]) {
        match self.shape.size {
            1 => map_heads::<1>(raw, out, |h| self.field(h)),
            2 => map_heads::<2>(raw, out, |h| self.field(h)),
            4 => map_heads::<4>(raw, out, |h| self.field(h)),
            _ => map_heads::<8>(raw, out, |h| self.field(h)),
        }
    }
}

#[inline(always)]
fn map_heads<const SIZE: usize>(raw: &[u8], out: &mut [u8], f: impl Fn(u16) -> u8) {
    let (elements, _) = raw.as_chunks::<SIZE>();
    for (e, o) in elements.iter().zip(out) {
        *o = f(head_of(e));
    }
}

/// The head of one little-endian element.
#[inline(always)]
fn head_of<const SIZE: usize>(e: &[u8; SIZE]) -> u16 {
    // Whole loads and a shift: the compiler makes vectors of them, but not of loads with gaps.
    match SIZE {
        1 => u16::from(e[0]),
        4 => (u32::from_le_bytes([e[0], e[1], e[2], e[3]]) >> 16) as u16,
        _ => u16::from_le_bytes([e[SIZE - 2], e[SIZE - 1]]),
    }
}

/// The head of element `i` of `raw`.
#[inline(always)]
pub(crate) fn head_at(raw: &[u8], size: usize, i: usize) -> u16 {
    let end = (i + 1) * size;
    if size == 1 { u16::from(raw[i]) } else { u16::from_le_bytes([raw[end - 2], raw[end - 1]]) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_head_comes_back_from_its_parts() {
        for dtype in Dtype::ALL {
            let Some(shape) = Shape::from_dtype(dtype) else { continue };
            for k in 0..8 {
                for lo in [1, 900, 1700] {
                    let cut = Cut { shape, k, lo };
                    if !cut.valid() {
                        continue;
                    }
                    for head in 0..1u32 << shape.head_bits {
                        let (head, key) = (head as u16, cut.key(head as u16));
                        let s = cut.symbol(key);
                        if cut.windowed() && s == EXCEPTION {
                            assert_eq!(cut.head_of_key(key, cut.field(head)), head);
                        } else {
                            assert_eq!(cut.head(s, cut.field(head)), head);
                        }
                    }
                }
            }
        }
    }
}
