//! Entropy coding: bits, frequency tables, contexts, rANS and Huffman, blocks that decode independently.

pub(crate) mod bits;
pub(crate) mod blocks;
pub(crate) mod coder;
pub(crate) mod contexts;
pub(crate) mod huffman;
pub(crate) mod lanes;
pub(crate) mod log2;
pub(crate) mod rans;
pub(crate) mod tables;
pub(crate) mod tree;

pub(crate) use bits::{BitReader, BitWriter, Cursor, put_varint, put_with_length};
pub(crate) use blocks::{Grid, Job, Part, split, split_short};
pub(crate) use coder::{Counts, Histogram, PlaneDecoder, PlaneEncoder};
pub(crate) use contexts::{ByExponent, Context};
pub(crate) use lanes::Stream;
pub(crate) use log2::{COST_BITS, entropy, entropy_of, log2, log2_of_float, weighted};
pub(crate) use rans::{DecTable, EncTable, LANES, Next, Planes};
pub(crate) use tables::{PROB_BITS, PROB_ONE, get_freqs, normalise};
pub(crate) use tree::{Axes, Limits, Tree};
