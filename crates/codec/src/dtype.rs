//! Element types.

use std::fmt;

/// Element type of a tensor, as its little-endian bytes are laid out.
///
/// The discriminant is the code used in every stored format (docs/format.md) and never changes meaning.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
#[repr(u8)]
pub enum Dtype {
    /// Bytes of unknown meaning, one byte per element.
    Opaque = 0,
    /// IEEE 754 binary64.
    F64 = 1,
    /// IEEE 754 binary32.
    F32 = 2,
    /// IEEE 754 binary16.
    F16 = 3,
    /// bfloat16: the upper half of a binary32.
    BF16 = 4,
    /// 8-bit float, 4 exponent and 3 mantissa bits.
    F8E4M3 = 5,
    /// 8-bit float, 5 exponent and 2 mantissa bits.
    F8E5M2 = 6,
    /// Signed 8-bit integer.
    I8 = 7,
    /// Signed 16-bit integer.
    I16 = 8,
    /// Signed 32-bit integer.
    I32 = 9,
    /// Signed 64-bit integer.
    I64 = 10,
    /// Unsigned 8-bit integer.
    U8 = 11,
    /// Unsigned 16-bit integer.
    U16 = 12,
    /// Unsigned 32-bit integer.
    U32 = 13,
    /// Unsigned 64-bit integer.
    U64 = 14,
    /// One byte per element; 0 is false.
    Bool = 15,
    /// Two binary32 (real, imaginary); stored without looking inside.
    C64 = 16,
    /// Two binary64 (real, imaginary); stored without looking inside.
    C128 = 17,
}

impl Dtype {
    /// Every element type, in the order of the codes.
    pub const ALL: [Dtype; 18] = {
        use Dtype::*;
        [Opaque, F64, F32, F16, BF16, F8E4M3, F8E5M2, I8, I16, I32, I64, U8, U16, U32, U64, Bool, C64, C128]
    };

    /// Their names.
    const NAMES: [&str; 18] = [
        "opaque", "f64", "f32", "f16", "bf16", "f8e4m3", "f8e5m2", "i8", "i16", "i32", "i64", "u8", "u16", "u32",
        "u64", "bool", "c64", "c128",
    ];

    /// Bytes per element.
    pub const fn size(self) -> usize {
        match self {
            Dtype::Opaque | Dtype::F8E4M3 | Dtype::F8E5M2 | Dtype::I8 | Dtype::U8 | Dtype::Bool => 1,
            Dtype::F16 | Dtype::BF16 | Dtype::I16 | Dtype::U16 => 2,
            Dtype::F32 | Dtype::I32 | Dtype::U32 => 4,
            Dtype::F64 | Dtype::I64 | Dtype::U64 | Dtype::C64 => 8,
            Dtype::C128 => 16,
        }
    }

    /// Bytes of elements of this type and shape; none: more than 2^64.
    pub fn byte_len(self, shape: &[u64]) -> Option<u64> {
        shape.iter().try_fold(self.size() as u64, |n, &d| n.checked_mul(d))
    }

    /// Bytes from the first of such elements, so many strides apart, to the end of the last one: 0 where there is
    /// none. `None`: more than 2^64, or the number of strides is not that of the dimensions.
    pub fn span(self, shape: &[u64], strides: &[u64]) -> Option<u64> {
        if shape.len() != strides.len() {
            return None;
        }
        if shape.contains(&0) {
            return Some(0);
        }
        let mut dims = shape.iter().zip(strides);
        let last = dims.try_fold(0u64, |at, (&d, &stride)| at.checked_add((d - 1).checked_mul(stride)?))?;
        last.checked_add(1)?.checked_mul(self.size() as u64)
    }

    /// The stored code of this type.
    pub const fn code(self) -> u8 {
        self as u8
    }

    /// The type with this stored code, if there is one.
    pub fn from_code(code: u8) -> Option<Dtype> {
        Dtype::ALL.get(usize::from(code)).copied()
    }

    /// Whether the elements are IEEE-like floats (sign, exponent, mantissa from the top bit down).
    pub const fn is_float(self) -> bool {
        matches!(self, Dtype::F64 | Dtype::F32 | Dtype::F16 | Dtype::BF16 | Dtype::F8E4M3 | Dtype::F8E5M2)
    }

    /// Short lower-case name, as `mdl ls` prints it: `f32`, `bf16`, `f8e4m3`, ...
    pub const fn name(self) -> &'static str {
        Dtype::NAMES[self as usize]
    }
}

impl fmt::Display for Dtype {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn codes_round_trip_and_names_are_distinct() {
        let mut names = std::collections::BTreeSet::new();
        for (i, d) in Dtype::ALL.into_iter().enumerate() {
            assert_eq!(usize::from(d.code()), i);
            assert_eq!(Dtype::from_code(d.code()), Some(d));
            assert!(names.insert(d.name()));
        }
        assert_eq!(Dtype::from_code(18), None);
    }
}
