//! Sparse decoder: bytes into segments.

use crate::{
    Decode, Kernel, Result, Session, copy,
    layout::places,
    schemes::diff::{WARPS, bits_len, checked, cut},
};
use mdl_codec::{
    Result as CodecResult,
    engine_internals::{
        Simd,
        sparse::{Changes, Reader},
    },
};
use rayon::prelude::*;
use std::borrow::Cow;

const APPLY: Kernel = Kernel::new("sparse", "sparse_apply");

/// The lists of a segment's blocks.
type Lists<'a> = Vec<Changes<Cow<'a, [u8]>>>;

/// Decodes each segment into its `out`. Fails where the processor would refuse one of them, too; then no `out`
/// is of use.
pub(crate) fn decode(session: &Session, jobs: &[Decode<'_>]) -> Result<()> {
    let read = jobs.par_iter().map(read).collect::<Result<Vec<_>>>()?;
    let mut blocks = Vec::new();
    for (i, (job, (reader, _))) in jobs.iter().zip(&read).enumerate() {
        let (_, _, base) = checked(job.dtype, job.out, job.base)?;
        blocks.extend(cut(i, reader.numbers, reader.grid, job.out, base));
    }
    let lists: Vec<_> = read.iter().flat_map(|(_, lists)| lists).collect();
    let parts: Vec<&[u8]> = lists.iter().flat_map(|c| [&c.gaps[..], &c.symbols, &c.bits]).collect();
    let (starts, len) = places(parts.iter().map(|p| p.len()));
    let mut bytes = vec![0; len];
    for (part, at) in parts.iter().zip(&starts) {
        bytes[*at..*at + part.len()].copy_from_slice(part);
    }
    let room = session.upload(&bytes)?;
    let list = blocks
        .iter()
        .zip(starts.as_chunks::<3>().0)
        .zip(&lists)
        .map(|((b, starts), changes)| {
            let [gaps, symbols, bits] = starts.map(|at| room.address() + at as u64);
            let [first, second] = b.numbers.words();
            let n = b.n as u64 | (changes.gaps.len() as u64) << 32;
            Ok([b.base, b.at, gaps, symbols, bits, first, second, n, bits_len(&changes.bits)?])
        })
        .collect::<Result<Vec<[u64; 9]>>>()?;
    let copies: Vec<[u64; 3]> = jobs
        .iter()
        .filter_map(|j| Some([j.base?.address(), j.out.address(), j.out.len() as u64]))
        .filter(|[from, to, _]| from != to)
        .collect();
    copy::run(session, &copies)?;
    let list = session.upload_u64(list.as_flattened())?;
    let bad = session.buffer(4 * blocks.len())?;
    let args = [list.arg(), bad.arg()];
    session.launch(APPLY, (blocks.len() as u32, 1), 32 * WARPS as u32, &args)?;
    session.expect_zeros(bad.view(), "changes do not end where they should")
}

fn read<'a>(job: &Decode<'a>) -> Result<(Reader<'a>, Lists<'a>)> {
    let (numbers, n, _) = checked(job.dtype, job.out, job.base)?;
    let reader = Reader::new(numbers, job.body, n)?;
    let simd = Simd::detect();
    let lists = (0..reader.blocks.len())
        .into_par_iter()
        .map(|b| reader.changes(simd, reader.blocks[b], reader.grid.elements(b).len()))
        .collect::<CodecResult<Lists<'a>>>()?;
    Ok((reader, lists))
}
