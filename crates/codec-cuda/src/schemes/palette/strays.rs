//! Palette exceptions, the numbers that are not in the table: their bytes, and with two bases their differences to the
//! parent's.

use crate::{
    Buffer, Kernel, Result, Session, View,
    layout::Layout,
    schemes::palette::{BLOCK_LOG, Looked, Segment, WIDE, shape},
};
use std::ops::Range;

const STRAYS: Kernel = Kernel::new("palette", "palette_strays");
const LOW: Kernel = Kernel::new("palette", "palette_low");

/// Exceptions of a block.
#[derive(Clone, Debug, Default)]
struct Block {
    count: usize,
    bytes: Range<usize>,
    /// Empty without two bases.
    classes: Range<usize>,
    /// Raw bits under the classes.
    bits: usize,
}

/// What a plan must know about the exceptions of a segment.
#[derive(Clone, Debug)]
pub(super) struct Summary {
    /// How many there are.
    pub count: usize,
    /// Low bytes that are zero in all of them.
    pub zero: u8,
    /// With two bases: how often each symbol of a difference occurs, and the bytes of raw bits in all blocks.
    pub classes: [u32; 256],
    pub low: usize,
}

/// Exceptions of segments.
#[derive(Debug)]
pub(super) struct Strays<'s> {
    room: Buffer<'s>,
    blocks: Vec<Vec<Block>>,
    pub summaries: Vec<Summary>,
}

impl Strays<'_> {
    fn block(&self, segment: usize, block: usize) -> Block {
        self.blocks.get(segment).and_then(|b| b.get(block)).cloned().unwrap_or_default()
    }

    /// The bytes of a block's exceptions.
    pub(super) fn bytes(&self, segment: usize, block: usize) -> View<'_> {
        self.room.view().part(self.block(segment, block).bytes)
    }

    /// The symbols of the differences of a block's exceptions.
    pub(super) fn classes(&self, segment: usize, block: usize) -> View<'_> {
        self.room.view().part(self.block(segment, block).classes)
    }

    /// The words of `Strays` in `palette.cu`, but for what `palette_low` writes.
    fn words(&self, s: &Segment<'_>, looked: &Looked<'_>, segment: usize, block: usize) -> [u64; 11] {
        let (b, first) = (self.block(segment, block), block << BLOCK_LOG);
        let n = s.n().saturating_sub(first).min(1 << BLOCK_LOG);
        let offset = (first * s.table.numbers.size) as u64;
        let room = self.room.address();
        let zero = self.summaries.get(segment).map_or(0, |s| s.zero);
        [
            looked.symbols(segment).address() + first as u64,
            s.raw.address() + offset,
            s.base.filter(|_| s.grandparent.is_some()).map_or(0, |v| v.address() + offset),
            room + b.bytes.start as u64,
            room + b.classes.start as u64,
            0,
            0,
            0,
            0,
            n as u64 | shape(&s.table, zero) << 32,
            0,
        ]
    }
}

/// Finds the exceptions.
pub(super) fn find<'s>(session: &'s Session, segments: &[Segment<'_>], looked: &Looked<'_>) -> Result<Strays<'s>> {
    let mut layout = Layout::<16>::default();
    let summary = |(s, (bits, counts)): (&Segment<'_>, &(u64, Vec<usize>))| Summary {
        count: counts.iter().sum(),
        zero: s.table.zero_low_bytes(*bits),
        classes: [0; 256],
        low: 0,
    };
    let summaries: Vec<Summary> = segments.iter().zip(&looked.marks).map(summary).collect();
    let blocks: Vec<Vec<Block>> = segments
        .iter()
        .zip(&looked.marks)
        .zip(&summaries)
        .map(|((s, (_, counts)), summary)| {
            let each = s.table.numbers.size - usize::from(summary.zero);
            let block = |&count: &usize| Block {
                count,
                bytes: layout.range(count * each),
                classes: layout.range(if s.grandparent.is_some() { count } else { 0 }),
                bits: 0,
            };
            counts.iter().map(block).collect()
        })
        .collect();
    let mut strays = Strays { room: session.buffer(layout.len())?, blocks, summaries };
    let with: Vec<(usize, usize)> = strays
        .blocks
        .iter()
        .enumerate()
        .flat_map(|(i, list)| list.iter().enumerate().filter(|(_, b)| b.count > 0).map(move |(b, _)| (i, b)))
        .collect();
    if with.is_empty() {
        return Ok(strays);
    }
    // 256 counts a segment, then bits a block.
    let counted = session.zeroed(1024 * segments.len() + 4 * with.len())?;
    let bits_at = 1024 * segments.len();
    let list = session.upload_list(with.iter().enumerate().map(|(j, &(i, b))| {
        let mut words = strays.words(&segments[i], looked, i, b);
        words[5] = counted.address() + 1024 * i as u64;
        words[6] = counted.address() + (bits_at + 4 * j) as u64;
        words
    }))?;
    session.launch(STRAYS, (with.len() as u32, 1), WIDE, &[list.arg()])?;
    let counted = session.download_u32(counted.view())?;
    let (classes, bits) = counted.split_at(bits_at / 4);
    for (to, from) in strays.summaries.iter_mut().zip(classes.as_chunks::<256>().0) {
        to.classes = *from;
    }
    for (&(i, b), &n) in with.iter().zip(bits) {
        strays.blocks[i][b].bits = n as usize;
        strays.summaries[i].low += n.div_ceil(8) as usize;
    }
    Ok(strays)
}

/// Raw bits of blocks, and a context for each of their classes.
#[derive(Debug)]
pub(super) struct Low<'s> {
    room: Buffer<'s>,
    /// Segment, block, bits, contexts.
    places: Vec<(usize, usize, Range<usize>, Range<usize>)>,
}

impl Low<'_> {
    /// Of a block: bits, contexts. Nothing where it has no exceptions.
    pub(super) fn get(&self, segment: usize, block: usize) -> Option<(View<'_>, View<'_>)> {
        let at = self.places.binary_search_by_key(&(segment, block), |p| (p.0, p.1)).ok()?;
        let (_, _, bits, ctx) = self.places.get(at)?;
        Some((self.room.view().part(bits.clone()), self.room.view().part(ctx.clone())))
    }
}

/// Writes the raw bits of segments whose context of strangers is given.
pub(super) fn low<'s>(
    session: &'s Session,
    segments: &[Segment<'_>],
    looked: &Looked<'_>,
    strays: &Strays<'_>,
    leaves: &[Option<u8>],
) -> Result<Low<'s>> {
    let mut layout = Layout::<16>::default();
    let mut places = Vec::new();
    for (i, _) in leaves.iter().enumerate().filter(|(_, leaf)| leaf.is_some()) {
        let list = strays.blocks.get(i).map(Vec::as_slice).unwrap_or_default();
        for (b, block) in list.iter().enumerate().filter(|(_, b)| b.count > 0) {
            let len = block.bits.div_ceil(8);
            // The last number's bits are added as whole words.
            let bits = layout.take(len + 12);
            places.push((i, b, bits..bits + len, layout.range(block.count)));
        }
    }
    if places.is_empty() {
        let room = session.buffer(0)?;
        return Ok(Low { room, places });
    }
    let room = session.zeroed(layout.len())?;
    let list = session.upload_list(places.iter().map(|(i, b, bits, ctx)| {
        let mut words = strays.words(&segments[*i], looked, *i, *b);
        words[7] = room.address() + bits.start as u64;
        words[8] = room.address() + ctx.start as u64;
        words[10] = u64::from(leaves[*i].unwrap_or_default());
        words
    }))?;
    session.launch(LOW, (places.len() as u32, 1), WIDE, &[list.arg()])?;
    Ok(Low { room, places })
}
