//! Planes encoder: takes segments apart on the device and codes their planes.

use crate::{
    DeviceError, Encode, Kernel, Result, Session, View, copy,
    copy::Gathered,
    layout::Layout,
    schemes::{
        huffman,
        planes::{ALIGN, Item, Listed, exceptions, groups, item::lengths, launch_sizes},
        rans,
        rans::Streams,
    },
};
use mdl_codec::{
    Result as CodecResult,
    engine_internals::{Coding, Counts, Exceptions, Grid, PlaneEncoder, PlanesPlan, number_size},
};
use rayon::prelude::*;

const SPLIT: [(usize, Kernel); 4] = [
    (1, Kernel::new("planes", "planes_split1")),
    (2, Kernel::new("planes", "planes_split2")),
    (4, Kernel::new("planes", "planes_split4")),
    (8, Kernel::new("planes", "planes_split8")),
];
/// `TILE` in `planes.cu`.
const TILE: usize = 16_384;
/// Lanes of a stream.
const LANES: u32 = 32;

/// Encodes segments by their plans, scheme byte first: longer than stored, too, where planes are. None for a segment
/// without bytes.
pub(crate) fn encode(session: &Session, jobs: &[(Encode<'_>, PlanesPlan)]) -> Result<Vec<Option<Vec<u8>>>> {
    let full: Vec<_> = jobs.iter().filter(|(e, _)| e.raw.len() > 0).copied().collect();
    let done = with_items(session, &full, |items, counts| encode_items(session, items, counts))?;
    let mut done = done.into_iter();
    Ok(jobs.iter().map(|(e, _)| if e.raw.len() > 0 { done.next() } else { None }).collect())
}

/// Finds room for the parts of segments, none of them empty, and works with it: the number of their planes goes along.
pub(super) fn with_items<T>(
    session: &Session,
    jobs: &[(Encode<'_>, PlanesPlan)],
    work: impl FnOnce(&[Item<'_>], usize) -> Result<T>,
) -> Result<T> {
    let mut layout = Layout::<16>::default();
    let mut places = Vec::with_capacity(jobs.len());
    for (job, plan) in jobs {
        let size = number_size(job.dtype);
        if plan.cut.is_some_and(|c| !c.valid() || c.shape.size != size) || plan.cut.is_none() && !plan.low_planes {
            return Err(DeviceError::Failed("a plan for another type".to_owned()));
        }
        let parts = lengths(*plan, size, job.raw.len() / size);
        places.push(parts.map(|len| layout.range(len)));
    }
    let room = session.buffer(layout.len())?;
    let mut counts = 0;
    let items: Vec<Item<'_>> = jobs
        .iter()
        .zip(places)
        .map(|((job, plan), parts)| {
            let size = number_size(job.dtype);
            let n = job.raw.len() / size;
            let [symbols, fields, low] = parts.map(|p| room.view().part(p));
            let item = Item {
                raw: job.raw,
                plan: *plan,
                size,
                grid: Grid::new(n),
                symbols,
                fields,
                low,
                pitch: n.next_multiple_of(ALIGN),
                counts,
            };
            counts += item.planes();
            item
        })
        .collect();
    work(&items, counts)
}

/// Takes segments apart and decides: how each is coded.
pub(super) fn split(session: &Session, items: &[Item<'_>], counts: usize) -> Result<Vec<Coding>> {
    let lengths: Vec<_> = items.iter().map(|i| (i.size, i.grid.n)).collect();
    let room = session.zeroed(1024 * counts)?;
    let list = session.upload_list(items.iter().map(|i| i.words(&room)))?;
    launch_sizes(session, &SPLIT, list.view(), &lengths, TILE)?;
    let counts = session.download_u32(room.view())?;
    let counts: &[Counts] = counts.as_chunks().0;
    let decide = |i: &Item<'_>| Coding::new(i.plan, i.grid, counts[i.counts..i.counts + i.planes()].to_vec());
    Ok(items.par_iter().map(decide).collect::<CodecResult<_>>()?)
}

/// The streams of all planes, by kind; `first` of an item's plane is where the streams of its blocks begin.
struct Coded<'s> {
    rans: Streams<'s>,
    huffman: Streams<'s>,
    first: Vec<Vec<usize>>,
}

fn code<'s>(session: &'s Session, items: &[Item<'_>], codings: &[Coding]) -> Result<Coded<'s>> {
    let (mut symbols, mut codes) = (Vec::new(), Vec::new());
    for coder in codings.iter().flat_map(|c| &c.coders) {
        match coder {
            PlaneEncoder::Rans(_, table) => symbols.extend(table.words()),
            PlaneEncoder::Huffman(_, table) => codes.extend(table.words()),
            PlaneEncoder::Raw | PlaneEncoder::Const(_) => {}
        }
    }
    let (symbols, codes) = (session.upload_u64(&symbols)?, session.upload_u32(&codes)?);
    let (mut rans, mut huffman, mut first) = (Vec::new(), Vec::new(), Vec::new());
    let (mut tables, mut books) = (0, 0);
    for (item, coding) in items.iter().zip(codings) {
        let mut starts = Vec::new();
        for (p, coder) in coding.coders.iter().enumerate() {
            let blocks = (0..item.grid.blocks()).map(|b| item.plane(p, b));
            starts.push(match coder {
                PlaneEncoder::Rans(..) => {
                    let table = symbols.view().part(4096 * tables..4096 * (tables + 1));
                    let start = rans.len();
                    tables += 1;
                    rans.extend(blocks.map(|symbols| rans::Encode {
                        parts: vec![rans::Part { symbols, ctx: None }],
                        table,
                        lanes: LANES,
                    }));
                    start
                }
                PlaneEncoder::Huffman(..) => {
                    let table = codes.view().part(1024 * books..1024 * (books + 1));
                    let start = huffman.len();
                    books += 1;
                    huffman.extend(blocks.map(|symbols| huffman::Encode { symbols, table }));
                    start
                }
                PlaneEncoder::Raw | PlaneEncoder::Const(_) => 0,
            });
        }
        first.push(starts);
    }
    Ok(Coded { rans: rans::encode(session, &rans)?, huffman: huffman::encode(session, &huffman)?, first })
}

/// A part of a block: bytes of the host, or a piece that is gathered.
enum Part {
    Bytes(Vec<u8>),
    Piece(usize),
}

impl Part {
    fn bytes<'a>(&'a self, pieces: &'a Gathered) -> &'a [u8] {
        match self {
            Part::Bytes(b) => b,
            Part::Piece(i) => pieces.get(*i),
        }
    }
}

fn encode_items(session: &Session, items: &[Item<'_>], counts: usize) -> Result<Vec<Vec<u8>>> {
    let codings = split(session, items, counts)?;
    let marked = exceptions::mark(session, items, &codings)?;
    let coded = code(session, items, &codings)?;
    let (groups, ranges) = groups::pack(session, items)?;
    let listed = marked.list(session, items)?;
    let mut pieces = Vec::new();
    let mut parts: Vec<Vec<Vec<Part>>> = Vec::with_capacity(items.len());
    for (i, (item, coding)) in items.iter().zip(&codings).enumerate() {
        let mut block = |b: usize| {
            let mut parts = Vec::new();
            if coding.window.is_some() {
                parts.push(Part::Bytes(exceptions_of(&listed, i, b)));
            }
            for (p, coder) in coding.coders.iter().enumerate() {
                let stream = |s: &Streams<'_>| {
                    let view = s.get(coded.first[i][p] + b);
                    View::at(view.address(), view.len())
                };
                let (len, body) = match coder {
                    PlaneEncoder::Raw => (None, Some(item.plane(p, b))),
                    PlaneEncoder::Const(_) => (None, None),
                    PlaneEncoder::Rans(..) => (Some(stream(&coded.rans)), Some(stream(&coded.rans))),
                    PlaneEncoder::Huffman(..) => (Some(stream(&coded.huffman)), Some(stream(&coded.huffman))),
                };
                parts.extend(len.map(|l| Part::Bytes((l.len() as u32).to_le_bytes().to_vec())));
                let fields = item.plan.cut.filter(|_| p == 0).map(|_| item.fields(b));
                let low = ranges[i].get(b).filter(|_| p == 1).map(|r| groups.view().part(r.clone()));
                for view in [body, fields, low].into_iter().flatten() {
                    parts.push(Part::Piece(pieces.len()));
                    pieces.push(view);
                }
            }
            parts
        };
        parts.push((0..item.grid.blocks()).map(&mut block).collect());
    }
    let pieces = copy::gather_together(session, pieces.iter().map(std::slice::from_ref))?;
    let segments = codings.par_iter().zip(&parts);
    Ok(segments.map(|(c, blocks)| assemble(c, blocks, &pieces)).collect())
}

fn exceptions_of(listed: &Listed, item: usize, block: usize) -> Vec<u8> {
    let mut list = Exceptions::default();
    listed.in_block(item, block).for_each(|(i, key)| list.push(i, key));
    let mut out = Vec::new();
    list.put(&mut out);
    out
}

/// The segment: its header, the lengths of all blocks but the last, the blocks.
fn assemble(coding: &Coding, blocks: &[Vec<Part>], pieces: &Gathered) -> Vec<u8> {
    let lengths: Vec<usize> = blocks.iter().map(|b| b.iter().map(|p| p.bytes(pieces).len()).sum()).collect();
    let mut out = Vec::with_capacity(coding.header.len() + 4 * blocks.len() + lengths.iter().sum::<usize>());
    out.extend_from_slice(&coding.header);
    for len in &lengths[..blocks.len().saturating_sub(1)] {
        out.extend_from_slice(&(*len as u32).to_le_bytes());
    }
    blocks.iter().flatten().for_each(|p| out.extend_from_slice(p.bytes(pieces)));
    out
}
