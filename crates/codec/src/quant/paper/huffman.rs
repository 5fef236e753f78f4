//! Huffman blocks of integer tokens: a canonical code with its table.
//!
//! The alphabet is large and sparse (run lengths), so the table lists the tokens that occur. Code lengths come from the
//! `huffman-compress` crate, which bounds neither the length nor what a one-token alphabet decodes to; both are settled
//! here: lengths are limited, and a lone token takes no bits but is counted by the caller.

use crate::{
    CodecError, Result,
    entropy::{BitReader, BitWriter},
    quant::paper::numbers::{get_number, put_number},
};
use huffman_compress::CodeBuilder;

/// Longest code in bits.
pub(super) const MAX_LEN: u32 = 24;
/// Bits of a code length in the table.
const LEN_BITS: u32 = 5;

/// Appends a block; nothing for no tokens.
pub(super) fn put_block(w: &mut BitWriter, tokens: &[i32]) {
    let (alphabet, counts) = count(tokens);
    let lens = lengths(&counts);
    put_table(w, &alphabet, &lens);
    if alphabet.len() < 2 {
        return;
    }
    let codes = codes(&lens);
    for token in tokens {
        if let Ok(i) = alphabet.binary_search(token) {
            w.put(u64::from(codes[i]), lens[i]);
        }
    }
}

/// The distinct tokens, ascending, and how often each occurs.
fn count(tokens: &[i32]) -> (Vec<i32>, Vec<u64>) {
    let mut sorted = tokens.to_vec();
    sorted.sort_unstable();
    sorted.chunk_by(|a, b| a == b).map(|run| (run[0], run.len() as u64)).unzip()
}

/// Code lengths of 1 to 24 bits for two or more tokens; zeros for fewer.
fn lengths(counts: &[u64]) -> Vec<u32> {
    let mut lens = vec![0; counts.len()];
    if counts.len() < 2 {
        return lens;
    }
    let mut weights = counts.to_vec();
    loop {
        let (book, _) = weights.iter().copied().enumerate().collect::<CodeBuilder<usize, u64>>().finish();
        for (&i, code) in book.iter() {
            lens[i] = code.len() as u32;
        }
        if lens.iter().all(|&l| l <= MAX_LEN) {
            return lens;
        }
        // Halved weights flatten the tree. They end as all ones, and a code for 2^24 equal weights fits; distinct run
        // lengths of 2^31 elements are fewer than 2^17.
        weights.iter_mut().for_each(|w| *w = w.div_ceil(2));
    }
}

/// The order of canonical codes: shorter first, then lower token.
fn canonical(lens: &[u32]) -> Vec<usize> {
    let mut order: Vec<usize> = (0..lens.len()).collect();
    order.sort_by_key(|&i| lens[i]);
    order
}

/// Canonical codes of a complete code's lengths, reversed for a stream that starts at the least significant bit.
fn codes(lens: &[u32]) -> Vec<u32> {
    let mut codes = vec![0; lens.len()];
    let mut next = 0u32; // the code, left-aligned in MAX_LEN bits
    for i in canonical(lens) {
        codes[i] = (next >> (MAX_LEN - lens[i])).reverse_bits() >> (32 - lens[i]);
        next += 1 << (MAX_LEN - lens[i]);
    }
    codes
}

fn put_table(w: &mut BitWriter, alphabet: &[i32], lens: &[u32]) {
    let Some(&first) = alphabet.first() else { return };
    put_number(w, alphabet.len() as u64);
    let zigzag = (first << 1 ^ first >> 31) as u32;
    put_number(w, u64::from(zigzag) + 1);
    for pair in alphabet.windows(2) {
        put_number(w, u64::from(pair[1].abs_diff(pair[0])));
    }
    if lens.len() > 1 {
        lens.iter().for_each(|&l| w.put(u64::from(l), LEN_BITS));
    }
}

/// Decodes the tokens of one block.
#[derive(Debug)]
pub(super) struct Decoder {
    /// In the order of their codes.
    tokens: Vec<i32>,
    /// How many codes there are of each length.
    counts: [u32; MAX_LEN as usize + 1],
}

impl Decoder {
    /// Reads the table of a block of at most `most` tokens.
    pub(super) fn new(r: &mut BitReader<'_>, most: usize) -> Result<Self> {
        let claimed = get_number(r)?;
        // Each token takes a bit or more of the table, so the claim is bounded by what is there, too.
        if claimed > most as u64 || claimed > r.bits_left() as u64 {
            return Err(CodecError::Corrupt("more distinct tokens than tokens"));
        }
        let alphabet = alphabet(r, claimed as usize)?;
        let mut counts = [0u32; MAX_LEN as usize + 1];
        if alphabet.len() < 2 {
            return Ok(Decoder { tokens: alphabet, counts });
        }
        let mut lens = Vec::with_capacity(alphabet.len());
        let mut kraft = 0u64;
        for _ in 0..alphabet.len() {
            let len = r.get(LEN_BITS) as u32;
            if !(1..=MAX_LEN).contains(&len) {
                return Err(CodecError::Corrupt("a code length out of range"));
            }
            kraft += 1 << (MAX_LEN - len);
            counts[len as usize] += 1;
            lens.push(len);
        }
        if kraft != 1 << MAX_LEN {
            return Err(CodecError::Corrupt("code lengths do not make a complete code"));
        }
        let tokens = canonical(&lens).into_iter().map(|i| alphabet[i]).collect();
        Ok(Decoder { tokens, counts })
    }

    /// The next token. A lone token takes no bits: the caller stops when its elements are there.
    pub(super) fn next(&self, r: &mut BitReader<'_>) -> Result<i32> {
        if let [lone] = self.tokens[..] {
            return Ok(lone);
        }
        let bits = r.peek();
        let (mut code, mut first, mut index) = (0u32, 0u32, 0u32);
        for len in 1..=MAX_LEN {
            code = code << 1 | (bits >> (len - 1)) as u32 & 1;
            let count = self.counts[len as usize];
            if code < first + count {
                if len as usize > r.bits_left() {
                    break;
                }
                r.skip(len);
                // All shorter codes are used up, so `code` is not below `first`.
                let token = self.tokens.get((index + code - first) as usize);
                return token.copied().ok_or(CodecError::Corrupt("no such code"));
            }
            index += count;
            first = (first + count) << 1;
        }
        Err(CodecError::Corrupt("truncated"))
    }
}

/// The distinct tokens of a table, ascending.
fn alphabet(r: &mut BitReader<'_>, distinct: usize) -> Result<Vec<i32>> {
    let zigzag = u32::try_from(get_number(r)? - 1).map_err(|_| CodecError::Corrupt("a token too large"))?;
    let mut token = i64::from((zigzag >> 1) as i32 ^ -((zigzag & 1) as i32));
    let mut alphabet = Vec::with_capacity(distinct);
    loop {
        alphabet.push(i32::try_from(token).map_err(|_| CodecError::Corrupt("a token too large"))?);
        if alphabet.len() >= distinct {
            return Ok(alphabet);
        }
        token += get_number(r)? as i64;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn round_trip(tokens: &[i32]) -> usize {
        let mut w = BitWriter::default();
        put_block(&mut w, tokens);
        let bytes = w.finish();
        let mut r = BitReader::new(&bytes);
        let decoder = Decoder::new(&mut r, tokens.len()).unwrap();
        let back: Vec<i32> = tokens.iter().map(|_| decoder.next(&mut r).unwrap()).collect();
        assert_eq!(back, tokens);
        assert!(r.ended_well());
        bytes.len()
    }

    #[test]
    fn alphabets_of_every_shape_round_trip() {
        assert_eq!(round_trip(&[-9; 100_000]), 2);
        round_trip(&[i32::MIN, i32::MAX, 0, i32::MAX]);
        round_trip(&[i32::MIN]);
        round_trip(&(-1000..1000).map(|i| i * i * i / 70).collect::<Vec<i32>>());
        let mut w = BitWriter::default();
        put_block(&mut w, &[]);
        assert!(w.finish().is_empty());
    }

    #[test]
    fn codes_are_limited_and_complete() {
        // Fibonacci counts: unlimited codes would be 44 bits long.
        let mut counts = vec![1u64, 1];
        while counts.len() < 45 {
            counts.push(counts[counts.len() - 1] + counts[counts.len() - 2]);
        }
        let lens = lengths(&counts);
        assert!(lens.iter().all(|&l| (1..=MAX_LEN).contains(&l)));
        assert_eq!(lens.iter().map(|&l| 1u64 << (MAX_LEN - l)).sum::<u64>(), 1 << MAX_LEN);
        // The unlimited tree is a chain; the limit costs little, as it only bends its far end.
        let bits = |lens: &[u32]| counts.iter().zip(lens).map(|(c, &l)| c * u64::from(l)).sum::<u64>();
        let chain: Vec<u32> = [44].into_iter().chain((1..=44).rev()).collect();
        let (limited, chain) = (bits(&lens), bits(&chain));
        assert!(limited <= chain + chain / 100, "{limited} against {chain}");
    }

    #[test]
    fn impossible_tables_are_refused() {
        let table = |distinct: u64, lens: &[u64]| {
            let mut w = BitWriter::default();
            put_number(&mut w, distinct);
            (0..distinct.min(9)).for_each(|_| put_number(&mut w, 1));
            lens.iter().for_each(|&l| w.put(l, LEN_BITS));
            w.finish()
        };
        let refused = |bytes: &[u8], most| Decoder::new(&mut BitReader::new(bytes), most).is_err();
        assert!(!refused(&table(3, &[1, 2, 2]), 3));
        assert!(refused(&table(3, &[1, 2, 2]), 2));
        for lens in [[1, 1, 1], [1, 2, 3], [0, 1, 1], [25, 1, 1], [2, 2, 2]] {
            assert!(refused(&table(3, &lens), 3), "{lens:?}");
        }
        assert!(refused(&table(1 << 32, &[]), usize::MAX));
        assert!(refused(&[], 9));
    }
}
