//! Delta encoder: segments into bytes.

use crate::{
    Arg, Buffer, Encode, Kernel, Result, Session, View, copy,
    layout::places,
    schemes::{
        diff::{Block, TILE, Tiles, checked, cut, launch_blocks, pieces},
        rans, tables,
    },
};
use mdl_codec::engine_internals::{ByExponent, Grid, Numbers, delta::DeltaPlan};
use rayon::prelude::*;

const COUNT: Kernel = Kernel::new("delta", "delta_count");
const SCAN: Kernel = Kernel::new("delta", "delta_scan");
const EMIT: Kernel = Kernel::new("delta", "delta_emit");
/// Warps, and so tiles, of a block of threads that counts: many, since its table of counts is cleared and added up
/// once.
const COUNTERS: usize = 16;
/// Bytes of the counts of an exponent.
const ROW: usize = 4 * 256;

/// What `DeltaBlock` in `delta.cu` holds besides the numbers; addresses.
#[derive(Clone, Copy, Default)]
struct Ends {
    tiles: u64,
    counts: u64,
    seen: u64,
    symbols: u64,
    ctx: u64,
    map: u64,
    bits: u64,
    t: u32,
}

fn words(b: &Block, e: Ends) -> [u64; 12] {
    let [first, second] = b.numbers.words();
    let n = b.n as u64 | u64::from(e.t) << 32;
    [b.at, b.base, e.tiles, e.counts, e.seen, e.symbols, e.ctx, e.map, e.bits, first, second, n]
}

/// Encodes each segment against its base: the bytes of the processor's delta.
pub(crate) fn encode(session: &Session, jobs: &[Encode<'_>]) -> Result<Vec<Vec<u8>>> {
    if jobs.is_empty() {
        return Ok(Vec::new());
    }
    let (mut blocks, mut segments) = (Vec::new(), Vec::new());
    for (i, job) in jobs.iter().enumerate() {
        let (numbers, n, base) = checked(job.dtype, job.raw, job.base)?;
        let grid = Grid::new(n);
        blocks.extend(cut(i, numbers, grid, job.raw, base));
        segments.push((numbers, grid));
    }
    let (at, len) = places(blocks.iter().map(|b| 16 * b.n.div_ceil(TILE)));
    let tiles = session.buffer(len)?;
    let starts: Vec<u64> = at.iter().map(|s| tiles.address() + *s as u64).collect();
    let (counts, totals) = count(session, &segments, &blocks, &starts)?;
    let plans: Vec<DeltaPlan> =
        segments.par_iter().zip(&counts).map(|((numbers, grid), by)| DeltaPlan::new(*numbers, *grid, by)).collect();
    emit(session, &plans, &blocks, &starts, &totals)
}

/// Counts of each segment's symbols, and the raw bits of each block with every number of bits in the class.
fn count(
    session: &Session,
    segments: &[(Numbers, Grid)],
    blocks: &[Block],
    tiles: &[u64],
) -> Result<(Vec<ByExponent>, Vec<[u32; 4]>)> {
    let mut rows = 0;
    let firsts: Vec<usize> = segments
        .iter()
        .map(|(numbers, _)| {
            let first = rows;
            rows += numbers.exponents();
            first
        })
        .collect();
    let counts = session.zeroed(rows * ROW)?;
    // Which rows occur, then the blocks' totals: one download.
    let split = (4 * rows).next_multiple_of(16);
    let small = session.zeroed(split + 16 * blocks.len())?;
    let list = session.upload_list(blocks.iter().zip(tiles).map(|(b, &tiles)| {
        let first = firsts[b.job] as u64;
        let ends = Ends {
            tiles,
            counts: counts.address() + first * ROW as u64,
            seen: small.address() + first * 4,
            ..Ends::default()
        };
        words(b, ends)
    }))?;
    let groups = pieces(blocks, COUNTERS * TILE);
    let room = session.upload_u64(&groups)?;
    let args = [list.arg(), room.arg()];
    session.launch(COUNT, (groups.len() as u32, 1), 32 * COUNTERS as u32, &args)?;
    let to = Arg::Ptr(small.address() + split as u64);
    launch_blocks(session, SCAN, &list, blocks.len(), to)?;
    let small = session.download_u32(small.view())?;
    let (seen, totals) = small.split_at(split / 4);
    let by = rows_that_occur(session, &counts, segments, &firsts, seen)?;
    Ok((by, totals.as_chunks::<4>().0.to_vec()))
}

/// Brings the counts of exponents that occur, neighbours in one piece.
fn rows_that_occur(
    session: &Session,
    counts: &Buffer<'_>,
    segments: &[(Numbers, Grid)],
    firsts: &[usize],
    seen: &[u32],
) -> Result<Vec<ByExponent>> {
    let (mut views, mut owners) = (Vec::new(), Vec::new());
    for (job, ((numbers, _), &first)) in segments.iter().zip(firsts).enumerate() {
        let rows = &seen[first..first + numbers.exponents()];
        let mut e = 0;
        for run in rows.chunk_by(|a, b| (*a != 0) == (*b != 0)) {
            if run[0] != 0 {
                views.push(counts.view().part((first + e) * ROW..(first + e + run.len()) * ROW));
                owners.push((job, e));
            }
            e += run.len();
        }
    }
    let mut out = vec![ByExponent::new(); segments.len()];
    for ((job, first), run) in owners.into_iter().zip(copy::gather(session, &views)?) {
        for (e, row) in run.as_chunks::<ROW>().0.iter().enumerate() {
            let numbers = row.as_chunks::<4>().0;
            out[job].insert((first + e) as u8, &std::array::from_fn(|s| u32::from_le_bytes(numbers[s])));
        }
    }
    Ok(out)
}

/// Makes what the plans say.
fn emit(
    session: &Session,
    plans: &[DeltaPlan],
    blocks: &[Block],
    tiles: &[u64],
    totals: &[[u32; 4]],
) -> Result<Vec<Vec<u8>>> {
    let bits: Vec<usize> =
        blocks.iter().zip(totals).map(|(b, all)| all[plans[b.job].t as usize & 3] as usize).collect();
    let (bits_at, bits_len) = places(bits.iter().map(|n| 4 * n.div_ceil(32)));
    let (bytes_at, bytes_len) = places(blocks.iter().map(|b| b.n));
    let bits_room = session.zeroed(bits_len)?;
    let symbols_room = session.buffer(bytes_len)?;
    // Where one context serves all, none is written.
    let contextual = |job: usize| plans[job].freqs.len() > 1;
    let any = blocks.iter().any(|b| contextual(b.job));
    let ctx_room = session.buffer(if any { bytes_len } else { 0 })?;
    let freqs: Vec<&[[u16; 256]]> = plans.iter().map(|p| &p.freqs[..]).collect();
    let tables = tables::encoding(session, &freqs)?;
    let maps: Vec<[u8; 256]> = plans.iter().map(|p| p.map).collect();
    let maps = session.upload(maps.as_flattened())?;
    let list = session.upload_list((0..blocks.len()).map(|i| {
        let job = blocks[i].job;
        let at = bytes_at[i] as u64;
        let ends = Ends {
            tiles: tiles[i],
            symbols: symbols_room.address() + at,
            ctx: if contextual(job) { ctx_room.address() + at } else { 0 },
            map: maps.address() + 256 * job as u64,
            bits: bits_room.address() + bits_at[i] as u64,
            t: plans[job].t,
            ..Ends::default()
        };
        words(&blocks[i], ends)
    }))?;
    Tiles::new(session, blocks)?.launch(session, EMIT, &list, &[])?;
    let streams: Vec<rans::Encode<'_>> = blocks
        .iter()
        .zip(&bytes_at)
        .map(|(b, &at)| {
            let part = rans::Part {
                symbols: symbols_room.view().part(at..at + b.n),
                ctx: contextual(b.job).then(|| ctx_room.view().part(at..at + b.n)),
            };
            rans::Encode { parts: vec![part], table: tables.get(b.job), lanes: 32 }
        })
        .collect();
    let streams = rans::encode(session, &streams)?;
    let stream = |i| streams.get(i);
    let raw = |i: usize| bits_room.view().part(bits_at[i]..bits_at[i] + bits[i].div_ceil(8));
    let views: Vec<View<'_>> = (0..blocks.len()).flat_map(|i| [stream(i), raw(i)]).collect();
    let done = copy::gather(session, &views)?;
    let pairs: Vec<(&[u8], &[u8])> = done.as_chunks::<2>().0.iter().map(|[s, b]| (&s[..], &b[..])).collect();
    let of = |job: usize| {
        let first = blocks.partition_point(|b| b.job < job);
        &pairs[first..blocks.partition_point(|b| b.job <= job)]
    };
    Ok(plans.par_iter().enumerate().map(|(job, plan)| plan.finish(of(job))).collect())
}
