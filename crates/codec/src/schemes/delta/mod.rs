//! Scheme "delta": every element as a difference to its base, (sign, top bits) coded in the context of the base's
//! exponent, the bits below raw.

mod decode;
mod encode;
pub(crate) mod loops;

use crate::{
    Scheme,
    entropy::{
        ByExponent, COST_BITS, Context, Grid,
        contexts::{self, Run},
        normalise, tables,
    },
    schemes::{Numbers, signed, symbol_bases, symbol_of},
};

pub use decode::Front;
pub(crate) use decode::Reader;
pub(crate) use encode::{count, encode};
pub(crate) use loops::Classes;

/// What an encoder decides from counts.
#[derive(Debug)]
pub struct DeltaPlan {
    /// The segment up to its blocks, scheme byte first.
    pub head: Vec<u8>,
    /// Bits under the top one that join the class.
    pub t: u32,
    /// Frequencies of the contexts.
    pub freqs: Vec<[u16; 256]>,
    /// Context of every exponent.
    pub map: [u8; 256],
    grid: Grid,
}

impl DeltaPlan {
    /// Picks how many bits under the top one join the class, and the contexts, for symbols with as many of them as the
    /// type allows.
    pub fn new(numbers: Numbers, grid: Grid, by: &ByExponent) -> DeltaPlan {
        let runs = contexts::runs(by);
        let best = (0..=numbers.max_t()).rev().map(|t| plan_at(numbers, &runs, t)).min_by_key(|p| p.2);
        let (t, list, _) = best.unwrap_or_default();
        let freqs: Vec<[u16; 256]> = list.iter().map(|c| normalise(&c.counts)).collect();
        let mut head = vec![Scheme::Delta as u8, grid.log, t as u8, list.len() as u8];
        head.extend(list.iter().skip(1).map(|c| c.first));
        freqs.iter().for_each(|f| tables::put(&mut head, f, true));
        DeltaPlan { head, t, freqs, map: context_map(list.iter().map(|c| c.first)), grid }
    }

    /// The segment, from the stream and the raw bits of each block.
    pub fn finish(&self, blocks: &[(&[u8], &[u8])]) -> Vec<u8> {
        let size: usize = blocks.iter().map(|(s, b)| s.len() + b.len() + 8).sum();
        let mut out = Vec::with_capacity(self.head.len() + size);
        out.extend_from_slice(&self.head);
        self.grid.put_lengths(&mut out, blocks.iter().map(|(s, b)| 4 + s.len() + b.len()));
        for (stream, bits) in blocks {
            out.extend_from_slice(&(stream.len() as u32).to_le_bytes());
            out.extend_from_slice(stream);
            out.extend_from_slice(bits);
        }
        out
    }
}

/// Contexts and cost in 1/1024 bits with `t` bits in the class, from runs with as many as the type allows.
fn plan_at(numbers: Numbers, runs: &[Run], t: u32) -> (u32, Vec<Context>, u64) {
    let to = symbol_bases(t);
    let coarse = if t == numbers.max_t() {
        runs.to_vec()
    } else {
        let from = symbol_bases(numbers.max_t());
        let symbol = |s: u8| symbol_of(signed(s, from[usize::from(s)].0), t);
        runs.iter().map(|run| run.replaced(symbol)).collect()
    };
    let (list, mut cost) = contexts::merge(coarse);
    for c in &list {
        cost += c.counts.iter().zip(to).map(|(&n, b)| u64::from(n) * u64::from(b.1)).sum::<u64>() << COST_BITS;
    }
    (t, list, cost)
}

/// Cost in 1/1024 bits of coding these counts, with one `t` only: for an estimate.
pub(crate) fn cost(numbers: Numbers, by: &ByExponent) -> u64 {
    plan_at(numbers, &contexts::runs(by), numbers.max_t().min(2)).2
}

/// Context of every exponent, from the first exponents of the contexts.
pub(crate) fn context_map(firsts: impl Iterator<Item = u8>) -> [u8; 256] {
    let mut map = [0u8; 256];
    for (c, first) in firsts.enumerate() {
        map[usize::from(first)..].fill(c as u8);
    }
    map
}
