//! The paper's own delta encoder for quantised checkpoints (Inshrinkerator, section 6): a rival to compare with.
//!
//! | variant | what is coded | Huffman codes |
//! |---|---|---|
//! | `he` | the cyclic delta of each element | one |
//! | `rle` | the delta's runs, by the sign trick | one |
//! | `pe` | the same, in one group of elements per level of the parent | one per group |
//!
//! Without a parent all three are one Huffman code over the levels. A comparison of sizes stores the values of
//! protected elements and the codebook beside the stream; they are the same for every coder.
//!
//! # Readings of the paper
//! * The ring of section 6 has `Bm + 2` places, `Bm = max(B, B of the parent)`: pruned and protected "are treated as
//!   unique quantization levels with the same delta calculation".
//! * Algorithm 6 adds the delta to the parent's level, but the text defines it as parent minus child, so restoring
//!   subtracts.
//! * Nothing is said of how the Huffman tables are stored. They count here, in a form that is kind to large sparse
//!   alphabets, and a code over a single token takes no bits, so that no variant loses by bookkeeping.
//!
//! # Stream, version 1
//! `u8` version (1), `u8` kind (0 levels, 1 `he`, 2 `rle`, 3 `pe`), `u16` little-endian `B` of the child; then bit
//! fields, least significant bit first, zero-padded to a byte at the very end: one block for kinds 0 to 2, one block
//! per place of the ring (in order, nothing for an empty group) for kind 3. Known from outside: the element count, the
//! parent's levels and bin count. A block is
//! 1. the number of distinct tokens `m`;
//! 2. the lowest token (zigzag, plus 1), then each gap to the next token, ascending;
//! 3. if `m > 1`: a code length of 5 bits for each token in that order (1 to 24, a complete code);
//! 4. if `m > 1`: the code of each token, the code's first bit first. Codes are canonical: shorter first, then lower
//!    token.
//!
//! The numbers of 1 and 2 are Elias delta codes. A block needs no length: it ends when its tokens cover its elements.
//! The same is said, for a reader's author, in docs/format-paper.md.

mod delta;
mod huffman;
mod numbers;
mod rearrange;
mod runs;
mod stream;

pub use delta::{Levels, MAX_BINS, Ring, cyclic_delta};
pub use rearrange::{rearrange, restore};
pub use runs::run_tokens;
pub use stream::{MAX_ELEMENTS, VERSION, bins_of, decode, encode};

/// The encoders of Figure 11.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Variant {
    /// Huffman over the deltas, as in QD-compressor.
    He,
    /// Huffman over the deltas' runs.
    Rle,
    /// Rearranged by the parent's level; runs and Huffman in each group (Algorithms 5 and 6).
    Pe,
}

impl Variant {
    /// All of them, in the order of Figure 11.
    pub const ALL: [Variant; 3] = [Variant::He, Variant::Rle, Variant::Pe];

    /// The figure's name in lower case.
    pub fn name(self) -> &'static str {
        match self {
            Variant::He => "he",
            Variant::Rle => "rle",
            Variant::Pe => "pe",
        }
    }
}
