//! Palette decoder.

use crate::{
    Arg, Decode, Kernel, Result, Session, View,
    layout::{Layout, Load, pair},
    schemes::{
        palette::{
            FLOAT, Tiles, WIDE, device_table, levels,
            open::{Open, open},
            shape,
        },
        tables,
    },
};
use rayon::prelude::*;

const RELATIVES: [Kernel; 3] = [
    Kernel::new("palette_decode", "palette_relatives_2"),
    Kernel::new("palette_decode", "palette_relatives_4"),
    Kernel::new("palette_decode", "palette_relatives_8"),
];
const NUMBERS: [Kernel; 3] = [
    Kernel::new("palette_decode", "palette_numbers_2"),
    Kernel::new("palette_decode", "palette_numbers_4"),
    Kernel::new("palette_decode", "palette_numbers_8"),
];
const STREAMS: Kernel = Kernel::new("palette_decode", "palette_streams");
const MEND: Kernel = Kernel::new("palette_decode", "palette_mend");
/// Streams of a block of threads, a warp each.
const WARPS: usize = 4;

/// Where what a segment needs is: in the room, or in what is uploaded.
struct Place {
    symbols: usize,
    places: usize,
    ctx: usize,
    classes: usize,
    table: u64,
    map: u64,
    /// Of each block, its stream and what follows.
    blocks: Vec<[u64; 2]>,
}

/// Decodes segments; after an error all outputs are of no use.
pub(crate) fn decode(session: &Session, jobs: &[Decode<'_>]) -> Result<()> {
    if jobs.is_empty() {
        return Ok(());
    }
    let opened = jobs.par_iter().map(open).collect::<Result<Vec<Open<'_>>>>()?;
    let (mut room, mut up) = (Layout::default(), Load::default());
    let places: Vec<Place> = opened.iter().map(|o| place(o, &mut room, &mut up)).collect();
    let (room, up) = (session.buffer(room.len())?, up.send(session)?);
    let freqs: Vec<&[[u16; 256]]> = opened.iter().map(|o| o.freqs.as_slice()).collect();
    let slots = tables::decoding(session, &freqs)?;

    let (mut segments, mut blocks) = (Vec::new(), Vec::new());
    for (i, ((job, o), p)) in jobs.iter().zip(&opened).zip(&places).enumerate() {
        let at = |offset: usize| room.address() + offset as u64;
        let with = |there: bool, offset: usize| if there { at(offset) } else { 0 };
        let (near, far) = (job.scheme.needs_base(), job.scheme.bases() > 1);
        let relative = |r: Option<View<'_>>, used: bool| r.filter(|_| used).map_or(0, |r| r.address());
        let values = o.table.values.len();
        segments.push([
            relative(job.base, near),
            relative(job.grandparent, far),
            up.address() + p.table,
            up.address() + p.map,
            with(near, p.places),
            with(near, p.ctx),
            at(p.symbols),
            job.out.address(),
            pair(o.n, values),
            u64::from(levels(values)) | if o.table.numbers.is_float() { FLOAT << 32 } else { 0 },
            o.map.len() as u64,
        ]);
        for ((elements, stream, rest), at_up) in o.parts.iter().zip(&p.blocks) {
            let (first, offset) = (elements.start, elements.start * o.table.numbers.size);
            blocks.push([
                up.address() + at_up[0],
                up.address() + at_up[1],
                slots.get(i).address(),
                at(p.symbols + first),
                with(near, p.ctx + first),
                with(o.leaf.is_some(), p.classes + first),
                relative(job.base, near).wrapping_add(offset as u64),
                job.out.address() + offset as u64,
                pair(stream.len(), rest.len()),
                elements.len() as u64 | shape(&o.table, o.zero) << 32,
                u64::from(o.lanes) | u64::from(o.leaf.unwrap_or_default()) << 32,
            ]);
        }
    }
    let (segments, count) = (session.upload_u64(segments.as_flattened())?, blocks.len());
    let blocks = session.upload_u64(blocks.as_flattened())?;
    let cut: Vec<(usize, usize)> = opened.iter().map(|o| (o.n, o.table.numbers.size)).collect();
    let tiles = Tiles::new(&cut);
    let (bad, strays) = (session.buffer(4 * count)?, session.buffer(4 * count)?);
    tiles.launch(session, RELATIVES, &segments)?;
    let args = [blocks.arg(), Arg::U32(count as u32), bad.arg(), strays.arg()];
    session.launch(STREAMS, (count.div_ceil(WARPS) as u32, 1), 32 * WARPS as u32, &args)?;
    tiles.launch(session, NUMBERS, &segments)?;
    let args = [blocks.arg(), strays.arg(), bad.arg()];
    session.launch(MEND, (count as u32, 1), WIDE, &args)?;
    session.expect_zeros(bad.view(), "a block of a palette does not end where it should")
}

/// Finds room for a segment, and appends what is uploaded for it.
fn place(o: &Open<'_>, room: &mut Layout, up: &mut Load) -> Place {
    let mut push = |bytes: &[u8]| up.put(bytes.iter().copied());
    let mut table = Vec::new();
    device_table(&o.table, &mut table);
    let (table, map) = (push(&table), push(&o.map));
    let blocks = o.parts.iter().map(|(_, stream, rest)| [push(stream), push(rest)]).collect();
    Place {
        symbols: room.take(o.n),
        places: room.take(o.n),
        ctx: room.take(o.n),
        classes: room.take(if o.leaf.is_some() { o.n } else { 0 }),
        table,
        map,
        blocks,
    }
}
