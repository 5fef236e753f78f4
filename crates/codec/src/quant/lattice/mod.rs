//! Dithered lattice quantiser and its coder: a tensor becomes multiples of a step, and only the coder looks at the
//! parent.
//!
//! The format is docs/format-lattice.md. Rooms: `params` says what a lattice is, `header` how a segment carries it,
//! `hint` which one an encoder is told; `half` reads and writes the dtypes, `cells` has the arithmetic, `piece` says
//! what some elements need of it, `quantise` rounds, `rows` finds the rows that are not on it. `predictions` is what
//! parent and grandparent say about an element, `activity` what the elements before it say, `symbols` puts both
//! together, `crate::entropy::tree` merges contexts to at most 16, `encode` and `decode` do segments.
//!
//! Why a lattice (and why the quantiser never looks at the parent): a residual against the parent with a dead zone
//! drops small consistent updates, and restored training ends up to 4 % worse; an absolute grid with an offset redrawn
//! after each restore does not. Why steps in proportion to sensitivity^(-1/3): it equalises what a row costs and what
//! it harms, as reverse water-filling does for weights whose rate is far below one bit.

pub(crate) mod activity;
pub(crate) mod cells;
pub(crate) mod decode;
pub(crate) mod encode;
pub(crate) mod half;
mod header;
mod hint;
pub(crate) mod moves;
mod params;
pub(crate) mod piece;
mod predictions;
mod quantise;
pub(crate) mod rows;
pub(crate) mod symbols;

use activity::{Activity, STEPS, STEPS_ALONE};
pub use cells::Lattice;
use cells::{Cells, number, place, round};
pub(crate) use decode::Reader;
use decode::{CONTEXTS, padded};
pub(crate) use encode::{encode, encode_best, moves_or_alone};
use half::{narrow, to_bf16, widen};
use header::Header;
pub use hint::Hint;
pub use params::Params;
pub(crate) use params::power;
use params::{factor, matrix, step_is_valid};
use piece::Piece;
use predictions::{MOVES, PLACES, Predictions, mirrored};
pub use quantise::{Outcome, Reason};
use symbols::{Block, CLASS_BITS, axes};

use crate::entropy::Limits;

/// Levels lie strictly between minus this and this.
const LIMIT: f32 = (1 << 20) as f32;

/// Elements whose cells are worked out at a time, so that all of it stays in the first-level cache.
const CHUNK: usize = 1024;

/// How its trees of contexts may grow.
const TREES: Limits = Limits { leaves: 16, bits: 5 };

#[cfg(test)]
mod tests;
