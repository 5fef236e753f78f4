//! Sparse encoder: segments into bytes.

use crate::{
    Encode, Kernel, Result, Session,
    layout::places,
    schemes::diff::{Block, TILE, Tiles, checked, cut, launch_blocks},
};
use mdl_codec::engine_internals::{
    Grid, Simd,
    sparse::{Changes, finish},
};
use rayon::prelude::*;
use std::ops::Range;

const COUNT: Kernel = Kernel::new("sparse", "sparse_count");
const SCAN: Kernel = Kernel::new("sparse", "sparse_scan");
const EMIT: Kernel = Kernel::new("sparse", "sparse_emit");

/// The words of `SparseBlock` in `sparse.cu`.
fn words(b: &Block, tiles: u64, [gaps, symbols, bits]: [u64; 3]) -> [u64; 9] {
    let [first, second] = b.numbers.words();
    [b.at, b.base, tiles, gaps, symbols, bits, first, second, b.n as u64]
}

/// Encodes each segment as changes of its base: the bytes of the processor's sparse, of which there are always some.
pub(crate) fn encode(session: &Session, jobs: &[Encode<'_>]) -> Result<Vec<Option<Vec<u8>>>> {
    if jobs.is_empty() {
        return Ok(Vec::new());
    }
    let (mut blocks, mut grids) = (Vec::new(), Vec::new());
    for (i, job) in jobs.iter().enumerate() {
        let (numbers, n, base) = checked(job.dtype, job.raw, job.base)?;
        grids.push(Grid::new(n));
        blocks.extend(cut(i, numbers, grids[i], job.raw, base));
    }
    let lists = changes(session, &blocks)?;
    let of = |job: usize| {
        let first = blocks.partition_point(|b| b.job < job);
        &lists.blocks[first..blocks.partition_point(|b| b.job <= job)]
    };
    let one = |(job, grid): (usize, &Grid)| {
        let cut = |r: &Range<usize>| &lists.bytes[r.clone()];
        let all: Vec<Changes<&[u8]>> = of(job)
            .iter()
            .map(|[gaps, symbols, bits]| Changes { gaps: cut(gaps), symbols: cut(symbols), bits: cut(bits) })
            .collect();
        Ok(Some(finish(Simd::detect(), *grid, &all)?))
    };
    grids.par_iter().enumerate().map(one).collect()
}

/// Lists of changes.
struct Lists {
    bytes: Vec<u8>,
    /// Gaps, symbols and raw bits of each block.
    blocks: Vec<[Range<usize>; 3]>,
}

/// Finds the changes of all blocks and brings them to the host.
fn changes(session: &Session, blocks: &[Block]) -> Result<Lists> {
    let (tiles_at, len) = places(blocks.iter().map(|b| 16 * b.n.div_ceil(TILE)));
    let sums = session.buffer(len)?;
    let totals = session.buffer(8 * blocks.len())?;
    let structures = |room: u64, ends: &[[Range<usize>; 3]]| {
        let at = |r: &Range<usize>| room + r.start as u64;
        session.upload_list((0..blocks.len()).map(|i| {
            let ends = ends.get(i).map_or([0; 3], |[a, b, c]| [at(a), at(b), at(c)]);
            words(&blocks[i], sums.address() + tiles_at[i] as u64, ends)
        }))
    };
    let list = structures(0, &[])?;
    let tiles = Tiles::new(session, blocks)?;
    tiles.launch(session, COUNT, &list, &[])?;
    launch_blocks(session, SCAN, &list, blocks.len(), totals.arg())?;
    let totals = session.download_u32(totals.view())?;
    let pairs = totals.as_chunks::<2>().0;
    // Room for whole words; what is not bits in the last one is cut off.
    let (starts, len) = places(pairs.iter().flat_map(|&[changes, bits]| {
        let changes = changes as usize;
        [changes, changes, 4 * (bits as usize).div_ceil(32)]
    }));
    let ends: Vec<[Range<usize>; 3]> = pairs
        .iter()
        .zip(starts.as_chunks::<3>().0)
        .map(|(&[changes, bits], &[g, s, b])| {
            let changes = changes as usize;
            [g..g + changes, s..s + changes, b..b + (bits as usize).div_ceil(8)]
        })
        .collect();
    let room = session.zeroed(len)?;
    if len > 0 {
        let list = structures(room.address(), &ends)?;
        tiles.launch(session, EMIT, &list, &[])?;
    }
    Ok(Lists { bytes: session.download(room.view())?, blocks: ends })
}
