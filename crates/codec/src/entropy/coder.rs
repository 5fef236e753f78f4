//! Entropy coder of a plane of byte symbols: constant, raw, Huffman or rANS, whichever is cheapest.
//!
//! The rule, from exact integer counts over the whole segment: one distinct symbol -> constant; else raw, Huffman or
//! rANS, whichever is smallest, where rANS may be a 64th larger than Huffman and still win (it decodes faster).

use crate::{
    CodecError, Result,
    entropy::{
        COST_BITS, Cursor, PROB_ONE, entropy, get_freqs, huffman, log2, normalise, put_with_length, rans,
        tables::{get, put, size},
    },
    simd::Simd,
};

const TAG_RAW: u8 = 0;
const TAG_CONST: u8 = 1;
const TAG_RANS: u8 = 2;
const TAG_HUFFMAN: u8 = 3;

/// Counts of each symbol of a plane.
pub type Counts = [u32; 256];

/// Counts symbols in four partial histograms, which keeps equal neighbours from waiting for each other.
pub(crate) struct Histogram {
    parts: [Counts; 4],
}

impl Histogram {
    /// Nothing counted.
    pub(crate) fn new() -> Self {
        Histogram { parts: [[0; 256]; 4] }
    }

    /// Counts the symbols.
    pub(crate) fn add(&mut self, symbols: &[u8]) {
        let (words, rest) = symbols.as_chunks::<8>();
        for w in words {
            let w = u64::from_le_bytes(*w);
            for i in 0..8 {
                self.parts[i % 4][(w >> (8 * i)) as usize & 255] += 1;
            }
        }
        for &s in rest {
            self.parts[0][usize::from(s)] += 1;
        }
    }

    /// All counts.
    pub(crate) fn total(&self) -> Counts {
        let [a, b, c, d] = &self.parts;
        std::array::from_fn(|i| a[i] + b[i] + c[i] + d[i])
    }
}

/// The way a plane is coded, ready to encode its blocks.
#[derive(Debug)]
pub enum PlaneEncoder {
    /// One byte a symbol.
    Raw,
    /// Nothing a symbol.
    Const(u8),
    /// rANS with one context.
    Rans(Box<[u16; 256]>, rans::EncTable),
    /// Canonical Huffman.
    Huffman(Box<[u16; 256]>, Box<huffman::Encoder>),
}

impl PlaneEncoder {
    /// Picks by the rule above for symbols with these counts, spread over `blocks` blocks.
    pub fn choose(counts: &Counts, blocks: usize) -> Result<Self> {
        let total: u64 = counts.iter().map(|&c| u64::from(c)).sum();
        let distinct = counts.iter().filter(|&&c| c > 0).count();
        if distinct <= 1 {
            return Ok(PlaneEncoder::Const(counts.iter().position(|&c| c > 0).unwrap_or(0) as u8));
        }
        let blocks = blocks as u64;
        let freqs = normalise(counts);
        let ideal = scaled_cost(counts, &freqs) >> (COST_BITS + 3);
        let rans = ideal + blocks * (4 + rans::STATE_BYTES as u64) + size(&freqs, true) as u64;
        let floor = (entropy(counts) >> (COST_BITS + 3)) + blocks * 4;
        // Huffman cannot beat the entropy: its lengths are only worked out where that bound leaves it a chance.
        let mut best = (rans, PlaneEncoder::Raw);
        if floor + floor / 64 < rans {
            let lens = huffman::lengths(counts);
            let bytes = huffman::cost_bits(counts, &lens).div_ceil(8) + blocks * 5 + size(&lens, false) as u64;
            if bytes + bytes / 64 < rans {
                best = (bytes, PlaneEncoder::Huffman(Box::new(lens), Box::new(huffman::Encoder::new(&lens)?)));
            }
        }
        if best.0 >= total {
            return Ok(PlaneEncoder::Raw);
        }
        if matches!(best.1, PlaneEncoder::Raw) {
            best.1 = PlaneEncoder::Rans(Box::new(freqs), rans::EncTable::new(&[freqs]));
        }
        Ok(best.1)
    }

    /// Appends the tag and the table.
    pub fn put_header(&self, out: &mut Vec<u8>) {
        match self {
            PlaneEncoder::Raw => out.push(TAG_RAW),
            PlaneEncoder::Const(s) => out.extend_from_slice(&[TAG_CONST, *s]),
            PlaneEncoder::Rans(freqs, _) => {
                out.push(TAG_RANS);
                put(out, freqs, true);
            }
            PlaneEncoder::Huffman(lens, _) => {
                out.push(TAG_HUFFMAN);
                put(out, lens, false);
            }
        }
    }

    /// Appends one block of the plane.
    pub(crate) fn encode(&self, simd: Simd, symbols: &[u8], out: &mut Vec<u8>) {
        match self {
            PlaneEncoder::Raw => out.extend_from_slice(symbols),
            PlaneEncoder::Const(_) => {}
            PlaneEncoder::Rans(_, table) => {
                put_with_length(out, |out| rans::encode(simd, table, symbols, None, out));
            }
            PlaneEncoder::Huffman(_, encoder) => put_with_length(out, |out| encoder.encode(symbols, out)),
        }
    }
}

/// Length in 1/1024 bits of coding these counts with these frequencies.
pub(crate) fn scaled_cost(counts: &Counts, freqs: &[u16; 256]) -> u64 {
    let one = log2(u64::from(PROB_ONE));
    counts.iter().zip(freqs).filter(|(c, _)| **c > 0).map(|(&c, &f)| u64::from(c) * (one - log2(u64::from(f)))).sum()
}

/// The way a plane is coded, ready to decode its blocks.
#[derive(Debug)]
pub enum PlaneDecoder {
    /// One byte a symbol.
    Raw,
    /// Nothing a symbol.
    Const(u8),
    /// rANS with one context.
    Rans(rans::DecTable),
    /// Canonical Huffman.
    Huffman(huffman::Decoder),
}

impl PlaneDecoder {
    /// Reads the tag and the table.
    pub(crate) fn get_header(cursor: &mut Cursor<'_>) -> Result<Self> {
        Ok(match cursor.u8()? {
            TAG_RAW => PlaneDecoder::Raw,
            TAG_CONST => PlaneDecoder::Const(cursor.u8()?),
            TAG_RANS => PlaneDecoder::Rans(rans::DecTable::new(&[get_freqs(cursor)?])?),
            TAG_HUFFMAN => PlaneDecoder::Huffman(huffman::Decoder::new(&get(cursor, false)?)?),
            _ => return Err(CodecError::Corrupt("unknown plane coder")),
        })
    }

    /// Takes the body of one block of `n` symbols, without the length before it.
    pub(crate) fn take<'a>(&self, cursor: &mut Cursor<'a>, n: usize) -> Result<&'a [u8]> {
        let len = match self {
            PlaneDecoder::Raw => n,
            PlaneDecoder::Const(_) => 0,
            PlaneDecoder::Rans(_) | PlaneDecoder::Huffman(_) => cursor.u32()? as usize,
        };
        cursor.take(len)
    }

    /// Reads one block of `out.len()` symbols.
    pub(crate) fn decode(&self, simd: Simd, cursor: &mut Cursor<'_>, out: &mut [u8]) -> Result<()> {
        self.decode_body(simd, self.take(cursor, out.len())?, out)
    }

    /// Decodes what [`take`](Self::take) took for as many symbols.
    pub fn decode_body(&self, simd: Simd, body: &[u8], out: &mut [u8]) -> Result<()> {
        match self {
            PlaneDecoder::Raw if body.len() != out.len() => return Err(CodecError::Corrupt("truncated")),
            PlaneDecoder::Raw => out.copy_from_slice(body),
            PlaneDecoder::Const(s) => out.fill(*s),
            PlaneDecoder::Rans(table) => rans::decode(simd, table, body, None, out)?,
            PlaneDecoder::Huffman(decoder) => decoder.decode(body, out)?,
        }
        Ok(())
    }
}
