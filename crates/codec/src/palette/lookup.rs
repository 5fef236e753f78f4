//! Answers of a palette's table by the upper 16 bits of a number, where all numbers with those bits have the same answer.
//! Neighbours: `encode` and `decode` look up every element. It must not answer otherwise than the table does.

use super::Table;
use crate::diff::Numbers;

/// A key whose numbers have different answers: the table itself is asked.
const MIXED: u16 = u16::MAX;

/// The index of the value that is nearest to a number, by monotone integers; of two equally near the upper one.
#[derive(Debug)]
pub(crate) struct Nearest<'a> {
    pub(super) table: &'a Table,
    bounds: Vec<i64>,
    by_key: Vec<u16>,
    shift: u32,
}

impl<'a> Nearest<'a> {
    /// Walks over the keys and the table's bounds together, in rising order.
    pub(crate) fn new(table: &'a Table) -> Self {
        let shift = 8 * table.numbers.size as u32 - 16;
        let bounds = table.bounds();
        let mut by_key = vec![MIXED; 1 << 16];
        let mut below = 0;
        for key in i16::MIN..=i16::MAX {
            let first = i64::from(key) << shift;
            let last = first + ((1 << shift) - 1);
            let step = |from: usize, to: i64| from + bounds[from..].iter().take_while(|&&b| b <= to).count();
            below = step(below, first);
            if step(below, last) == below {
                by_key[usize::from(table.numbers.key(key))] = below as u16;
            }
        }
        Nearest {
            table,
            bounds,
            by_key,
            shift,
        }
    }

    /// The index nearest to `v`.
    #[inline(always)]
    pub(crate) fn of(&self, v: u64) -> u8 {
        match self.by_key[(v >> self.shift) as usize & 0xffff] {
            MIXED => self.search(v),
            i => i as u8,
        }
    }

    #[cold]
    fn search(&self, v: u64) -> u8 {
        let o = self.table.numbers.ordered(v);
        self.bounds.partition_point(|&b| b <= o) as u8
    }

    /// The index of a number that is one of the values, else the exception's symbol.
    #[inline(always)]
    pub(crate) fn symbol(&self, v: u64) -> u8 {
        let i = self.of(v);
        if self.table.values[usize::from(i)] == v {
            i
        } else {
            self.table.exception()
        }
    }
}

/// What a symbol in a context stands for: the index, `(context + symbol) mod values`, or the exception.
#[inline(always)]
pub(crate) fn turn(symbol: u8, context: u8, values: usize) -> u8 {
    if usize::from(symbol) >= values {
        return values as u8;
    }
    let i = usize::from(symbol) + usize::from(context);
    (if i >= values { i - values } else { i }) as u8
}

/// The symbol of an index (or the exception) in a context: undoes [`turn`].
#[inline(always)]
pub(crate) fn turn_back(index: u8, context: u8, values: usize) -> u8 {
    if usize::from(index) >= values {
        return values as u8;
    }
    (if index >= context {
        usize::from(index - context)
    } else {
        usize::from(index) + values - usize::from(context)
    }) as u8
}

/// Loads the numbers of `raw` and calls `f` with each and its place.
#[inline(always)]
pub(crate) fn each(numbers: Numbers, raw: &[u8], mut f: impl FnMut(usize, u64)) {
    match numbers.size {
        2 => raw
            .as_chunks()
            .0
            .iter()
            .enumerate()
            .for_each(|(i, e)| f(i, u16::from_le_bytes(*e).into())),
        4 => raw
            .as_chunks()
            .0
            .iter()
            .enumerate()
            .for_each(|(i, e)| f(i, u32::from_le_bytes(*e).into())),
        _ => (0..raw.len() / numbers.size).for_each(|i| f(i, numbers.load(raw, i))),
    }
}
