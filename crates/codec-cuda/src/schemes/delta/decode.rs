//! Delta decoder: bytes into segments.

use crate::{
    Arg, Buffer, Decode, Kernel, Result, Session,
    layout::places,
    schemes::{
        diff::{Block, TILE, Tiles, bits_len, checked, cut, launch_blocks},
        rans, tables,
    },
};
use mdl_codec::engine_internals::delta::{Front, split};
use rayon::prelude::*;

const CONTEXTS: Kernel = Kernel::new("delta", "delta_contexts");
const WIDTHS: Kernel = Kernel::new("delta", "delta_widths");
const CHECK: Kernel = Kernel::new("delta", "delta_check");
const APPLY: Kernel = Kernel::new("delta", "delta_apply");

/// A block's stream and raw bits: where they begin in the body, and their lengths.
struct Coded {
    stream: (usize, usize),
    bits: (usize, usize),
}

/// Decodes each segment into its `out`. Fails where the processor would refuse one of them, too; then no `out`
/// is of use.
pub(crate) fn decode(session: &Session, jobs: &[Decode<'_>]) -> Result<()> {
    let fronts = jobs.par_iter().map(read).collect::<Result<Vec<_>>>()?;
    let (mut blocks, mut coded) = (Vec::new(), Vec::new());
    for (i, (job, front)) in jobs.iter().zip(&fronts).enumerate() {
        let (_, _, base) = checked(job.dtype, job.out, job.base)?;
        blocks.extend(cut(i, front.numbers, front.grid, job.out, base));
        for data in &front.blocks {
            let (stream, bits) = split(data)?;
            bits_len(bits)?;
            let place = |part: &[u8]| (part.as_ptr().addr().wrapping_sub(job.body.as_ptr().addr()), part.len());
            coded.push(Coded { stream: place(stream), bits: place(bits) });
        }
    }
    run(session, jobs, &fronts, &blocks, &coded)
}

fn read<'a>(job: &Decode<'a>) -> Result<Front<'a>> {
    let (numbers, n, _) = checked(job.dtype, job.out, job.base)?;
    Ok(Front::new(numbers, job.body, n)?)
}

fn run(session: &Session, jobs: &[Decode<'_>], fronts: &[Front<'_>], blocks: &[Block], coded: &[Coded]) -> Result<()> {
    let bodies = jobs.iter().map(|j| session.upload(j.body)).collect::<Result<Vec<Buffer<'_>>>>()?;
    let freqs: Vec<&[[u16; 256]]> = fronts.iter().map(|f| &f.freqs[..]).collect();
    let tables = tables::decoding(session, &freqs)?;
    let maps: Vec<[u8; 256]> = fronts.iter().map(|f| f.map).collect();
    let maps = session.upload(maps.as_flattened())?;
    let (bytes_at, bytes_len) = places(blocks.iter().map(|b| b.n));
    let (tiles_at, tiles_len) = places(blocks.iter().map(|b| 4 * b.n.div_ceil(TILE)));
    let symbols = session.buffer(bytes_len)?;
    // Where one context serves all, none is written.
    let contextual = |job: usize| fronts[job].freqs.len() > 1;
    let any = blocks.iter().any(|b| contextual(b.job));
    let ctx = session.buffer(if any { bytes_len } else { 0 })?;
    let sums = session.buffer(tiles_len)?;
    let list = session.upload_list((0..blocks.len()).map(|i| {
        let b = &blocks[i];
        let at = bytes_at[i] as u64;
        let [first, second] = b.numbers.words();
        let (start, len) = coded[i].bits;
        [
            b.base,
            b.at,
            symbols.address() + at,
            if contextual(b.job) { ctx.address() + at } else { 0 },
            maps.address() + 256 * b.job as u64,
            bodies[b.job].address() + start as u64,
            sums.address() + tiles_at[i] as u64,
            first,
            second,
            b.n as u64 | u64::from(fronts[b.job].t) << 32,
            len as u64,
        ]
    }))?;
    let tiles = Tiles::new(session, blocks)?;
    if any {
        tiles.launch(session, CONTEXTS, &list, &[])?;
    }
    let streams: Vec<rans::Decode<'_>> = (0..blocks.len())
        .map(|i| {
            let (b, at) = (&blocks[i], bytes_at[i]);
            let (start, len) = coded[i].stream;
            let part = rans::Part {
                symbols: symbols.view().part(at..at + b.n),
                ctx: contextual(b.job).then(|| ctx.view().part(at..at + b.n)),
            };
            rans::Decode {
                parts: vec![part],
                table: tables.get(b.job),
                lanes: 32,
                stream: bodies[b.job].view().part(start..start + len),
            }
        })
        .collect();
    rans::decode(session, &streams)?;
    tiles.launch(session, WIDTHS, &list, &[])?;
    let bad = session.buffer(4 * blocks.len())?;
    launch_blocks(session, CHECK, &list, blocks.len(), bad.arg())?;
    tiles.launch(session, APPLY, &list, &[Arg::Ptr(bad.address())])?;
    session.expect_zeros(bad.view(), "raw bits do not end where they should")
}
