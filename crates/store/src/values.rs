//! Widens elements of any dtype (little-endian bytes) to f64, for statistics and listings. It must never be used to
//! decide what is stored: identity is decided on bytes.

use half::{bf16, f16};
use mdl_codec::Dtype;

/// Widens every element of `bytes` to f64, exactly except for integers beyond 2^53. Opaque bytes count as unsigned; a
/// complex number yields its real and its imaginary part. Bytes after the last whole element are ignored.
pub fn to_f64(dtype: Dtype, bytes: &[u8], out: &mut Vec<f64>) {
    out.clear();
    match dtype {
        Dtype::F64 | Dtype::C128 => each(bytes, out, f64::from_le_bytes),
        Dtype::F32 | Dtype::C64 => each(bytes, out, |b| f64::from(f32::from_le_bytes(b))),
        Dtype::F16 => each(bytes, out, |b| widen(f16::from_le_bytes(b))),
        Dtype::BF16 => each(bytes, out, |b| bf16::from_le_bytes(b).to_f64()),
        Dtype::F8E4M3 => each(bytes, out, |[b]| e4m3(b)),
        Dtype::F8E5M2 => each(bytes, out, |[b]| widen(f16::from_le_bytes([0, b]))),
        Dtype::I8 => each(bytes, out, |b| f64::from(i8::from_le_bytes(b))),
        Dtype::I16 => each(bytes, out, |b| f64::from(i16::from_le_bytes(b))),
        Dtype::I32 => each(bytes, out, |b| f64::from(i32::from_le_bytes(b))),
        Dtype::I64 => each(bytes, out, |b| i64::from_le_bytes(b) as f64),
        Dtype::U8 | Dtype::Bool | Dtype::Opaque => each(bytes, out, |[b]| f64::from(b)),
        Dtype::U16 => each(bytes, out, |b| f64::from(u16::from_le_bytes(b))),
        Dtype::U32 => each(bytes, out, |b| f64::from(u32::from_le_bytes(b))),
        Dtype::U64 => each(bytes, out, |b| u64::from_le_bytes(b) as f64),
    }
}

/// All NaNs are one, as those of e4m3 are: differences are counted by their bits.
fn widen(v: f16) -> f64 {
    if v.is_nan() { f64::NAN } else { v.to_f64() }
}

fn each<const N: usize>(bytes: &[u8], out: &mut Vec<f64>, value: impl Fn([u8; N]) -> f64) {
    out.extend(bytes.as_chunks::<N>().0.iter().map(|b| value(*b)));
}

/// An e4m3 number has the bits of an f16 whose exponent's bias is larger by 8. There is no infinity; all ones is NaN.
fn e4m3(bits: u8) -> f64 {
    let wide = u16::from(bits & 0x80) << 8 | u16::from(bits & 0x7f) << 7;
    if bits & 0x7f == 0x7f { f64::NAN } else { f16::from_bits(wide).to_f64() * 256.0 }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn one(dtype: Dtype, bytes: &[u8]) -> f64 {
        let mut out = Vec::new();
        to_f64(dtype, bytes, &mut out);
        assert_eq!(out.len(), 1);
        out[0]
    }

    #[test]
    fn half_floats() {
        assert_eq!(one(Dtype::F16, &0x3c00u16.to_le_bytes()), 1.0);
        assert_eq!(one(Dtype::F16, &0xc000u16.to_le_bytes()), -2.0);
        assert_eq!(one(Dtype::F16, &0x0001u16.to_le_bytes()), f64::powi(2.0, -24));
        assert_eq!(one(Dtype::F16, &0x7bffu16.to_le_bytes()), 65504.0);
        assert_eq!(one(Dtype::F16, &0xfc00u16.to_le_bytes()), f64::NEG_INFINITY);
        assert!(one(Dtype::F16, &0x7e00u16.to_le_bytes()).is_nan());
        assert_eq!(one(Dtype::BF16, &0x3f80u16.to_le_bytes()), 1.0);
    }

    #[test]
    fn eight_bit_floats() {
        assert_eq!(one(Dtype::F8E4M3, &[0x38]), 1.0);
        assert_eq!(one(Dtype::F8E4M3, &[0x7e]), 448.0);
        assert!(one(Dtype::F8E4M3, &[0xff]).is_nan());
        assert_eq!(one(Dtype::F8E4M3, &[0x01]), f64::powi(2.0, -9));
        assert_eq!(one(Dtype::F8E5M2, &[0x3c]), 1.0);
        assert_eq!(one(Dtype::F8E5M2, &[0x7b]), 57344.0);
        assert_eq!(one(Dtype::F8E5M2, &[0x7c]), f64::INFINITY);
    }

    #[test]
    fn integers() {
        assert_eq!(one(Dtype::I8, &[0xff]), -1.0);
        assert_eq!(one(Dtype::U8, &[0xff]), 255.0);
        assert_eq!(one(Dtype::I64, &(-5i64).to_le_bytes()), -5.0);
        let mut out = Vec::new();
        to_f64(Dtype::U16, &[1, 0, 2, 0, 3], &mut out);
        assert_eq!(out, [1.0, 2.0]);
    }
}
