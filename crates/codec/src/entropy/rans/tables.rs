//! Tables of rANS: what encoding a symbol and decoding a slot need.

use crate::{CodecError, Result, entropy::PROB_ONE};

/// Slots of a context.
const SLOTS: usize = PROB_ONE as usize;

/// What encoding one symbol needs.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct EncSymbol {
    /// ceil(2^64 / frequency), so that a high product divides exactly (states have 32 bits, frequencies 13).
    pub(super) reciprocal: u64,
    pub(super) freq: u16,
    pub(super) bias: u16,
}

/// The bytes of a table's entries, all first ones first.
pub(crate) type Planes = [[u8; 256]; 8];

/// Encoding tables, 256 symbols for each context.
#[derive(Debug)]
pub struct EncTable {
    pub(super) symbols: Vec<EncSymbol>,
    /// The same for vectors: floor(2^32 / frequency) or 2^32 - 1 | frequency << 32 | start << 48.
    packed: Vec<u64>,
}

impl EncTable {
    /// Tables for contexts with these frequencies (each sums to 4096, or is all zero and never used).
    pub fn new(contexts: &[[u16; 256]]) -> Self {
        let mut symbols = vec![EncSymbol::default(); contexts.len() * 256];
        let mut packed = Vec::with_capacity(contexts.len() * 256);
        for (freqs, table) in contexts.iter().zip(symbols.chunks_exact_mut(256)) {
            let mut start = 0u16;
            for (&freq, e) in freqs.iter().zip(table) {
                // Frequency 1 would need 2^64: 2^64 - 1 divides to x - 1 instead, and the bias makes up for it.
                *e = match freq {
                    0 => EncSymbol::default(),
                    1 => EncSymbol { reciprocal: u64::MAX, freq, bias: start + (PROB_ONE as u16 - 1) },
                    _ => EncSymbol { reciprocal: u64::MAX / u64::from(freq) + 1, freq, bias: start },
                };
                let reciprocal = (1u64 << 32).checked_div(freq.into()).map_or(0, |r| r.min(u32::MAX.into()));
                packed.push(reciprocal | u64::from(freq) << 32 | u64::from(start) << 48);
                start += freq;
            }
        }
        EncTable { symbols, packed }
    }

    /// The tables for a device, 256 symbols a context: reciprocal, then frequency | bias << 32.
    pub fn words(&self) -> Vec<u64> {
        let pair = |e: &EncSymbol| [e.reciprocal, u64::from(e.freq) | u64::from(e.bias) << 32];
        self.symbols.iter().flat_map(pair).collect()
    }

    /// The tables for vectors, 256 symbols a context.
    pub(crate) fn packed(&self) -> &[u64] {
        &self.packed
    }

    /// The first context's table for vectors, byte by byte.
    pub(crate) fn planes(&self) -> Box<Planes> {
        let mut planes = Box::new([[0; 256]; 8]);
        for (s, entry) in self.packed.iter().take(256).enumerate() {
            planes.iter_mut().zip(entry.to_le_bytes()).for_each(|(plane, byte)| plane[s] = byte);
        }
        planes
    }
}

/// Decoding tables, 4096 slots for each context: symbol | (slot - start) << 8 | (frequency - 1) << 20.
#[derive(Debug)]
pub struct DecTable {
    slots: Vec<u32>,
}

impl DecTable {
    /// Tables for contexts with these frequencies, each of which sums to 4096.
    pub fn new(contexts: &[[u16; 256]]) -> Result<Self> {
        let mut slots = Vec::with_capacity(contexts.len() * SLOTS);
        for freqs in contexts {
            for (s, &f) in freqs.iter().enumerate().filter(|(_, f)| **f > 0) {
                let head = s as u32 | (u32::from(f) - 1) << 20;
                slots.extend((0..u32::from(f)).map(|i| head | i << 8));
            }
            if slots.len() % SLOTS != 0 {
                return Err(CodecError::Corrupt("frequencies do not sum to one"));
            }
        }
        Ok(DecTable { slots })
    }

    /// Number of contexts.
    pub fn contexts(&self) -> usize {
        self.slots.len() / SLOTS
    }

    /// All slots, context by context.
    pub fn slots(&self) -> &[u32] {
        &self.slots
    }
}
