//! Encoder of the scheme "delta".

use crate::{
    entropy::{BitWriter, ByExponent, EncTable, Grid, put_with_length, rans},
    schemes::{
        Numbers,
        delta::{Classes, DeltaPlan},
    },
    scratch::with_scratch,
    simd::{CHUNK, Simd},
};
use rayon::prelude::*;

/// Bytes from which on more than one count is made.
const SPLIT: usize = 1 << 16;

/// Counts the symbols of `raw` against `base` with the most bits in the class that the type allows.
pub(crate) fn count(simd: Simd, numbers: Numbers, raw: &[u8], base: &[u8]) -> ByExponent {
    let exponents = std::array::from_fn(|e| e as u8);
    // Equal neighbours wait for each other's count: of many numbers, four counts are made and added.
    let mut parts = vec![ByExponent::new(); if raw.len() >= SPLIT { 4 } else { 1 }];
    let (mut symbols, mut of) = ([0; CHUNK], [0; CHUNK]);
    let chunk = CHUNK * numbers.size;
    for (raw, base) in raw.chunks(chunk).zip(base.chunks(chunk)) {
        let n = raw.len() / numbers.size;
        let (symbols, of) = (&mut symbols[..n], &mut of[..n]);
        simd.differences(numbers, numbers.max_t(), raw, base, symbols);
        simd.contexts(numbers, &exponents, base, of);
        if let [a, b, c, d] = &mut parts[..] {
            let (symbols, last) = symbols.as_chunks::<4>();
            for (s, e) in symbols.iter().zip(of.as_chunks::<4>().0) {
                a.add(e[0], s[0]);
                b.add(e[1], s[1]);
                c.add(e[2], s[2]);
                d.add(e[3], s[3]);
            }
            last.iter().zip(&of[n - last.len()..]).for_each(|(&s, &e)| a.add(e, s));
        } else {
            symbols.iter().zip(of.iter()).for_each(|(&s, &e)| parts[0].add(e, s));
        }
    }
    parts.into_iter().reduce(|a, b| a.merge(&b)).unwrap_or_else(ByExponent::new)
}

/// Encodes `raw` against `base`, scheme byte first.
pub(crate) fn encode(simd: Simd, numbers: Numbers, raw: &[u8], base: &[u8]) -> Vec<u8> {
    let size = numbers.size;
    let grid = Grid::new(raw.len() / size);
    let bytes = |b: usize| grid.bytes(b, size);
    let by = (0..grid.blocks())
        .into_par_iter()
        .map(|b| count(simd, numbers, &raw[bytes(b)], &base[bytes(b)]))
        .reduce(ByExponent::new, |a, b| a.merge(&b));
    let plan = DeltaPlan::new(numbers, grid, &by);
    let mut out = plan.head;
    let classes = Classes::new(numbers, plan.t, |_| true);
    let coder = Encoder { simd, classes, table: EncTable::new(&plan.freqs), map: plan.map };
    grid.put_blocks(&mut out, |b, out| coder.block(&raw[bytes(b)], &base[bytes(b)], out));
    out
}

struct Encoder {
    simd: Simd,
    classes: Classes,
    table: EncTable,
    map: [u8; 256],
}

impl Encoder {
    fn block(&self, raw: &[u8], base: &[u8], out: &mut Vec<u8>) {
        let n = raw.len() / self.classes.numbers.size;
        let mut bits = BitWriter::with_capacity(raw.len());
        with_scratch(2 * n, |scratch| {
            let (symbols, ctx) = scratch.split_at_mut(n);
            self.simd.differences_and_bits(&self.classes, raw, base, symbols, &mut bits);
            self.simd.contexts(self.classes.numbers, &self.map, base, ctx);
            put_with_length(out, |out| rans::encode(self.simd, &self.table, symbols, Some(ctx), out));
        });
        out.extend_from_slice(&bits.finish());
    }
}
