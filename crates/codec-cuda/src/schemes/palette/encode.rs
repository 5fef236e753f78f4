//! Palette encoder.

use crate::{
    DeviceError, Encode, Kernel, Result, Session, View,
    layout::{Load, pair},
    schemes::{
        palette::{Looked, Segment, Strays, Tiles, assemble, assemble::Block, look::look, plan, strays},
        rans, tables,
    },
};
use mdl_codec::{
    Encoded, Scheme,
    engine_internals::palette::{Head, Table},
};
use rayon::prelude::*;

const CONTEXTS: Kernel = Kernel::new("palette", "palette_contexts");

/// Encodes segments by the values of their samples, with their bases as context where that pays; scheme byte first.
/// Nothing where a sample has no palette.
pub(crate) fn encode(session: &Session, jobs: &[(Encode<'_>, Vec<u8>)]) -> Result<Vec<Option<Encoded>>> {
    if jobs.iter().any(|(j, _)| [j.base, j.grandparent].iter().flatten().any(|r| r.len() != j.raw.len())) {
        return Err(DeviceError::Failed("a relative of another length".to_owned()));
    }
    let find = |(j, sample): &(Encode<'_>, Vec<u8>)| Table::find(j.dtype, sample).filter(|_| j.raw.len() > 0);
    let found: Vec<Option<Table>> = jobs.par_iter().map(find).collect();
    let mut which = Vec::new();
    let mut segments = Vec::new();
    for (i, (table, (j, _))) in found.into_iter().zip(jobs).enumerate() {
        let Some(table) = table else { continue };
        which.push(i);
        segments.push(Segment {
            table,
            raw: j.raw,
            base: j.base,
            grandparent: j.grandparent.filter(|_| j.base.is_some()),
        });
    }
    let mut out: Vec<Option<Encoded>> = jobs.iter().map(|_| None).collect();
    if segments.is_empty() {
        return Ok(out);
    }
    let looked = look(session, &segments)?;
    let strays = strays::find(session, &segments, &looked)?;
    let heads = plan::heads(&segments, looked.counts(session)?, &strays.summaries);
    contexts(session, &segments, &looked, &heads)?;
    let done = coded(session, &segments, &looked, &strays, &heads)?;
    for ((i, head), bytes) in which.into_iter().zip(heads).zip(done) {
        out[i] = Some(Encoded { bytes, scheme: head.scheme });
    }
    Ok(out)
}

/// Turns places and raw contexts into contexts, or symbols into places where no base is the context.
fn contexts(session: &Session, segments: &[Segment<'_>], looked: &Looked<'_>, heads: &[Head]) -> Result<()> {
    // Alone and without a base, symbols are places as they are.
    if segments.iter().all(|s| s.base.is_none()) {
        return Ok(());
    }
    let mut maps = Load::default();
    let starts: Vec<u64> = heads.iter().map(|h| maps.put(h.map.iter().copied())).collect();
    let maps = maps.send(session)?;
    let jobs =
        session.upload_list(heads.iter().zip(segments).zip(starts).enumerate().map(|(i, ((h, s), start))| {
            [
                looked.symbols(i).address(),
                looked.places(i).address(),
                looked.contexts(i).address(),
                maps.address() + start,
                pair(s.n(), s.table.values.len()),
                pair(usize::from(h.scheme.bases()), h.map.len()),
            ]
        }))?;
    let cut = |s: &Segment<'_>| {
        if s.base.is_some() { (s.n(), s.table.numbers.size) } else { (0, 0) }
    };
    Tiles::new(&segments.iter().map(cut).collect::<Vec<_>>()).launch(session, [CONTEXTS; 3], &jobs)
}

/// The segments.
fn coded(
    session: &Session,
    segments: &[Segment<'_>],
    looked: &Looked<'_>,
    strays: &Strays<'_>,
    heads: &[Head],
) -> Result<Vec<Vec<u8>>> {
    let leaf = |h: &Head| (h.scheme == Scheme::PaletteDelta2).then_some(h.contexts);
    let leaves: Vec<Option<u8>> = heads.iter().map(leaf).collect();
    let low = strays::low(session, segments, looked, strays, &leaves)?;
    let freqs: Vec<&[[u16; 256]]> = heads.iter().map(|h| h.freqs.as_slice()).collect();
    let tables = tables::encoding(session, &freqs)?;
    let mut jobs = Vec::new();
    for (i, (s, head)) in segments.iter().zip(heads).enumerate() {
        for (b, block) in s.blocks().into_iter().enumerate() {
            let mut parts = vec![rans::Part {
                symbols: looked.symbols(i).part(block.clone()),
                ctx: head.scheme.needs_base().then(|| looked.places(i).part(block)),
            }];
            if let Some((_, ctx)) = low.get(i, b) {
                parts.push(rans::Part { symbols: strays.classes(i, b), ctx: Some(ctx) });
            }
            jobs.push(rans::Encode { parts, table: tables.get(i), lanes: 1 << head.lanes });
        }
    }
    let streams = rans::encode(session, &jobs)?;
    let mut next = 0;
    let blocks: Vec<Vec<Block<'_>>> = segments
        .iter()
        .zip(heads)
        .enumerate()
        .map(|(i, (s, head))| {
            let one = |b| {
                let stream = streams.get(next);
                next += 1;
                let rest: View<'_> = match leaves[i] {
                    Some(_) => low.get(i, b).map_or(View::at(0, 0), |(bits, _)| bits),
                    None => strays.bytes(i, b),
                };
                Block { before: head.before_stream(stream.len()), pieces: [stream, rest] }
            };
            (0..s.blocks().len()).map(one).collect()
        })
        .collect();
    let heads: Vec<&[u8]> = heads.iter().map(|h| h.bytes.as_slice()).collect();
    assemble::segments(session, &heads, &blocks)
}
