//! Rules for choosing between two encodings, the same in every engine.

use crate::{Encoded, Scheme, entropy::COST_BITS};

/// Segments up to this many bytes are tried without the grandparent, too.
const SHORT: usize = 1 << 20;
/// What naming a grandparent costs a store, in a payload's header and in a pack's footer.
const GRAND_BYTES: usize = 64;

/// Whether an encoding on the lattice is kept without trying what the estimate (in 1/1024 bits) chose.
pub fn lattice_wins(bytes: usize, estimate: u64) -> bool {
    (bytes as u64 * 8) << COST_BITS <= estimate
}

/// Whether a segment of `raw` bytes is tried without the grandparent, too.
pub fn wants_without_grand(raw: usize, scheme: Scheme) -> bool {
    scheme.bases() == 2 && raw <= SHORT
}

/// The encoding without the grandparent, unless the one with it saves more than naming it costs.
pub fn with_or_without_grand(with: Encoded, without: Encoded) -> Encoded {
    if without.bytes.len() <= with.bytes.len() + GRAND_BYTES { without } else { with }
}

/// Whether an encoding is no longer than the bytes themselves.
pub fn pays(encoded: usize, raw: usize) -> bool {
    encoded <= raw
}
