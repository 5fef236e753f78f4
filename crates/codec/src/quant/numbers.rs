//! Floats as 16-bit keys, as f32 and as bf16.

use crate::{CodecError, Dtype, Result, quant::lattice::half};

pub(crate) use crate::quant::lattice::half::from_f16;

/// Keys there are.
pub(crate) const KEYS: usize = 1 << 16;
/// Keys of one sign: the key without its top bit.
pub(crate) const MAGNITUDES: u16 = 0x8000;

/// What a key stands for. The top bit is the sign on every grid and keys of one sign ascend with magnitude.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Grid {
    /// The upper 16 bits of an f32: an interval whose relative width is at most 2^-7. f64 is rounded to f32 before.
    F32,
    /// A whole bf16: one value.
    Bf16,
    /// A whole f16: one value.
    F16,
}

impl Grid {
    /// The grid of numbers of `dtype`.
    ///
    /// # Errors
    /// [`CodecError::BadInput`] unless it is f64, f32, f16 or bf16.
    pub fn from_dtype(dtype: Dtype) -> Result<Grid> {
        match dtype {
            Dtype::F64 | Dtype::F32 => Ok(Grid::F32),
            Dtype::BF16 => Ok(Grid::Bf16),
            Dtype::F16 => Ok(Grid::F16),
            _ => Err(CodecError::BadInput("only f64, f32, f16 and bf16 can be quantised")),
        }
    }

    /// Whether the key is of finite numbers.
    pub fn is_finite(self, key: u16) -> bool {
        key & self.infinity() != self.infinity()
    }

    /// The key of infinity, and the number of finite keys of one sign.
    pub(crate) fn infinity(self) -> u16 {
        if self == Grid::F16 { 0x7C00 } else { 0x7F80 }
    }

    /// The number that stands for the key: the value on a 16-bit grid; on [`Grid::F32`] the middle of the interval, at
    /// most 2^-8 (relative) from any number in it. Keys of zero give +0, which on [`Grid::F32`] is less than 2^-133
    /// away from the subnormals that share the key. Other subnormals are at most 2^-134 away.
    pub fn value(self, key: u16) -> f32 {
        if key & !MAGNITUDES == 0 {
            return 0.0;
        }
        match self {
            Grid::F32 => f32::from_bits(u32::from(key) << 16 | 0x8000),
            Grid::Bf16 => from_bf16(key),
            Grid::F16 => from_f16(key),
        }
    }

    /// The smallest magnitude in the key. A number `x` is in this key or a larger one of its sign exactly when
    /// `x.abs() >= low(key)`.
    pub fn low(self, key: u16) -> f32 {
        match self {
            Grid::F32 | Grid::Bf16 => from_bf16(key & !MAGNITUDES),
            Grid::F16 => from_f16(key & !MAGNITUDES),
        }
    }
}

/// Numbers: little-endian elements of one float dtype, checked to be a whole number of them.
#[derive(Clone, Copy, Debug)]
pub struct Values<'a> {
    dtype: Dtype,
    grid: Grid,
    bytes: &'a [u8],
}

impl<'a> Values<'a> {
    /// Elements of `dtype` (f64, f32, f16 or bf16).
    ///
    /// # Errors
    /// [`CodecError::BadInput`] for another dtype or a broken element at the end.
    pub fn new(dtype: Dtype, bytes: &'a [u8]) -> Result<Self> {
        let grid = Grid::from_dtype(dtype)?;
        if !bytes.len().is_multiple_of(dtype.size()) {
            return Err(CodecError::BadInput("the bytes are no whole number of elements"));
        }
        Ok(Values { dtype, grid, bytes })
    }

    /// Number of elements.
    pub fn len(self) -> usize {
        self.bytes.len() / self.dtype.size()
    }

    /// Whether there are none.
    pub fn is_empty(self) -> bool {
        self.bytes.is_empty()
    }

    /// Their element type.
    pub fn dtype(self) -> Dtype {
        self.dtype
    }

    /// What their keys stand for.
    pub fn grid(self) -> Grid {
        self.grid
    }

    /// The elements as f32; f64 is rounded (ties to even), the others are exact.
    pub fn to_f32(self) -> Vec<f32> {
        let mut out = Vec::new();
        self.widen(&mut out);
        out
    }

    /// The elements' bytes.
    pub fn bytes(self) -> &'a [u8] {
        self.bytes
    }

    /// Elements `start..start + n`, or what there is of them.
    #[must_use]
    pub fn part(self, start: usize, n: usize) -> Values<'a> {
        let (size, end) = (self.dtype.size(), self.len());
        let range = start.min(end) * size..start.saturating_add(n).min(end) * size;
        Values { bytes: &self.bytes[range], ..self }
    }

    /// Calls `f` with the elements' keys, four at a time, and with the last ones one by one.
    #[inline(always)]
    pub(crate) fn each_key(self, mut four: impl FnMut([u16; 4]), mut one: impl FnMut(u16)) {
        match self.dtype {
            Dtype::F64 => keys(self.bytes, |e: &[u8; 8]| (f64_at(e).to_bits() >> 16) as u16, four, one),
            Dtype::F32 => {
                // Two elements are one load.
                let fours = self.bytes.as_chunks::<8>().0.as_chunks::<2>().0;
                for pairs in fours {
                    let [a, b] = pairs.map(u64::from_le_bytes);
                    four([(a >> 16) as u16, (a >> 48) as u16, (b >> 16) as u16, (b >> 48) as u16]);
                }
                let tail = &self.bytes[fours.len() * 16..];
                tail.as_chunks::<4>().0.iter().for_each(|e| one(u16::from_le_bytes([e[2], e[3]])));
            }
            _ => keys(self.bytes, |e: &[u8; 2]| u16::from_le_bytes(*e), four, one),
        }
    }

    /// Appends the elements' keys to `out`.
    pub(crate) fn push_keys(self, out: &mut Vec<u16>) {
        match self.dtype {
            Dtype::F64 => out.extend(self.bytes.as_chunks::<8>().0.iter().map(|e| (f64_at(e).to_bits() >> 16) as u16)),
            Dtype::F32 => out.extend(self.bytes.as_chunks::<4>().0.iter().map(|e| u16::from_le_bytes([e[2], e[3]]))),
            _ => out.extend(self.bytes.as_chunks::<2>().0.iter().map(|e| u16::from_le_bytes(*e))),
        }
    }

    /// Replaces `out` by the elements as f32; f64 is rounded (ties to even), the others are exact.
    pub fn widen(self, out: &mut Vec<f32>) {
        out.clear();
        out.resize(self.len(), 0.0);
        self.widen_to(out);
    }

    /// Writes the elements to `out` as f32, as many as it holds; f64 is rounded (ties to even), the others are exact.
    #[inline(always)]
    pub(crate) fn widen_to(self, out: &mut [f32]) {
        match self.dtype {
            Dtype::F64 => {
                for (o, e) in out.iter_mut().zip(self.bytes.as_chunks::<8>().0) {
                    *o = f64_at(e);
                }
            }
            dtype => half::widen(dtype, self.bytes, out),
        }
    }
}

#[inline(always)]
fn keys<const N: usize>(
    bytes: &[u8],
    key: impl Fn(&[u8; N]) -> u16,
    mut four: impl FnMut([u16; 4]),
    one: impl FnMut(u16),
) {
    let (fours, rest) = bytes.as_chunks::<N>().0.as_chunks::<4>();
    fours.iter().for_each(|[a, b, c, d]| four([key(a), key(b), key(c), key(d)]));
    rest.iter().map(key).for_each(one);
}

#[inline(always)]
fn f64_at(e: &[u8; 8]) -> f32 {
    f64::from_le_bytes(*e) as f32
}

/// Writes finite numbers as little-endian elements of a float dtype (bf16 unless it is f64, f32 or f16).
#[inline(always)]
pub fn put_all(dtype: Dtype, values: &[f32], out: &mut [u8]) {
    match dtype {
        Dtype::F64 => put(values, out, |x| f64::from(x).to_le_bytes()),
        Dtype::F32 => put(values, out, f32::to_le_bytes),
        Dtype::F16 => put(values, out, |x| to_f16(x).to_le_bytes()),
        _ => put(values, out, |x| to_bf16(x).to_le_bytes()),
    }
}

#[inline(always)]
fn put<const N: usize>(values: &[f32], out: &mut [u8], element: impl Fn(f32) -> [u8; N]) {
    for (o, &x) in out.as_chunks_mut::<N>().0.iter_mut().zip(values) {
        *o = element(x);
    }
}

/// The value of a bf16.
pub fn from_bf16(bits: u16) -> f32 {
    f32::from_bits(u32::from(bits) << 16)
}

/// The nearest bf16 of a finite number, ties to even; the largest finite one where that would be an infinity.
#[inline(always)]
pub(crate) fn to_bf16(x: f32) -> u16 {
    let bits = half::to_bf16(x);
    bits & 0x8000 | (bits & 0x7FFF).min(0x7F7F)
}

/// The nearest f16 of a finite number, ties to even; the largest finite one where that would be an infinity.
#[inline(always)]
pub fn to_f16(x: f32) -> u16 {
    let bits = half::to_f16(x);
    bits & 0x8000 | (bits & 0x7FFF).min(0x7BFF)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn halves_round_trip_and_round_to_even() {
        for bits in 0..=u16::MAX {
            if Grid::F16.is_finite(bits) {
                assert_eq!(to_f16(from_f16(bits)), bits);
            }
            if Grid::Bf16.is_finite(bits) {
                assert_eq!(to_bf16(from_bf16(bits)), bits);
            }
            assert_eq!(from_f16(bits).is_finite(), Grid::F16.is_finite(bits));
            assert_eq!(from_bf16(bits).is_finite(), Grid::Bf16.is_finite(bits));
        }
        // Halfway between neighbours: the even one. Just above: the upper one.
        for bits in 0..0x7BFFu16 {
            let middle = (from_f16(bits) + from_f16(bits + 1)) / 2.0;
            assert_eq!(to_f16(middle), bits + (bits & 1));
            assert_eq!(to_f16(f32::from_bits(middle.to_bits() + 1)), bits + 1);
        }
        assert_eq!((to_bf16(f32::MAX), to_bf16(f32::MIN)), (0x7F7F, 0xFF7F));
        assert_eq!((to_f16(1e9), to_f16(-65519.0)), (0x7BFF, 0xFBFF));
    }

    #[test]
    fn every_dtype_gives_its_keys() {
        let numbers = [0.0f32, -1.5, 3.0e-3, 65504.0, 1.0, -0.25, 7.0];
        let bytes = |f: &dyn Fn(f32) -> Vec<u8>| numbers.iter().flat_map(|&x| f(x)).collect::<Vec<u8>>();
        let keys = |dtype, bytes: &[u8]| {
            let mut out = Vec::new();
            Values::new(dtype, bytes).unwrap().push_keys(&mut out);
            out
        };
        let f32s = keys(Dtype::F32, &bytes(&|x| x.to_le_bytes().to_vec()));
        assert_eq!(f32s, numbers.map(|x| (x.to_bits() >> 16) as u16));
        assert_eq!(keys(Dtype::F64, &bytes(&|x| f64::from(x).to_le_bytes().to_vec())), f32s);
        let f16s = numbers.map(to_f16);
        assert_eq!(keys(Dtype::F16, &bytes(&|x| to_f16(x).to_le_bytes().to_vec())), f16s);
        assert!(Values::new(Dtype::F32, &[0; 7]).is_err());
        assert!(Values::new(Dtype::I16, &[0; 8]).is_err());
    }
}
