//! The loops over numbers and their base's, in plain Rust: what vector kernels do, for every machine and type.

use crate::{
    entropy::{BitReader, BitWriter},
    schemes::{Numbers, signed, symbol_bases, symbol_of},
};

/// Evaluates `$body` with numbers whose size the compiler knows.
macro_rules! by_size {
    ($numbers:expr, |$known:ident| $body:expr) => {
        match $numbers.size {
            1 => by_size!(1, $numbers, $known, $body),
            2 => by_size!(2, $numbers, $known, $body),
            4 => by_size!(4, $numbers, $known, $body),
            _ => by_size!(8, $numbers, $known, $body),
        }
    };
    ($size:literal, $numbers:expr, $known:ident, $body:expr) => {{
        let mut $known = $numbers;
        $known.size = $size;
        $body
    }};
}

/// What symbols stand for, with so many bits in the class.
#[derive(Debug)]
pub(crate) struct Classes {
    /// What differs.
    pub(crate) numbers: Numbers,
    /// Bits under the top one that join the class.
    pub(crate) t: u32,
    /// Of each symbol the smallest magnitude and the number of raw bits.
    pub(crate) bases: [(u64, u32); 256],
    /// Whether symbols that occur leave at most 31 raw bits: more than vector kernels take.
    pub(crate) narrow: bool,
}

impl Classes {
    /// Those of numbers; `occurs` says which symbols a stream may have.
    pub(crate) fn new(numbers: Numbers, t: u32, occurs: impl Fn(u8) -> bool) -> Self {
        let bases = symbol_bases(t);
        let narrow = (0..=255).all(|s: u8| bases[usize::from(s)].1 <= 31 || !occurs(s));
        Classes { numbers, t, bases, narrow }
    }
}

/// The entry of `map` for the exponent of each number of `base`.
pub(crate) fn contexts(numbers: Numbers, map: &[u8; 256], base: &[u8], out: &mut [u8]) {
    by_size!(numbers, |numbers| {
        for (i, c) in out.iter_mut().enumerate() {
            *c = map[usize::from(numbers.context(numbers.load(base, i)))];
        }
    });
}

/// Numbers from their base's, their symbols and raw bits.
pub(crate) fn apply(classes: &Classes, symbols: &[u8], bits: &mut BitReader<'_>, base: &[u8], out: &mut [u8]) {
    by_size!(classes.numbers, |numbers| {
        for (i, &s) in symbols.iter().enumerate() {
            let (least, width) = classes.bases[usize::from(s)];
            let d = signed(s, least.wrapping_add(bits.get_wide(width)));
            numbers.store(out, i, numbers.apply(numbers.load(base, i), d));
        }
    });
}

/// Symbols of the differences with `t` bits in the class.
pub(crate) fn symbols(numbers: Numbers, t: u32, raw: &[u8], base: &[u8], out: &mut [u8]) {
    by_size!(numbers, |numbers| {
        for (i, s) in out.iter_mut().enumerate() {
            *s = symbol_of(numbers.difference(numbers.load(raw, i), numbers.load(base, i)), t);
        }
    });
}

/// As [`symbols`], and appends their raw bits.
pub(crate) fn symbols_and_bits(classes: &Classes, raw: &[u8], base: &[u8], out: &mut [u8], bits: &mut BitWriter) {
    by_size!(classes.numbers, |numbers| {
        for (i, s) in out.iter_mut().enumerate() {
            let d = numbers.difference(numbers.load(raw, i), numbers.load(base, i));
            *s = symbol_of(d, classes.t);
            let (least, width) = classes.bases[usize::from(*s)];
            bits.put_wide(d.unsigned_abs() - least, width);
        }
    });
}
