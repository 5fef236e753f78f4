//! Packing of low bytes in groups that share a count of trailing zeros, and unpacking.

use crate::{
    Buffer, DeviceError, Kernel, Result, Session,
    layout::{pair, places},
    schemes::planes::{Item, Plane, decode, launch_sizes, uploaded},
};
use mdl_codec::engine_internals::GROUP;

const PLACE: Kernel = Kernel::new("groups", "groups_place");
const PACK: [(usize, Kernel); 2] =
    [(4, Kernel::new("groups", "groups_pack4")), (8, Kernel::new("groups", "groups_pack8"))];
/// `PACKED` in `groups.cu`.
const PACKED: usize = 8192;

/// The groups of low bytes: memory, and for each item where its blocks lie.
pub(super) fn pack<'s>(
    session: &'s Session,
    items: &[Item<'_>],
) -> Result<(Buffer<'s>, Vec<Vec<std::ops::Range<usize>>>)> {
    let grouped: Vec<_> = items.iter().filter(|i| i.plan.grouped(i.size)).collect();
    let mut offsets = 0;
    let (starts, len) = places(grouped.iter().map(|i| i.grid.n * i.plan.low(i.size)));
    let room = session.buffer(len)?;
    let places = session.buffer(4 * grouped.iter().map(|i| i.grid.n.div_ceil(GROUP)).sum::<usize>())?;
    let (mut words, mut lengths) = (Vec::new(), Vec::new());
    for (item, start) in grouped.iter().zip(&starts) {
        let low = item.plan.low(item.size);
        for b in 0..item.grid.blocks() {
            let range = item.grid.elements(b);
            let counts = item.plane(1, b);
            words.push([
                item.raw.address() + (range.start * item.size) as u64,
                counts.address(),
                places.address() + 4 * offsets as u64,
                room.address() + (start + range.start * low) as u64,
                pair(range.len(), low),
                0,
            ]);
            offsets += counts.len();
            lengths.push((item.size, range.len()));
        }
    }
    let list = session.upload_u64(words.as_flattened())?;
    let totals = session.buffer(8 * words.len())?;
    session.launch(PLACE, (words.len() as u32, 1), 256, &[list.arg(), totals.arg()])?;
    launch_sizes(session, &PACK, list.view(), &lengths, PACKED)?;
    let totals = session.download_u32(totals.view())?;
    let mut totals = totals.iter().step_by(2);
    let mut starts = starts.into_iter();
    let found = items
        .iter()
        .map(|i| {
            let Some(start) = Some(i).filter(|i| i.plan.grouped(i.size)).and_then(|_| starts.next()) else {
                return Vec::new();
            };
            let block = |b: usize| {
                let at = start + i.grid.elements(b).start * i.plan.low(i.size);
                at..at + totals.next().map_or(0, |&t| t as usize)
            };
            (0..i.grid.blocks()).map(block).collect()
        })
        .collect();
    Ok((room, found))
}

/// Finds where the groups of low bytes begin, and that they are all there. Gives memory, and in it the place of each
/// item's first.
pub(super) fn find<'s>(
    session: &'s Session,
    items: &[decode::Item<'_>],
    bodies: &[Buffer<'_>],
    planes: &[Vec<Vec<Plane<'_>>>],
) -> Result<(Buffer<'s>, Vec<usize>)> {
    let mut at = 0;
    let firsts: Vec<usize> = items
        .iter()
        .map(|i| {
            let first = at;
            at += if i.reader.plan.grouped(i.size) { i.reader.grid.n.div_ceil(GROUP) } else { 0 };
            first
        })
        .collect();
    let room = session.buffer(4 * at)?;
    let (mut words, mut wanted) = (Vec::new(), Vec::new());
    for (((item, body), planes), first) in items.iter().zip(bodies).zip(planes).zip(&firsts) {
        if !item.reader.plan.grouped(item.size) {
            continue;
        }
        for (b, (pieces, planes)) in item.blocks.iter().zip(planes).enumerate() {
            let range = item.reader.grid.elements(b);
            let (counts, count) = planes.get(1).map_or((0, 0), |p| p.words());
            words.push([
                0,
                counts,
                room.address() + 4 * (first + range.start / GROUP) as u64,
                uploaded(item, body, pieces.groups).address(),
                pair(range.len(), item.reader.plan.low(item.size)),
                count.into(),
            ]);
            wanted.push(pieces.groups.len() as u32);
        }
    }
    if !words.is_empty() {
        let list = session.upload_u64(words.as_flattened())?;
        let totals = session.buffer(8 * words.len())?;
        session.launch(PLACE, (words.len() as u32, 1), 256, &[list.arg(), totals.arg()])?;
        let totals = session.download_u32(totals.view())?;
        for (total, wanted) in totals.as_chunks::<2>().0.iter().zip(wanted) {
            if *total != [wanted, 0] {
                return Err(DeviceError::Corrupt("groups of low bytes do not end where they should"));
            }
        }
    }
    Ok((room, firsts))
}
