//! Blocks of compressed weights: what the kernels' `WeightBlock` says, with places in memory that is not there yet.

use crate::{
    Result,
    layout::{Layout, pair},
    schemes::planes::{CHUNK, POINT},
    weights::WARPS,
};
use mdl_codec::engine_internals::{Cut, DecTable, PlaneDecoder};
use std::borrow::Cow;

/// Words of a `WeightBlock`.
pub(super) const WORDS: usize = 16;

/// Where the symbols of a block come from: `WEIGHT_*` in `weights.cuh`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) enum Source {
    /// There are none: the numbers lie as they are.
    #[default]
    Plain,
    /// All are this one.
    Const(u8),
    /// A byte each.
    Raw,
    /// A stream of so many bytes.
    Rans(usize),
}

/// A block; places are offsets into the room, none where there is nothing.
#[derive(Clone, Debug, Default)]
pub(super) struct Block {
    pub source: Source,
    pub symbols: Option<usize>,
    pub fields: Option<usize>,
    pub groups: Option<usize>,
    pub offsets: Option<usize>,
    pub counts: Option<usize>,
    pub points: Option<usize>,
    pub exceptions: Option<usize>,
    pub starts: Option<usize>,
    pub freqs: Option<usize>,
    pub scales: Option<usize>,
    /// Number of the tensor with which it begins.
    pub first: usize,
    pub cut: [u64; 2],
    pub n: usize,
    pub scale_log: u32,
    /// Its first chunk.
    pub chunk: usize,
}

impl Block {
    /// Chunks that it has.
    pub fn chunks(&self) -> usize {
        self.n.div_ceil(CHUNK)
    }

    /// The structure, in a room that begins at `base`.
    pub fn words(&self, base: u64) -> [u64; WORDS] {
        let at = |place: Option<usize>| place.map_or(0, |p| base + p as u64);
        let (kind, symbol, len) = match self.source {
            Source::Plain => (0, 0, 0),
            Source::Const(s) => (1, s.into(), 0),
            Source::Raw => (2, 0, 0),
            Source::Rans(len) => (3, 0, len),
        };
        let places = [
            self.symbols,
            self.fields,
            self.groups,
            self.offsets,
            self.counts,
            self.points,
            self.exceptions,
            self.starts,
            self.freqs,
            self.scales,
        ];
        let mut words = [0; WORDS];
        words.iter_mut().zip(places).for_each(|(w, p)| *w = at(p));
        words[10..].copy_from_slice(&[
            self.first as u64,
            self.cut[0],
            self.cut[1],
            pair(self.n, len),
            pair(kind, symbol),
            pair(self.scale_log as usize, self.chunk),
        ]);
        words
    }
}

/// What goes into the room.
#[derive(Debug, Default)]
pub(super) struct Contents<'a> {
    pub layout: Layout<16>,
    /// Place and bytes of what the host has.
    pub bytes: Vec<(usize, Cow<'a, [u8]>)>,
    pub blocks: Vec<Block>,
}

impl<'a> Contents<'a> {
    /// Puts bytes there, and says where.
    pub fn put(&mut self, bytes: impl Into<Cow<'a, [u8]>>) -> usize {
        let bytes = bytes.into();
        let at = self.layout.take(bytes.len());
        self.bytes.push((at, bytes));
        at
    }

    /// As [`put`](Self::put), of 4-byte numbers.
    pub fn put_u32(&mut self, values: impl IntoIterator<Item = u32>) -> usize {
        self.put(values.into_iter().flat_map(u32::to_le_bytes).collect::<Vec<u8>>())
    }

    /// Adds a block, the next one of the tensor.
    pub fn push(&mut self, block: Block) {
        let chunk = self.blocks.last().map_or(0, |b| b.chunk + b.chunks());
        self.blocks.push(Block { chunk, ..block });
    }

    /// Chunks of all blocks.
    pub fn chunks(&self) -> usize {
        self.blocks.last().map_or(0, |b| b.chunk + b.chunks())
    }

    /// Room for the seek points of a stream of `n` symbols.
    pub fn points(&mut self, n: usize) -> usize {
        self.layout.take(POINT * n.div_ceil(CHUNK))
    }

    /// The frequencies of a table.
    pub fn freqs(&mut self, table: &DecTable) -> usize {
        let mut freqs = [0u16; 256];
        for slot in table.slots() {
            freqs[(slot & 255) as usize] = (slot >> 20) as u16 + 1;
        }
        self.put_freqs(&freqs)
    }

    /// Frequencies that add up to 4096.
    pub fn put_freqs(&mut self, freqs: &[u16; 256]) -> usize {
        self.put(freqs.iter().flat_map(|f| f.to_le_bytes()).collect::<Vec<u8>>())
    }

    /// Lists the exceptions of a block by chunks: place in the chunk, and key.
    pub fn put_exceptions(&mut self, block: &mut Block, exceptions: &[(usize, u16)]) {
        if exceptions.is_empty() {
            return;
        }
        let list = exceptions.iter().map(|&(i, key)| (i % CHUNK) as u32 | u32::from(key) << 16);
        block.exceptions = Some(self.put_u32(list));
        let before = |chunk: usize| exceptions.partition_point(|(i, _)| *i < chunk * CHUNK) as u32;
        block.starts = Some(self.put_u32((0..=block.chunks()).map(before)));
    }

    /// Block and first chunk of each block of threads.
    pub fn tiles(&self) -> impl Iterator<Item = [u32; 2]> {
        let of = |(b, block): (usize, &Block)| (0..block.chunks()).step_by(WARPS).map(move |c| [b as u32, c as u32]);
        self.blocks.iter().enumerate().flat_map(of)
    }

    /// Numbers with which chunks begin.
    pub fn firsts(&self) -> impl Iterator<Item = u64> {
        self.blocks.iter().flat_map(|b| (0..b.chunks()).map(move |c| (b.first + c * CHUNK) as u64))
    }
}

/// Where the symbols of a plane come from; none where no kernel decodes it number by number.
pub(super) fn source(coder: &PlaneDecoder, body: &[u8]) -> Option<Source> {
    match coder {
        PlaneDecoder::Raw => Some(Source::Raw),
        PlaneDecoder::Const(s) => Some(Source::Const(*s)),
        PlaneDecoder::Rans(_) => Some(Source::Rans(body.len())),
        PlaneDecoder::Huffman(_) => None,
    }
}

/// The words of `Cut`.
pub(super) fn cut_words(cut: Cut) -> [u64; 2] {
    crate::schemes::planes::cut_words(Some(cut))
}

/// Place of a piece in what it is a piece of.
pub(super) fn within(whole: &[u8], piece: &[u8]) -> usize {
    (piece.as_ptr() as usize).saturating_sub(whole.as_ptr() as usize).min(whole.len())
}

/// Checks that counts of numbers fit the kernels' 32 bits.
pub(super) fn fits(n: usize) -> Result<u32> {
    u32::try_from(n).map_err(|_| crate::DeviceError::Unsupported("so many elements"))
}
