//! Takes segments apart on the device and codes their planes. Neighbours: `mdl_codec::seams::Coding` decides from the counts; `exceptions` here
//! lists what is outside the window. It must not decode, nor look at a tensor's bytes on the host.

use super::{ALIGN, codec, cut_words, launch_sizes, pair, place};
use crate::device::session::{Buffer, Session, View};
use crate::error::{DeviceError, Result};
use crate::job::Encode;
use crate::kernels::Kernel;
use crate::planes::exceptions::{self, Listed};
use crate::rans::Streams;
use crate::{copy, huffman, rans};
use mdl_codec::seams::{Coding, Counts, Exceptions, GROUP, Grid, Plan, PlaneEncoder, number_size, stride};
use rayon::prelude::*;

const SPLIT: [(usize, Kernel); 4] = [
    (1, Kernel::new("planes", "planes_split1")),
    (2, Kernel::new("planes", "planes_split2")),
    (4, Kernel::new("planes", "planes_split4")),
    (8, Kernel::new("planes", "planes_split8")),
];
const PLACE: Kernel = Kernel::new("groups", "groups_place");
const PACK: [(usize, Kernel); 2] = [
    (4, Kernel::new("groups", "groups_pack4")),
    (8, Kernel::new("groups", "groups_pack8")),
];
/// `TILE` in `planes.cu`.
const TILE: usize = 16_384;
/// `PACKED` in `groups.cu`.
const PACKED: usize = 8192;
/// Lanes of a stream.
const LANES: u32 = 32;

/// A segment, and where its parts lie.
#[derive(Debug)]
pub(super) struct Item<'a> {
    pub raw: View<'a>,
    pub plan: Plan,
    pub size: usize,
    pub grid: Grid,
    /// Of the heads.
    pub symbols: View<'a>,
    fields: View<'a>,
    /// Of low bytes: a count for each group, or planes `pitch` apart.
    low: View<'a>,
    pitch: usize,
    /// Place of its first counts.
    counts: usize,
}

/// Lengths of an item's symbols, fields and low planes or counts; the latter are none where the bytes of the segment are the plane.
fn lengths(plan: Plan, size: usize, n: usize) -> [usize; 3] {
    let pitch = n.next_multiple_of(ALIGN);
    let low = match plan.low(size) {
        _ if plan.grouped(size) => n.div_ceil(GROUP),
        1 if size == 1 => 0,
        low => low * pitch,
    };
    let fields = plan.cut.map_or(0, |c| n.div_ceil(32) * 4 * c.field_bits() as usize);
    [plan.cut.map_or(0, |_| pitch), fields, low]
}

impl<'a> Item<'a> {
    /// How many planes it has.
    fn planes(&self) -> usize {
        self.plan.plane_sizes(self.size, 0).len()
    }

    /// The symbols of a plane's block.
    fn plane(&self, p: usize, block: usize) -> View<'a> {
        let range = self.grid.elements(block);
        let low = p - usize::from(self.plan.cut.is_some()).min(p);
        if p == 0 && self.plan.cut.is_some() {
            self.symbols.part(range)
        } else if self.plan.grouped(self.size) {
            self.low.part(range.start / GROUP..range.end.div_ceil(GROUP))
        } else if self.size == 1 {
            self.raw.part(range)
        } else {
            self.low
                .part(low * self.pitch + range.start..low * self.pitch + range.end)
        }
    }

    /// The bit planes of a block's fields.
    fn fields(&self, block: usize) -> View<'a> {
        let bits = self.plan.cut.map_or(0, |c| 4 * c.field_bits() as usize);
        let range = self.grid.elements(block);
        self.fields.part(range.start / 32 * bits..range.end.div_ceil(32) * bits)
    }

    /// The words of `PlanesJob`.
    fn words(&self, counts: &Buffer<'_>) -> [u64; 10] {
        let [cut, lo] = cut_words(self.plan.cut);
        let low = self.plan.low(self.size);
        let mode = usize::from(low > 0) + usize::from(low > 0 && !self.plan.grouped(self.size));
        let address = |v: View<'_>| if v.len() == 0 { 0 } else { v.address() };
        [
            self.raw.address(),
            address(self.symbols),
            address(self.fields),
            address(self.low),
            counts.address() + 1024 * self.counts as u64,
            self.pitch as u64,
            cut,
            lo,
            pair(self.grid.n, mode),
            pair(low, stride(self.plan, self.grid.n)),
        ]
    }
}

/// Encodes segments by their plans, scheme byte first: longer than stored, too, where planes are. None for a segment without bytes.
pub(crate) fn encode(session: &Session, jobs: &[(Encode<'_>, Plan)]) -> Result<Vec<Option<Vec<u8>>>> {
    let full: Vec<_> = jobs.iter().filter(|(e, _)| e.raw.len() > 0).collect();
    let mut at = 0;
    let mut places = Vec::with_capacity(full.len());
    for (job, plan) in &full {
        let size = number_size(job.dtype);
        if plan.cut.is_some_and(|c| !c.valid() || c.shape.size != size) || plan.cut.is_none() && !plan.low_planes {
            return Err(DeviceError::Failed("a plan for another type".to_owned()));
        }
        let parts = lengths(*plan, size, job.raw.len() / size);
        places.push(parts.map(|len| {
            let start = place(&mut at, len);
            start..start + len
        }));
    }
    let room = session.buffer(at)?;
    let mut counts = 0;
    let items: Vec<Item<'_>> = full
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
    let mut done = encode_items(session, &items, counts)?.into_iter();
    Ok(jobs
        .iter()
        .map(|(e, _)| if e.raw.len() > 0 { done.next() } else { None })
        .collect())
}

/// Takes segments apart and decides: how each is coded.
fn split(session: &Session, items: &[Item<'_>], counts: usize) -> Result<Vec<Coding>> {
    let lengths: Vec<_> = items.iter().map(|i| (i.size, i.grid.n)).collect();
    let room = session.zeroed(1024 * counts)?;
    let words: Vec<_> = items.iter().map(|i| i.words(&room)).collect();
    let list = session.upload_u64(words.as_flattened())?;
    launch_sizes(session, &SPLIT, list.view(), &lengths, TILE)?;
    let counts = session.download_u32(room.view())?;
    let counts: &[Counts] = counts.as_chunks().0;
    let decide = |i: &Item<'_>| Coding::new(i.plan, i.grid.n, counts[i.counts..i.counts + i.planes()].to_vec());
    items
        .par_iter()
        .map(decide)
        .collect::<std::result::Result<_, _>>()
        .map_err(codec)
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
    Ok(Coded {
        rans: rans::encode(session, &rans)?,
        huffman: huffman::encode(session, &huffman)?,
        first,
    })
}

/// The groups of low bytes: memory, and for each item where its blocks lie.
fn pack<'s>(session: &'s Session, items: &[Item<'_>]) -> Result<(Buffer<'s>, Vec<Vec<std::ops::Range<usize>>>)> {
    let grouped: Vec<_> = items.iter().filter(|i| i.plan.grouped(i.size)).collect();
    let (mut at, mut offsets) = (0, 0);
    let starts: Vec<usize> = grouped
        .iter()
        .map(|i| place(&mut at, i.grid.n * i.plan.low(i.size)))
        .collect();
    let room = session.buffer(at)?;
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

/// A part of a block: bytes of the host, or a piece that is gathered.
enum Part {
    Bytes(Vec<u8>),
    Piece(usize),
}

impl Part {
    fn bytes<'a>(&'a self, pieces: &'a [Vec<u8>]) -> &'a [u8] {
        match self {
            Part::Bytes(b) => b,
            Part::Piece(i) => &pieces[*i],
        }
    }
}

fn encode_items(session: &Session, items: &[Item<'_>], counts: usize) -> Result<Vec<Vec<u8>>> {
    let codings = split(session, items, counts)?;
    let marked = exceptions::mark(session, items, &codings)?;
    let coded = code(session, items, &codings)?;
    let (groups, ranges) = pack(session, items)?;
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
                let low = ranges[i]
                    .get(b)
                    .filter(|_| p == 1)
                    .map(|r| groups.view().part(r.clone()));
                for view in [body, fields, low].into_iter().flatten() {
                    parts.push(Part::Piece(pieces.len()));
                    pieces.push(view);
                }
            }
            parts
        };
        parts.push((0..item.grid.blocks()).map(&mut block).collect());
    }
    let pieces = copy::gather(session, &pieces)?;
    Ok(codings
        .iter()
        .zip(&parts)
        .map(|(c, blocks)| assemble(c, blocks, &pieces))
        .collect())
}

fn exceptions_of(listed: &Listed, item: usize, block: usize) -> Vec<u8> {
    let mut list = Exceptions::default();
    listed.of(item, block).for_each(|(i, key)| list.push(i, key));
    let mut out = Vec::new();
    list.put(&mut out);
    out
}

/// The segment: its header, the lengths of all blocks but the last, the blocks.
fn assemble(coding: &Coding, blocks: &[Vec<Part>], pieces: &[Vec<u8>]) -> Vec<u8> {
    let lengths: Vec<usize> = blocks
        .iter()
        .map(|b| b.iter().map(|p| p.bytes(pieces).len()).sum())
        .collect();
    let mut out = Vec::with_capacity(coding.header.len() + 4 * blocks.len() + lengths.iter().sum::<usize>());
    out.extend_from_slice(&coding.header);
    for len in &lengths[..blocks.len().saturating_sub(1)] {
        out.extend_from_slice(&(*len as u32).to_le_bytes());
    }
    blocks
        .iter()
        .flatten()
        .for_each(|p| out.extend_from_slice(p.bytes(pieces)));
    out
}
