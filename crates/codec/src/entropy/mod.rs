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
