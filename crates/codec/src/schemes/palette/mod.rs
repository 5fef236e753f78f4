//! Schemes "palette" and "palette delta": a tensor of few distinct values (a quantiser's levels, whatever made them) as
//! a table of values and entropy-coded indices; with a base, in the context of where the base's value falls in the same
//! table.
//!
//! Coding a level in the context of the parent's level is Inshrinkerator's rearrangement (section 6, Algorithms 5 and
//! 6) without moving data; taking the context from the parent's *value* needs neither its codebook nor its bin count.

mod count;
mod decode;
mod distinct;
mod encode;
pub(crate) mod family;
mod find;
mod lookup;
pub mod plan;
mod values;

use crate::{
    CodecError, Result,
    entropy::{Cursor, get_freqs},
    schemes::Numbers,
};

pub(crate) use decode::Reader;
pub(crate) use encode::encode;
pub(crate) use find::cost;
use lookup::{Nearest, each, turn, turn_back};
pub(crate) use values::positions;

/// Most values of a table: one symbol is left for "none of them".
const MAX: usize = 255;

/// The distinct values, in the order of their monotone integers read as signed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Table {
    /// What the values are.
    pub numbers: Numbers,
    /// The values as bits.
    pub values: Vec<u64>,
}

impl Table {
    /// A table of these values, at most [`MAX`].
    fn new(numbers: Numbers, mut values: Vec<u64>) -> Self {
        values.sort_unstable_by_key(|&v| numbers.ordered(v));
        values.dedup();
        values.truncate(MAX);
        Table { numbers, values }
    }

    /// The symbol of a number that is none of the values: one past the last index.
    fn exception(&self) -> u8 {
        self.values.len() as u8
    }

    /// For every index but the first, the least monotone integer that is nearer to it than to the one before (or as
    /// near).
    pub fn bounds(&self) -> Vec<i64> {
        let middle = |p: &[u64]| {
            let (a, b) = (self.numbers.ordered(p[0]), self.numbers.ordered(p[1]));
            let apart = b.wrapping_sub(a) as u64;
            a.wrapping_add(apart.div_ceil(2) as i64)
        };
        self.values.windows(2).map(middle).collect()
    }

    /// Low bytes that are zero in all these numbers.
    fn zero_bytes(numbers: Numbers, values: impl Iterator<Item = u64>) -> u8 {
        let all = values.fold(0, |a, v| a | v);
        (all.trailing_zeros() / 8).min(numbers.size as u32 - 1) as u8
    }

    fn put(&self, out: &mut Vec<u8>) {
        let zero = Table::zero_bytes(self.numbers, self.values.iter().copied());
        out.extend_from_slice(&[self.values.len() as u8, zero]);
        self.values.iter().for_each(|&v| put_number(out, self.numbers, v, zero));
    }

    fn get(cursor: &mut Cursor<'_>, numbers: Numbers) -> Result<Self> {
        const BAD: CodecError = CodecError::Corrupt("bad palette");
        let (n, zero) = (cursor.u8()?, cursor.u8()?);
        if n == 0 || usize::from(zero) >= numbers.size {
            return Err(BAD);
        }
        let values = (0..n).map(|_| get_number(cursor, numbers, zero)).collect::<Result<Vec<_>, _>>()?;
        if values.windows(2).any(|p| numbers.ordered(p[0]) >= numbers.ordered(p[1])) {
            return Err(BAD);
        }
        Ok(Table { numbers, values })
    }
}

/// Reads the table of a segment, and how many low bytes of its exceptions are zero and not there.
fn get_table(cursor: &mut Cursor<'_>, numbers: Numbers) -> Result<(Table, u8)> {
    let (table, zero) = (Table::get(cursor, numbers)?, cursor.u8()?);
    if usize::from(zero) >= numbers.size { Err(CodecError::Corrupt("bad palette")) } else { Ok((table, zero)) }
}

/// Reads the frequencies of so many contexts, none of them of a symbol that the table does not have.
fn get_lists(cursor: &mut Cursor<'_>, contexts: usize, table: &Table) -> Result<Vec<[u16; 256]>> {
    let lists = (0..contexts).map(|_| get_freqs(cursor)).collect::<Result<Vec<_>>>()?;
    match lists.iter().any(|f| f[usize::from(table.exception()) + 1..].iter().any(|&v| v > 0)) {
        true => Err(CodecError::Corrupt("symbols beyond the palette")),
        false => Ok(lists),
    }
}

/// Appends a number without its `zero` lowest bytes.
fn put_number(out: &mut Vec<u8>, numbers: Numbers, v: u64, zero: u8) {
    out.extend_from_slice(&v.to_le_bytes()[usize::from(zero)..numbers.size]);
}

/// Reads what [`put_number`] wrote.
fn get_number(cursor: &mut Cursor<'_>, numbers: Numbers, zero: u8) -> Result<u64> {
    let mut bytes = [0; 8];
    bytes[usize::from(zero)..numbers.size].copy_from_slice(cursor.take(numbers.size - usize::from(zero))?);
    Ok(u64::from_le_bytes(bytes))
}
