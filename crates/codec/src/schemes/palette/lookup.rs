//! Nearest-value lookup by the upper 16 bits of a number, where all numbers with those bits have the same answer.

use crate::schemes::{Numbers, palette::Table};

/// A key whose numbers have different answers: the table itself is asked.
const MIXED: u16 = u16::MAX;
/// Keys there are.
const KEYS: usize = 1 << 16;
/// Numbers looked up together: whether the table has to be asked is checked once for all of them.
const GROUP: usize = 8;

/// The index of the value that is nearest to a number, by monotone integers; of two equally near the upper one.
#[derive(Debug)]
pub(crate) struct Nearest<'a> {
    pub(super) table: &'a Table,
    bounds: Vec<i64>,
    /// Without them every number is searched for: faster where there are few.
    keys: Option<Keys>,
    shift: u32,
}

/// What the upper 16 bits of a number say.
#[derive(Debug)]
struct Keys {
    /// The nearest index.
    nearest: Box<[u16; KEYS]>,
    /// The index of the number with this key and zeros below it, or the exception's symbol.
    exact: Box<[u16; KEYS]>,
}

impl<'a> Nearest<'a> {
    /// For many numbers.
    pub(crate) fn new(table: &'a Table) -> Self {
        let few = Nearest::by_search(table);
        Nearest { keys: Some(Keys::new(table, &few.bounds, few.shift)), ..few }
    }

    /// For few numbers.
    pub(super) fn by_search(table: &'a Table) -> Self {
        Nearest { table, bounds: table.bounds(), keys: None, shift: 8 * table.numbers.size as u32 - 16 }
    }

    /// [`Nearest::of`] of all numbers of `raw`, one byte each.
    pub(crate) fn places(&self, raw: &[u8], out: &mut [u8]) {
        let keys = self.keys.as_ref().map(|k| &*k.nearest);
        match (self.table.numbers.size, keys) {
            (2, Some(keys)) => look_up(raw, out, keys, |e| u16::from_le_bytes(*e).into(), 0, |v| self.index_of(v)),
            (4, Some(keys)) => look_up(raw, out, keys, |e| u32::from_le_bytes(*e).into(), 0, |v| self.index_of(v)),
            _ => each(self.table.numbers, raw, |i, v| out[i] = self.index_of(v)),
        }
    }

    /// [`Nearest::symbol`] of all numbers of `raw`, one byte each.
    pub(crate) fn symbols(&self, raw: &[u8], out: &mut [u8]) {
        let keys = self.keys.as_ref().map(|k| &*k.exact);
        match (self.table.numbers.size, keys) {
            (2, Some(keys)) => look_up(raw, out, keys, |e| u16::from_le_bytes(*e).into(), 0, |v| self.symbol(v)),
            (4, Some(keys)) => look_up(raw, out, keys, |e| u32::from_le_bytes(*e).into(), 0xffff, |v| self.symbol(v)),
            _ => each(self.table.numbers, raw, |i, v| out[i] = self.symbol(v)),
        }
    }

    /// The index nearest to `v`.
    #[inline(always)]
    pub(crate) fn index_of(&self, v: u64) -> u8 {
        match self.keys.as_ref().map_or(MIXED, |k| k.nearest[(v >> self.shift) as usize & 0xffff]) {
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
        let i = self.index_of(v);
        if self.table.values[usize::from(i)] == v { i } else { self.table.exception() }
    }
}

impl Keys {
    /// Fills the keys between one bound and the next.
    fn new(table: &Table, bounds: &[i64], shift: u32) -> Self {
        let numbers = table.numbers;
        let mut nearest = Box::new([MIXED; KEYS]);
        let first = |bound: &i64| (bound >> shift) as i32;
        let mut next = i32::from(i16::MIN);
        for (i, bound) in bounds.iter().enumerate() {
            let key = first(bound);
            numbers.fill_keys(&mut nearest, next..key, i as u16);
            // The numbers of the bound's key are on both sides of it, unless it is the first of them.
            let split = i64::from(key) << shift < *bound;
            next = next.max(key + i32::from(split));
        }
        numbers.fill_keys(&mut nearest, next..i32::from(i16::MAX) + 1, bounds.len() as u16);
        let mut exact = Box::new([u16::from(table.exception()); KEYS]);
        for (i, &v) in table.values.iter().enumerate() {
            let at = &mut exact[(v >> shift) as usize & 0xffff];
            let alone = *at == u16::from(table.exception()) && v & ((1 << shift) - 1) == 0;
            *at = if alone { i as u16 } else { MIXED };
        }
        Keys { nearest, exact }
    }
}

/// What a table of keys says of all numbers of `raw`. In a group with a key that is [`MIXED`], or with bits of `low`
/// set, `ask` answers instead.
#[inline(always)]
fn look_up<const N: usize>(
    raw: &[u8],
    out: &mut [u8],
    table: &[u16; KEYS],
    load: impl Fn(&[u8; N]) -> u64,
    low: u64,
    ask: impl Fn(u64) -> u8,
) {
    let (groups, rest) = raw.as_chunks::<N>().0.as_chunks::<GROUP>();
    let (outs, last) = out.as_chunks_mut::<GROUP>();
    for (group, out) in groups.iter().zip(outs) {
        let (mut answers, mut bits) = (0, 0);
        for (e, o) in group.iter().zip(out.iter_mut()) {
            let v = load(e);
            let answer = table[(v >> (8 * N - 16)) as usize & 0xffff];
            answers |= answer;
            bits |= v;
            *o = answer as u8;
        }
        if answers > 0xff || bits & low != 0 {
            group.iter().zip(out).for_each(|(e, o)| *o = ask(load(e)));
        }
    }
    rest.iter().zip(last).for_each(|(e, o)| *o = ask(load(e)));
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
    (if index >= context { usize::from(index - context) } else { usize::from(index) + values - usize::from(context) })
        as u8
}

/// Loads the numbers of `raw` and calls `f` with each and its place.
#[inline(always)]
pub(crate) fn each(numbers: Numbers, raw: &[u8], mut f: impl FnMut(usize, u64)) {
    match numbers.size {
        2 => raw.as_chunks().0.iter().enumerate().for_each(|(i, e)| f(i, u16::from_le_bytes(*e).into())),
        4 => raw.as_chunks().0.iter().enumerate().for_each(|(i, e)| f(i, u32::from_le_bytes(*e).into())),
        _ => (0..raw.len() / numbers.size).for_each(|i| f(i, numbers.load(raw, i))),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Dtype;

    #[test]
    fn searching_finds_what_keys_say() {
        for dtype in [Dtype::F32, Dtype::BF16, Dtype::I16, Dtype::F64] {
            let numbers = Numbers::from_dtype(dtype);
            let mix = |i: usize| (i * i * 40_503 + i * 977 + (i >> 3)) as u8;
            let raw: Vec<u8> = (0..800 * numbers.size).map(mix).collect();
            let values = (0..90).map(|i| numbers.load(&raw, 7 * i)).collect();
            let table = Table::new(numbers, values);
            let of = |near: Nearest<'_>| {
                let (mut places, mut symbols) = (vec![0; 800], vec![0; 800]);
                near.places(&raw, &mut places);
                near.symbols(&raw, &mut symbols);
                (places, symbols)
            };
            assert_eq!(of(Nearest::new(&table)), of(Nearest::by_search(&table)), "{dtype}");
        }
    }
}
