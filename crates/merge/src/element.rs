//! Elements of float dtypes as f64, and back with one rounding to the nearest, ties to even.

use crate::MergeError;
use mdl_codec::Dtype;

/// A float of at most 16 bits: sign, exponent, mantissa from the top bit down.
#[derive(Clone, Copy)]
struct Small {
    exponent_bits: u32,
    mantissa_bits: u32,
    /// Code of the first magnitude that is not finite.
    beyond: u16,
    /// Code of the NaN that is written.
    nan: u16,
}

const F16: Small = Small { exponent_bits: 5, mantissa_bits: 10, beyond: 0x7c00, nan: 0x7e00 };
const BF16: Small = Small { exponent_bits: 8, mantissa_bits: 7, beyond: 0x7f80, nan: 0x7fc0 };
const F8E5M2: Small = Small { exponent_bits: 5, mantissa_bits: 2, beyond: 0x7c, nan: 0x7e };
/// No infinity: its largest exponent has numbers too, and all ones is NaN.
const F8E4M3: Small = Small { exponent_bits: 4, mantissa_bits: 3, beyond: 0x7f, nan: 0x7f };

const SIGN: u64 = 1 << 63;
const MANTISSA: u64 = (1 << 52) - 1;

impl Small {
    const fn has_infinity(self) -> bool {
        self.beyond != self.nan
    }

    const fn sign_at(self) -> u32 {
        self.exponent_bits + self.mantissa_bits
    }

    /// Exponent of the smallest normal number.
    const fn least_exponent(self) -> i32 {
        2 - (1 << (self.exponent_bits - 1))
    }

    /// The number, exactly. Every NaN becomes the same one.
    fn widen(self, code: u16) -> f64 {
        let magnitude = code & !(1 << self.sign_at());
        if magnitude >= self.beyond {
            let infinite = self.has_infinity() && magnitude == self.beyond;
            let value = if infinite { f64::INFINITY } else { return f64::NAN };
            return if magnitude == code { value } else { -value };
        }
        let exponent = i32::from(magnitude >> self.mantissa_bits);
        let mantissa = magnitude & ((1 << self.mantissa_bits) - 1);
        let (significand, exponent) = match exponent {
            0 => (mantissa, 0),
            _ => (mantissa | 1 << self.mantissa_bits, exponent - 1),
        };
        let value = f64::from(significand) * power_of_two(exponent + self.least_exponent() - self.mantissa_bits as i32);
        if magnitude == code { value } else { -value }
    }

    /// The number, rounded.
    fn round(self, value: f64) -> u16 {
        let bits = value.to_bits();
        let sign = ((bits >> 63) as u16) << self.sign_at();
        if value.is_nan() {
            return self.nan;
        }
        let exponent = ((bits & !SIGN) >> 52) as i32 - 1023;
        // Subnormal f64 are far below half of the smallest number.
        if exponent < -1022 {
            return sign;
        }
        let stored_exponent = exponent.max(self.least_exponent());
        let dropped = 52 - self.mantissa_bits as i32 + (stored_exponent - exponent);
        if dropped > 53 {
            return sign;
        }
        let significand = bits & MANTISSA | 1 << 52;
        let (mut kept, rest) = (significand >> dropped, significand & ((1 << dropped) - 1));
        let half = 1u64 << (dropped - 1);
        kept += u64::from(rest > half || (rest == half && kept & 1 == 1));
        // The leading one of a normal number adds itself to the exponent, and so does a carry.
        let code = ((stored_exponent - self.least_exponent()) as u64) << self.mantissa_bits;
        let code = code + kept;
        match code < u64::from(self.beyond) {
            true => sign | code as u16,
            false if self.has_infinity() => sign | self.beyond,
            false => self.nan,
        }
    }
}

/// 2^n, for a normal f64 (-1022..=1023).
pub(crate) fn power_of_two(n: i32) -> f64 {
    f64::from_bits(((n + 1023) as u64) << 52)
}

/// The dtype, if its elements can be merged.
pub(crate) fn check_float(dtype: Dtype) -> Result<(), MergeError> {
    if dtype.is_float() { Ok(()) } else { Err(MergeError::NotFloat(dtype)) }
}

/// Widens little-endian elements of a float dtype to f64, exactly. `bytes` are `out.len()` elements.
pub(crate) fn widen(dtype: Dtype, bytes: &[u8], out: &mut [f64]) {
    match dtype {
        Dtype::F64 => each(bytes, out, f64::from_le_bytes),
        Dtype::F32 => each(bytes, out, |b| f64::from(f32::from_le_bytes(b))),
        Dtype::F16 => each(bytes, out, |b| F16.widen(u16::from_le_bytes(b))),
        Dtype::BF16 => each(bytes, out, |b| f64::from(f32::from_bits(u32::from(u16::from_le_bytes(b)) << 16))),
        Dtype::F8E5M2 => each(bytes, out, |[b]| F8E5M2.widen(u16::from(b))),
        _ => each(bytes, out, |[b]| F8E4M3.widen(u16::from(b))),
    }
}

/// Rounds f64 to little-endian elements of a float dtype. `bytes` has room for `values.len()` elements.
pub(crate) fn round(dtype: Dtype, values: &[f64], bytes: &mut [u8]) {
    match dtype {
        Dtype::F64 => put(values, bytes, |v| if v.is_nan() { f64::from_bits(0x7ff8 << 48) } else { v }.to_le_bytes()),
        Dtype::F32 => {
            put(values, bytes, |v| if v.is_nan() { f32::from_bits(0x7fc0_0000) } else { v as f32 }.to_le_bytes())
        }
        Dtype::F16 => put(values, bytes, |v| F16.round(v).to_le_bytes()),
        Dtype::BF16 => put(values, bytes, |v| BF16.round(v).to_le_bytes()),
        Dtype::F8E5M2 => put(values, bytes, |v| [F8E5M2.round(v) as u8]),
        _ => put(values, bytes, |v| [F8E4M3.round(v) as u8]),
    }
}

fn each<const N: usize>(bytes: &[u8], out: &mut [f64], value: impl Fn([u8; N]) -> f64) {
    for (out, element) in out.iter_mut().zip(bytes.as_chunks::<N>().0) {
        *out = value(*element);
    }
}

fn put<const N: usize>(values: &[f64], bytes: &mut [u8], element: impl Fn(f64) -> [u8; N]) {
    for (out, value) in bytes.as_chunks_mut::<N>().0.iter_mut().zip(values) {
        *out = element(*value);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_small_float_is_rounded_to_itself_and_midpoints_to_even() {
        for small in [F16, BF16, F8E5M2, F8E4M3] {
            for code in 0..small.beyond {
                let value = small.widen(code);
                assert_eq!(small.round(value), code);
                assert_eq!(small.round(-value), code | 1 << small.sign_at());
                if code + 1 < small.beyond {
                    let middle = (value + small.widen(code + 1)) / 2.0;
                    assert_eq!(small.round(middle), code + (code & 1));
                    assert_eq!(small.round(middle.next_down()), code);
                    assert_eq!(small.round(middle.next_up()), code + 1);
                }
            }
            assert_eq!(small.round(f64::NAN), small.nan);
            assert!(small.widen(small.nan).is_nan());
        }
        assert_eq!([F16.round(65519.9), F16.round(65520.0), F16.round(f64::NEG_INFINITY)], [0x7bff, 0x7c00, 0xfc00]);
        assert_eq!([F8E4M3.round(464.0), F8E4M3.round(464.1), F8E4M3.round(f64::INFINITY)], [0x7e, 0x7f, 0x7f]);
        assert_eq!(F16.widen(0xfc00), f64::NEG_INFINITY);
    }

    #[test]
    fn a_number_is_rounded_once() {
        // Through f32 this would be the midpoint of two f16 and go to the even one.
        assert_eq!(F16.round(1.0 + f64::powi(2.0, -11) + f64::powi(2.0, -40)), 0x3c01);
        assert_eq!(BF16.round(1.0 + f64::powi(2.0, -8) + f64::powi(2.0, -40)), 0x3f81);
    }
}
