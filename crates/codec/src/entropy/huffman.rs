//! Canonical Huffman with codes of at most 12 bits.
//!
//! Code lengths come from the `huffman-compress` crate, which bounds neither the length nor the symbols decoded from a
//! one-symbol alphabet; both are settled here: lengths are limited, and a lone symbol gets a code of one bit.

use crate::{
    CodecError, Result,
    entropy::{BitReader, BitWriter},
};
use huffman_compress::CodeBuilder;
use std::collections::BTreeMap;

/// Longest code in bits.
pub(crate) const MAX_LEN: u32 = 12;
const SLOTS: usize = 1 << MAX_LEN;

/// Code lengths (0 = absent, else 1..=12) for the symbols counted; absent symbols get none.
pub(crate) fn lengths(counts: &[u32; 256]) -> [u16; 256] {
    let present: BTreeMap<usize, u64> =
        counts.iter().enumerate().filter(|(_, c)| **c > 0).map(|(s, &c)| (s, u64::from(c))).collect();
    let mut lens = [0u16; 256];
    if present.len() == 1 {
        present.keys().for_each(|&s| lens[s] = 1);
        return lens;
    }
    let (book, _) = present.iter().map(|(&s, &w)| (s, w)).collect::<CodeBuilder<usize, u64>>().finish();
    for &s in present.keys() {
        lens[s] = book.get(&s).map_or(0, |code| code.len()) as u16;
    }
    limit(&mut lens, counts);
    lens
}

/// Cuts codes to 12 bits and pays the broken Kraft sum back by lengthening the cheapest codes, then gives what is over
/// to the dearest.
fn limit(lens: &mut [u16; 256], counts: &[u32; 256]) {
    if lens.iter().all(|&l| u32::from(l) <= MAX_LEN) {
        return;
    }
    let mut order: Vec<usize> = (0..256).filter(|&s| lens[s] > 0).collect();
    order.sort_by_key(|&s| (counts[s], s));
    let mut kraft = 0usize;
    for &s in &order {
        lens[s] = lens[s].min(MAX_LEN as u16);
        kraft += SLOTS >> lens[s];
    }
    // Rare symbols first: each step halves one symbol's share. 256 codes of 12 bits always fit, so this ends.
    while kraft > SLOTS {
        for &s in &order {
            if u32::from(lens[s]) < MAX_LEN && kraft > SLOTS {
                kraft -= SLOTS >> (lens[s] + 1);
                lens[s] += 1;
            }
        }
    }
    for &s in order.iter().rev() {
        while lens[s] > 1 && kraft + (SLOTS >> lens[s]) <= SLOTS {
            kraft += SLOTS >> lens[s];
            lens[s] -= 1;
        }
    }
}

/// Canonical codes, bit-reversed for a stream that starts at the least significant bit: shorter codes first, then lower
/// symbols first.
fn codes(lens: &[u16; 256]) -> Result<[u16; 256]> {
    let mut codes = [0u16; 256];
    let mut next = 0usize;
    for len in 1..=MAX_LEN {
        for s in (0..256).filter(|&s| u32::from(lens[s]) == len) {
            if next >= SLOTS {
                return Err(CodecError::Corrupt("code lengths exceed the Kraft sum"));
            }
            let code = (next >> (MAX_LEN - len)) as u16;
            codes[s] = code.reverse_bits() >> (16 - len);
            next += SLOTS >> len;
        }
    }
    if next > SLOTS { Err(CodecError::Corrupt("code lengths exceed the Kraft sum")) } else { Ok(codes) }
}

/// Bits that symbols with these counts would take.
pub(crate) fn cost_bits(counts: &[u32; 256], lens: &[u16; 256]) -> u64 {
    counts.iter().zip(lens).map(|(&c, &l)| u64::from(c) * u64::from(l)).sum()
}

/// Codes ready for encoding.
#[derive(Debug)]
pub struct Encoder {
    codes: [u16; 256],
    lens: [u16; 256],
}

impl Encoder {
    /// An encoder for these lengths.
    pub(crate) fn new(lens: &[u16; 256]) -> Result<Self> {
        Ok(Encoder { codes: codes(lens)?, lens: *lens })
    }

    /// The table for a device, a word for each symbol: code, first bit lowest | length << 16.
    pub fn words(&self) -> Vec<u32> {
        let word = |(&c, &l): (&u16, &u16)| u32::from(c) | u32::from(l) << 16;
        self.codes.iter().zip(&self.lens).map(word).collect()
    }

    /// Appends the code bits of `symbols`, padded to a byte.
    pub(crate) fn encode(&self, symbols: &[u8], out: &mut Vec<u8>) {
        let mut w = BitWriter::with_capacity(symbols.len());
        for &s in symbols {
            w.put(u64::from(self.codes[usize::from(s)]), u32::from(self.lens[usize::from(s)]));
        }
        out.extend_from_slice(&w.finish());
    }
}

/// Decoding table: symbol | length << 8 for every 12-bit window; 0 where no code lies.
#[derive(Debug)]
pub struct Decoder {
    slots: Vec<u16>,
}

impl Decoder {
    /// A decoder for these lengths (each at most 12).
    pub(crate) fn new(lens: &[u16; 256]) -> Result<Self> {
        if lens.iter().any(|&l| u32::from(l) > MAX_LEN) {
            return Err(CodecError::Corrupt("code too long"));
        }
        let codes = codes(lens)?;
        let mut slots = vec![0u16; SLOTS];
        for (s, (&code, &len)) in codes.iter().zip(lens).enumerate().filter(|(_, (_, l))| **l > 0) {
            for slot in slots[usize::from(code)..].iter_mut().step_by(1 << len) {
                *slot = s as u16 | len << 8;
            }
        }
        Ok(Decoder { slots })
    }

    /// All 4096 slots.
    pub fn slots(&self) -> &[u16] {
        &self.slots
    }

    /// Decodes exactly `out.len()` symbols, which must use `data` up to its last byte.
    pub(crate) fn decode(&self, data: &[u8], out: &mut [u8]) -> Result<()> {
        let mut r = BitReader::new(data);
        for o in out {
            let e = self.slots[r.peek() as usize & (SLOTS - 1)];
            if e == 0 {
                return Err(CodecError::Corrupt("no such code"));
            }
            *o = e as u8;
            r.skip(u32::from(e >> 8));
        }
        if r.ended_well() { Ok(()) } else { Err(CodecError::Corrupt("code stream does not end where it should")) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn round_trip(symbols: &[u8]) {
        let mut counts = [0u32; 256];
        symbols.iter().for_each(|&s| counts[usize::from(s)] += 1);
        let lens = lengths(&counts);
        assert!(lens.iter().all(|&l| u32::from(l) <= MAX_LEN));
        let mut data = Vec::new();
        Encoder::new(&lens).unwrap().encode(symbols, &mut data);
        assert_eq!(data.len() as u64, cost_bits(&counts, &lens).div_ceil(8));
        let mut out = vec![0u8; symbols.len()];
        let decoder = Decoder::new(&lens).unwrap();
        decoder.decode(&data, &mut out).unwrap();
        assert_eq!(out, symbols);
        if !data.is_empty() {
            data.pop();
            assert!(decoder.decode(&data, &mut out).is_err());
        }
    }

    #[test]
    fn alphabets_of_every_shape_round_trip() {
        round_trip(&[]);
        round_trip(&[42; 100]);
        round_trip(&[1, 2, 1, 1]);
        round_trip(&(0..=255).collect::<Vec<u8>>());
        // Fibonacci counts: unlimited codes would be 24 bits long.
        let (mut a, mut b) = (1usize, 1usize);
        let mut fib = Vec::new();
        for s in 0..25u8 {
            fib.extend(std::iter::repeat_n(s, a));
            (a, b) = (b, a + b);
        }
        round_trip(&fib);
    }

    #[test]
    fn impossible_lengths_are_refused() {
        assert!(Decoder::new(&[1; 256]).is_err());
        assert!(Decoder::new(&[13; 256]).is_err());
        assert!(Decoder::new(&[0; 256]).unwrap().decode(&[0; 9], &mut [0; 1]).is_err());
    }
}
