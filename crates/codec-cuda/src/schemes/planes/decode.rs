//! Planes decoder: puts segments together on the device.

use crate::{
    Buffer, Decode, DeviceError, Kernel, Result, Session, View,
    layout::{Layout, pair},
    schemes::{
        huffman,
        planes::{cut_words, groups, launch, launch_sizes, tiles},
        rans,
    },
};
use mdl_codec::{
    Result as CodecResult,
    engine_internals::{GROUP, Pieces, PlaneDecoder, Reader, number_size},
};
use rayon::prelude::*;
use std::ops::Range;

const JOIN: [(usize, Kernel); 4] = [
    (1, Kernel::new("planes", "planes_join1")),
    (2, Kernel::new("planes", "planes_join2")),
    (4, Kernel::new("planes", "planes_join4")),
    (8, Kernel::new("planes", "planes_join8")),
];
const PATCH: Kernel = Kernel::new("exceptions", "exceptions_put");
/// `JOIN_TILE` in `planes.cu`.
const TILE: usize = 8192;
/// Lanes of a stream.
const LANES: u32 = 32;

/// A segment whose header and blocks are read.
pub(super) struct Item<'a> {
    pub size: usize,
    pub reader: Reader<'a>,
    pub blocks: Vec<Pieces<'a>>,
    body: &'a [u8],
    out: View<'a>,
}

/// A plane of a block.
#[derive(Clone, Copy, Debug)]
pub(super) enum Plane<'a> {
    Const(u8),
    At(View<'a>),
}

impl Plane<'_> {
    /// Its address or 0, and its symbol where it has but one.
    pub(super) fn words(self) -> (u64, u8) {
        match self {
            Plane::Const(s) => (0, s),
            Plane::At(view) => (view.address(), 0),
        }
    }
}

fn read<'a>(job: &Decode<'a>) -> Result<Item<'a>> {
    let size = number_size(job.dtype);
    if !job.out.len().is_multiple_of(job.dtype.size()) {
        return Err(DeviceError::Failed("not a whole number of elements".to_owned()));
    }
    let reader = Reader::new(job.dtype, size, job.body, job.out.len() / size)?;
    let blocks = (0..reader.grid.blocks()).map(|b| reader.pieces(b)).collect::<CodecResult<_>>()?;
    Ok(Item { size, reader, blocks, body: job.body, out: job.out })
}

/// Decodes segments into their outputs; after an error what these hold is unspecified.
pub(crate) fn decode(session: &Session, jobs: &[Decode<'_>]) -> Result<()> {
    let items = jobs.par_iter().map(read).collect::<Result<Vec<_>>>()?;
    let bodies = items.iter().map(|i| session.upload(i.body)).collect::<Result<Vec<_>>>()?;
    let mut layout = Layout::default();
    let rooms: Vec<Vec<Range<usize>>> = items.iter().map(|i| rooms(i, &mut layout)).collect();
    let room = session.buffer(layout.len())?;
    let planes = code(session, &items, &bodies, &rooms, room.view())?;
    let places = groups::find(session, &items, &bodies, &planes)?;
    join(session, &items, &bodies, &planes, &places)?;
    patch(session, &items)
}

/// The part of an uploaded body that a piece of it is.
pub(super) fn uploaded<'a>(item: &Item<'_>, body: &'a Buffer<'_>, piece: &[u8]) -> View<'a> {
    let at = (piece.as_ptr() as usize).saturating_sub(item.body.as_ptr() as usize);
    body.view().part(at..at + piece.len())
}

/// Room for the planes of an item that are decoded.
fn rooms(item: &Item<'_>, layout: &mut Layout) -> Vec<Range<usize>> {
    let lengths = item.reader.plan.plane_sizes(item.size, item.reader.grid.n);
    let planes = item.reader.coders.iter().zip(lengths);
    let room = |(coder, len): (&PlaneDecoder, usize)| match coder {
        PlaneDecoder::Raw | PlaneDecoder::Const(_) => layout.range(0),
        PlaneDecoder::Rans(_) | PlaneDecoder::Huffman(_) => layout.range(len),
    };
    planes.map(room).collect()
}

/// Decodes the planes that are coded; says where those of each block of each item lie.
fn code<'v>(
    session: &Session,
    items: &[Item<'_>],
    bodies: &'v [Buffer<'_>],
    rooms: &[Vec<Range<usize>>],
    room: View<'v>,
) -> Result<Vec<Vec<Vec<Plane<'v>>>>> {
    let (mut slots, mut codes) = (Vec::new(), Vec::new());
    for coder in items.iter().flat_map(|i| &i.reader.coders) {
        match coder {
            PlaneDecoder::Rans(table) => slots.extend_from_slice(table.slots()),
            PlaneDecoder::Huffman(table) => codes.extend(table.slots().iter().flat_map(|s| s.to_le_bytes())),
            PlaneDecoder::Raw | PlaneDecoder::Const(_) => {}
        }
    }
    let (slots, codes) = (session.upload_u32(&slots)?, session.upload(&codes)?);
    let (mut rans, mut huffman) = (Vec::new(), Vec::new());
    let (mut tables, mut books) = (0, 0);
    let mut planes = Vec::with_capacity(items.len());
    for ((item, body), rooms) in items.iter().zip(bodies).zip(rooms) {
        let mut of_item = vec![Vec::with_capacity(rooms.len()); item.blocks.len()];
        for (p, coder) in item.reader.coders.iter().enumerate() {
            let grouped = item.reader.plan.grouped(item.size) && p == 1;
            let unit = if grouped { GROUP } else { 1 };
            for (b, (pieces, planes)) in item.blocks.iter().zip(&mut of_item).enumerate() {
                let piece = pieces.planes.get(p).copied().unwrap_or_default();
                let range = item.reader.grid.elements(b);
                let symbols = room.part(rooms[p].clone()).part(range.start / unit..range.end.div_ceil(unit));
                let stream = uploaded(item, body, piece);
                planes.push(match coder {
                    PlaneDecoder::Raw => Plane::At(stream),
                    PlaneDecoder::Const(s) => Plane::Const(*s),
                    PlaneDecoder::Rans(_) => {
                        rans.push(rans::Decode {
                            parts: vec![rans::Part { symbols, ctx: None }],
                            table: slots.view().part(16_384 * tables..16_384 * (tables + 1)),
                            lanes: LANES,
                            stream,
                        });
                        Plane::At(symbols)
                    }
                    PlaneDecoder::Huffman(_) => {
                        let table = codes.view().part(8192 * books..8192 * (books + 1));
                        huffman.push(huffman::Decode { symbols, table, stream });
                        Plane::At(symbols)
                    }
                });
            }
            tables += usize::from(matches!(coder, PlaneDecoder::Rans(_)));
            books += usize::from(matches!(coder, PlaneDecoder::Huffman(_)));
        }
        planes.push(of_item);
    }
    rans::decode(session, &rans)?;
    huffman::decode(session, &huffman)?;
    Ok(planes)
}

/// Puts heads and low bytes together.
fn join(
    session: &Session,
    items: &[Item<'_>],
    bodies: &[Buffer<'_>],
    planes: &[Vec<Vec<Plane<'_>>>],
    (room, firsts): &(Buffer<'_>, Vec<usize>),
) -> Result<()> {
    let (mut words, mut lengths) = (Vec::new(), Vec::new());
    for (((item, body), planes), first) in items.iter().zip(bodies).zip(planes).zip(firsts) {
        let plan = item.reader.plan;
        let (low, grouped) = (plan.low(item.size), plan.grouped(item.size));
        let [cut, lo] = cut_words(plan.cut);
        for (b, (pieces, planes)) in item.blocks.iter().zip(planes).enumerate() {
            let range = item.reader.grid.elements(b);
            let (heads, planes) = planes.split_at(usize::from(plan.cut.is_some()).min(planes.len()));
            let (symbols, symbol) = heads.first().map_or((0, 0), |p| p.words());
            let (mut at, mut constants) = ([0u64; 8], [0u8; 8]);
            for (p, plane) in planes.iter().enumerate().take(8) {
                (at[p], constants[p]) = plane.words();
            }
            let mut job = [0u64; 20];
            job[0] = item.out.address() + (range.start * item.size) as u64;
            job[1] = symbols;
            job[2] = uploaded(item, body, pieces.fields).address();
            job[3] = uploaded(item, body, pieces.groups).address();
            job[4] = room.address() + 4 * (first + range.start / GROUP) as u64;
            job[5] = at[0];
            job[6..14].copy_from_slice(&at);
            job[14] = u64::from_le_bytes(constants);
            job[15..17].copy_from_slice(&[cut, lo]);
            job[17] = pair(range.len(), symbol.into());
            job[18] = pair(usize::from(low > 0) + usize::from(low > 0 && !grouped), low);
            words.push(job);
            lengths.push((item.size, range.len()));
        }
    }
    let list = session.upload_u64(words.as_flattened())?;
    launch_sizes(session, &JOIN, list.view(), &lengths, TILE)
}

/// Gives exceptions their keys.
fn patch(session: &Session, items: &[Item<'_>]) -> Result<()> {
    let (mut lists, mut jobs) = (Vec::new(), Vec::new());
    for item in items {
        let [cut, lo] = cut_words(item.reader.plan.cut);
        for (b, pieces) in item.blocks.iter().enumerate().filter(|(_, p)| !p.exceptions.is_empty()) {
            let out = item.out.address() + (item.reader.grid.elements(b).start * item.size) as u64;
            let list = 4 * lists.len() as u64;
            lists.extend(pieces.exceptions.iter().flat_map(|&(i, key)| [i as u32, key.into()]));
            jobs.push([out, list, cut, lo, pair(pieces.exceptions.len(), item.size)]);
        }
    }
    if jobs.is_empty() {
        return Ok(());
    }
    let lists = session.upload_u32(&lists)?;
    jobs.iter_mut().for_each(|j| j[1] += lists.address());
    let lengths = jobs.iter().enumerate().map(|(j, words)| (j, words[4] as u32 as usize));
    let tiles = tiles(lengths, 256);
    let list = session.upload_u64(jobs.as_flattened())?;
    launch(session, PATCH, list.view(), &tiles)
}
