//! The element types of GGUF and their sizes.

use mdl_codec::Dtype;

/// How a type's elements are stored.
pub(crate) enum Kind {
    /// One by one.
    Plain(Dtype),
    /// In blocks of so many elements and bytes: scales, then packed levels.
    Blocks { elements: u64, bytes: u64 },
    /// A type of which we do not know the size.
    Unknown,
}

/// What the type with this number is. Sizes are sums over a block's fields: half-precision scales take 2 bytes, packed
/// levels their bits times the block, k-quants of 256 add packed scales of their sub-blocks.
pub(crate) fn kind(number: u32) -> Kind {
    let (elements, bytes) = match number {
        0 => return Kind::Plain(Dtype::F32),
        1 => return Kind::Plain(Dtype::F16),
        24 => return Kind::Plain(Dtype::I8),
        25 => return Kind::Plain(Dtype::I16),
        26 => return Kind::Plain(Dtype::I32),
        27 => return Kind::Plain(Dtype::I64),
        28 => return Kind::Plain(Dtype::F64),
        30 => return Kind::Plain(Dtype::BF16),
        2 => (32, 2 + 16),                // Q4_0
        3 => (32, 4 + 16),                // Q4_1
        6 => (32, 2 + 4 + 16),            // Q5_0
        7 => (32, 4 + 4 + 16),            // Q5_1
        8 => (32, 2 + 32),                // Q8_0; 9, Q8_1, has had two sizes and is in no file
        10 => (256, 4 + 16 + 64),         // Q2_K
        11 => (256, 2 + 12 + 32 + 64),    // Q3_K
        12 => (256, 4 + 12 + 128),        // Q4_K
        13 => (256, 4 + 12 + 32 + 128),   // Q5_K
        14 => (256, 2 + 16 + 64 + 128),   // Q6_K
        15 => (256, 4 + 32 + 256),        // Q8_K
        16 => (256, 2 + 64),              // IQ2_XXS
        17 => (256, 2 + 8 + 64),          // IQ2_XS
        18 => (256, 2 + 32 + 64),         // IQ3_XXS
        19 => (256, 2 + 16 + 32),         // IQ1_S
        20 => (32, 2 + 16),               // IQ4_NL
        21 => (256, 2 + 4 + 8 + 32 + 64), // IQ3_S
        22 => (256, 2 + 8 + 8 + 64),      // IQ2_S
        23 => (256, 2 + 2 + 4 + 128),     // IQ4_XS
        29 => (256, 8 + 16 + 32),         // IQ1_M
        34 => (256, 2 + 4 + 48),          // TQ1_0
        35 => (256, 2 + 64),              // TQ2_0
        39 => (32, 1 + 16),               // MXFP4
        40 => (64, 4 + 32),               // NVFP4
        41 => (128, 2 + 16),              // Q1_0
        _ => return Kind::Unknown,
    };
    Kind::Blocks { elements, bytes }
}
