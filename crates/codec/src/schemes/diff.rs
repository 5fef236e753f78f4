//! Numeric differences of elements: the monotone integer of a float, and the class of a difference.
//!
//! A float's bits, read as sign and magnitude, become an integer of the same order, so that a small step of a weight is
//! a small difference also across a power of two and across zero (-0.0 is -1, one below 0.0).

use crate::Dtype;

/// How two elements of a dtype are compared.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Numbers {
    /// Bytes of a number (complex types are two or more numbers).
    pub size: usize,
    float: bool,
    /// Mantissa bits and what is taken off the exponent, for contexts.
    mantissa: u32,
    offset: u64,
}

/// Bytes of one of the numbers that `dtype` is made of.
pub fn number_size(dtype: Dtype) -> usize {
    Numbers::from_dtype(dtype).size
}

impl Numbers {
    /// The numbers that `dtype` is made of.
    pub fn from_dtype(dtype: Dtype) -> Self {
        let (size, float, mantissa, offset) = match dtype {
            Dtype::F64 => (8, true, 52, 1023 - 127),
            Dtype::F32 => (4, true, 23, 0),
            Dtype::F16 => (2, true, 10, 0),
            Dtype::BF16 => (2, true, 7, 0),
            Dtype::F8E4M3 => (1, true, 3, 0),
            Dtype::F8E5M2 => (1, true, 2, 0),
            Dtype::C64 | Dtype::C128 => (8, false, 0, 0),
            _ => (dtype.size(), false, 0, 0),
        };
        Numbers { size, float, mantissa, offset }
    }

    /// The numbers without their `zero` lowest bytes, which is fewer than they have: for differences, not for `load`.
    pub(crate) fn heads(self, zero: u8) -> Self {
        Numbers { size: self.size - usize::from(zero), ..self }
    }

    /// Most bits under the top one that may join the class: a class must fit a byte.
    pub(crate) fn max_t(self) -> u32 {
        match self.size {
            8 => 1,
            4 => 2,
            _ => 3,
        }
    }

    /// Whether the top bit is a sign and the others a magnitude.
    pub fn is_float(self) -> bool {
        self.float
    }

    fn bits(self) -> u32 {
        8 * self.size as u32
    }

    /// What a device must know: size | whether it is a float << 32, mantissa bits | what is taken off the exponent <<
    /// 32.
    pub fn words(self) -> [u64; 2] {
        [self.size as u64 | u64::from(self.float) << 32, u64::from(self.mantissa) | self.offset << 32]
    }

    /// For floats of at most 4 bytes: how far up the exponent is, and the mask of its bits; of other types a mask of 0.
    pub(crate) fn exponent_field(self) -> [u32; 2] {
        let bits = if self.float { self.bits() - 1 - self.mantissa } else { 0 };
        [self.mantissa, (1 << bits.min(8)) - 1]
    }

    /// How many exponents [`context`](Self::context) tells apart: all are below.
    pub fn exponents(self) -> usize {
        if self.float { 1 << (self.bits() - 1 - self.mantissa).min(8) } else { 1 }
    }

    /// The monotone integer of an element, as the low bits of a word.
    #[inline(always)]
    fn monotone(self, bits: u64) -> u64 {
        let w = self.bits();
        if self.float && bits >> (w - 1) != 0 { bits ^ ((1 << (w - 1)) - 1) } else { bits }
    }

    /// The monotone integer, signed: in the order of the numbers.
    #[inline(always)]
    pub(crate) fn ordered(self, bits: u64) -> i64 {
        let w = self.bits();
        (self.monotone(bits) << (64 - w)) as i64 >> (64 - w)
    }

    /// Sets the entries of all keys (upper 16 bits of numbers) whose monotone integers have their upper 16 bits in
    /// `ordered`.
    pub(crate) fn fill_keys(self, table: &mut [u16; 1 << 16], ordered: std::ops::Range<i32>, to: u16) {
        let (negative, rest) = (ordered.start..ordered.end.min(0), ordered.start.max(0)..ordered.end);
        for part in [negative, rest] {
            if part.is_empty() {
                continue;
            }
            let ends = [part.start, part.end - 1].map(|k| usize::from(self.key(k as i16)));
            table[ends[0].min(ends[1])..=ends[0].max(ends[1])].fill(to);
        }
    }

    /// The upper 16 bits of the numbers whose monotone integers have `ordered` as their upper 16 bits.
    pub(crate) fn key(self, ordered: i16) -> u16 {
        if self.float && ordered < 0 { ordered as u16 ^ 0x7fff } else { ordered as u16 }
    }

    /// `new - old` as a signed number (wrapping in the width of the element); of floats with a negative base, the
    /// opposite. Positive then means away from zero: weights that move far move back more often than on.
    #[inline(always)]
    pub(crate) fn difference(self, new: u64, old: u64) -> i64 {
        let w = self.bits();
        let d = self.monotone(new).wrapping_sub(self.monotone(old));
        self.turn(old, (d << (64 - w)) as i64 >> (64 - w))
    }

    /// The element whose [`difference`](Self::difference) to `old` is `d`.
    #[inline(always)]
    pub(crate) fn apply(self, old: u64, d: i64) -> u64 {
        let w = self.bits();
        let m = self.monotone(old).wrapping_add(self.turn(old, d) as u64) & (u64::MAX >> (64 - w));
        self.monotone(m)
    }

    #[inline(always)]
    fn turn(self, old: u64, d: i64) -> i64 {
        if self.float && old >> (self.bits() - 1) != 0 { d.wrapping_neg() } else { d }
    }

    /// The context of a base element: its exponent (f64: brought into the range of an f32's and cut off there); 0 for
    /// types without one.
    #[inline(always)]
    pub(crate) fn context(self, base: u64) -> u8 {
        if !self.float {
            return 0;
        }
        let e = base >> self.mantissa & ((1 << (self.bits() - 1 - self.mantissa)) - 1);
        e.saturating_sub(self.offset).min(255) as u8
    }

    /// Element `i` of `raw`.
    #[inline(always)]
    pub(crate) fn load(self, raw: &[u8], i: usize) -> u64 {
        match self.size {
            1 => u64::from(raw[i]),
            2 => u64::from(u16::from_le_bytes(raw.as_chunks().0[i])),
            4 => u64::from(u32::from_le_bytes(raw.as_chunks().0[i])),
            _ => u64::from_le_bytes(raw.as_chunks().0[i]),
        }
    }

    /// Overwrites element `i` of `raw`.
    #[inline(always)]
    pub(crate) fn store(self, raw: &mut [u8], i: usize, v: u64) {
        match self.size {
            1 => raw[i] = v as u8,
            2 => raw.as_chunks_mut().0[i] = (v as u16).to_le_bytes(),
            4 => raw.as_chunks_mut().0[i] = (v as u32).to_le_bytes(),
            _ => raw.as_chunks_mut().0[i] = v.to_le_bytes(),
        }
    }
}

/// The class of a magnitude: itself below 2^t, then its top bit's position and the t bits under it. Classes are
/// contiguous; the bits below are coded raw.
#[inline(always)]
pub(crate) fn class_of(m: u64, t: u32) -> u8 {
    let p = (63 - (m | 1).leading_zeros()).max(t);
    (u64::from(p - t) << t).wrapping_add(m >> (p - t)) as u8
}

/// For a class: the smallest magnitude in it and the number of raw bits.
#[inline(always)]
pub(crate) fn class_base(class: u8, t: u32) -> (u64, u32) {
    let c = u64::from(class);
    if c >> t < 2 {
        return (c, 0);
    }
    let raw = (c >> t) as u32 - 1;
    (((1 << t) | (c & ((1 << t) - 1))).checked_shl(raw).unwrap_or(0), raw)
}

/// The symbol of a signed difference: 0 for 0, odd for positive, even for negative.
#[inline(always)]
pub(crate) fn symbol_of(d: i64, t: u32) -> u8 {
    let c = class_of(d.unsigned_abs(), t);
    c.wrapping_mul(2).wrapping_sub(u8::from(d > 0))
}

/// For all symbols: the smallest magnitude and the number of raw bits. Symbols no encoder makes get at most 63 raw
/// bits.
pub(crate) fn symbol_bases(t: u32) -> [(u64, u32); 256] {
    std::array::from_fn(|s| {
        let (base, raw) = class_base(s.div_ceil(2) as u8, t);
        (base, raw.min(63))
    })
}

/// The difference that a symbol's magnitude and sign make.
#[inline(always)]
pub(crate) fn signed(symbol: u8, magnitude: u64) -> i64 {
    if symbol & 1 == 1 { magnitude as i64 } else { (magnitude as i64).wrapping_neg() }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn classes_are_contiguous_and_come_back() {
        for t in 0..4 {
            let mut next = 0u64;
            for class in 0..=130u8 {
                let (base, raw) = class_base(class, t);
                if raw + t >= 63 {
                    break;
                }
                assert_eq!(base, next);
                assert_eq!((class_of(base, t), class_of(base + (1 << raw) - 1, t)), (class, class));
                next = base + (1 << raw);
            }
        }
    }

    #[test]
    fn differences_undo_and_keep_order() {
        for dtype in Dtype::ALL {
            let n = Numbers::from_dtype(dtype);
            let mask = u64::MAX >> (64 - n.bits());
            let values = [0, 1, 0x80, 0x7f80, 0x8000, 0x7fc0_0001, 0x8000_0000, 0x8000_0000_0000_0000, u64::MAX];
            for a in values.map(|v| v & mask) {
                for b in values.map(|v| v & mask) {
                    let d = n.difference(a, b);
                    assert_eq!(n.apply(b, d), a);
                    for t in 0..=n.max_t() {
                        let s = symbol_of(d, t);
                        let (base, raw) = symbol_bases(t)[usize::from(s)];
                        let low = d.unsigned_abs() - base;
                        assert!(raw < 64 && low >> raw == 0);
                        assert_eq!(signed(s, base + low), d, "{dtype} {a:x} {b:x} {t}");
                    }
                }
            }
        }
        let n = Numbers::from_dtype(Dtype::F32);
        assert_eq!(n.difference(0.0f32.to_bits().into(), (-0.0f32).to_bits().into()), -1);
        assert_eq!(n.difference((-1.5f32).to_bits().into(), (-1.0f32).to_bits().into()), 1 << 22);
        assert_eq!(n.difference(1.0f32.to_bits().into(), 0.99999994f32.to_bits().into()), 1);
        assert_eq!(n.context(1.5f32.to_bits().into()), 127);
        assert_eq!(Numbers::from_dtype(Dtype::F64).context(1.5f64.to_bits()), 127);
        for dtype in Dtype::ALL {
            let n = Numbers::from_dtype(dtype);
            let most = (0..64).map(|b| n.context(u64::MAX >> (64 - n.bits()) >> b)).max();
            assert_eq!(usize::from(most.unwrap_or(0)) + 1, n.exponents(), "{dtype}");
        }
    }
}
