//! Lattice quantiser and coder on the device: tensors to reconstructions, reconstructions to segments and back.
//!
//! Activity is what is sequential here: it goes over a block of 2^18 elements 32 at a time. An encoder knows all
//! differences beforehand, so that nothing is: its averages over groups are sums that a warp adds up side by side, and
//! those of a column depend on no other column, so that a thread follows one down the rows with the average in a
//! register. A decoder needs the activity to read what the activity is made of. There a warp walks each block, and does
//! nothing else: what the parents say is turned into a byte an element before it, cells and numbers come after it, in
//! passes over everything at once. That reads the parent twice, and still wins: in the walk, that arithmetic would make
//! every warp wait for its own.

mod decode;
mod encode;
mod quantise;
mod symbols;
#[cfg(test)]
mod tests;
mod words;

pub(crate) use decode::decode;
pub(crate) use encode::encode;
pub(crate) use quantise::quantise;
use symbols::{Coded, Subject, look};
use words::{Lines, PIECE, Placed};

/// Threads of a block, and elements that each takes at a time.
const THREADS: u32 = 256;
const FOUR: usize = 4;
/// Elements of a group.
const GROUP: usize = 32;
/// Blocks of threads that keep any device busy to the end.
const BLOCKS: u32 = 16_384;
/// Most rows of a grid.
const ROWS: usize = 65_535;

/// Columns of a grid of `rows` rows for `n` elements at most, each of its blocks of threads taking `share` or, where
/// there are more blocks than any device has room for, that again and again.
fn columns(n: usize, share: usize, rows: u32) -> u32 {
    let most = (BLOCKS / rows.max(1)).max(64) as usize;
    n.div_ceil(share).clamp(1, most) as u32
}
