//! Shared by the difference coders: blocks of numbers, tiles of warps, addresses in device memory.

use crate::{Arg, Buffer, DeviceError, Kernel, Result, Session, View, layout::pair};
use mdl_codec::{
    Dtype, SEGMENT_BYTES,
    engine_internals::{Grid, Numbers},
};

/// Numbers of a tile: `DIFF_TILE` in `diff.cuh`.
pub(crate) const TILE: usize = 2048;
/// Warps of a block of threads.
pub(crate) const WARPS: usize = 8;

/// A block of the format: numbers, and their base.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Block {
    /// Which segment it is of.
    pub job: usize,
    /// What they are.
    pub numbers: Numbers,
    /// Where the numbers are, or are to be.
    pub at: u64,
    /// Where the base's are.
    pub base: u64,
    /// How many there are.
    pub n: usize,
}

/// The blocks of a segment.
pub(crate) fn cut(job: usize, numbers: Numbers, grid: Grid, at: View<'_>, base: View<'_>) -> Vec<Block> {
    let one = |b| {
        let elements = grid.elements(b);
        let start = (elements.start * numbers.size) as u64;
        Block { job, numbers, at: at.address() + start, base: base.address() + start, n: elements.len() }
    };
    (0..grid.blocks()).map(one).collect()
}

/// The numbers of a segment, how many there are, and its base.
pub(crate) fn checked<'a>(
    dtype: Dtype,
    segment: View<'_>,
    base: Option<View<'a>>,
) -> Result<(Numbers, usize, View<'a>)> {
    let numbers = Numbers::from_dtype(dtype);
    let base = base.filter(|b| b.len() == segment.len());
    match base {
        Some(base) if segment.len() <= SEGMENT_BYTES && segment.len().is_multiple_of(dtype.size()) => {
            Ok((numbers, segment.len() / numbers.size, base))
        }
        _ => Err(DeviceError::Failed("a segment whose length or base does not fit".to_owned())),
    }
}

/// Cuts blocks into pieces of `per` numbers: block | piece << 32.
pub(crate) fn pieces(blocks: &[Block], per: usize) -> Vec<u64> {
    let of = |(b, block): (usize, &Block)| (0..block.n.div_ceil(per)).map(move |p| pair(b, p));
    blocks.iter().enumerate().flat_map(of).collect()
}

/// Tiles of blocks on the device.
pub(crate) struct Tiles<'s> {
    list: Buffer<'s>,
    count: usize,
}

impl<'s> Tiles<'s> {
    /// All tiles of these blocks.
    pub(crate) fn new(session: &'s Session, blocks: &[Block]) -> Result<Tiles<'s>> {
        let list = pieces(blocks, TILE);
        Ok(Tiles { count: list.len(), list: session.upload_u64(&list)? })
    }

    /// Starts a kernel with a warp for each; its arguments are the blocks' structures, the tiles, their count, and
    /// `more`.
    pub(crate) fn launch(&self, session: &Session, kernel: Kernel, blocks: &Buffer<'_>, more: &[Arg]) -> Result<()> {
        let first = [blocks.arg(), self.list.arg(), Arg::U32(self.count as u32)];
        let args = [&first, more].concat();
        session.launch(kernel, (self.count.div_ceil(WARPS) as u32, 1), 32 * WARPS as u32, &args)
    }
}

/// Starts a kernel with a warp for each block; its arguments are the blocks' structures, their count and `to`.
pub(crate) fn launch_blocks(
    session: &Session,
    kernel: Kernel,
    blocks: &Buffer<'_>,
    count: usize,
    to: Arg,
) -> Result<()> {
    let args = [blocks.arg(), Arg::U32(count as u32), to];
    session.launch(kernel, (count.div_ceil(WARPS) as u32, 1), 32 * WARPS as u32, &args)
}

/// Length of raw bits as kernels know it. No block has as many as 2^30.
pub(crate) fn bits_len(bits: &[u8]) -> Result<u64> {
    match bits.len() {
        n if n < 1 << 27 => Ok(n as u64),
        _ => Err(DeviceError::Corrupt("raw bits do not end where they should")),
    }
}
