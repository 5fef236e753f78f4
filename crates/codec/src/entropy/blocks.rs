//! Blocks and their offset table: a segment is cut into equal blocks that decode independently.

use crate::{
    CodecError, Result,
    entropy::Cursor,
    threads::{share_out, threads, try_share_out},
};
use std::ops::Range;

/// log2 of the elements of a block that encoders choose.
pub const BLOCK_LOG: u8 = 18;
/// The largest block that decoders accept: one that holds a whole segment of bytes.
const MAX_LOG: u8 = 23;

/// Elements of a block, its stream, what follows the stream.
pub type Part<'a> = (Range<usize>, &'a [u8], &'a [u8]);

/// A stream, and what follows it.
type Halves<'a> = (&'a [u8], &'a [u8]);

/// The stream of a block, after its length in four bytes, and what follows it.
pub fn split(data: &[u8]) -> Result<Halves<'_>> {
    let mut cursor = Cursor::new(data);
    let len = cursor.u32()? as usize;
    Ok((cursor.take(len)?, cursor.rest()))
}

/// As [`split`], the length being of as few bytes as it needs.
pub(crate) fn split_short(data: &[u8]) -> Result<Halves<'_>> {
    let mut cursor = Cursor::new(data);
    let len = cursor.varint()?;
    Ok((cursor.take(len)?, cursor.rest()))
}

/// A block to be decoded.
#[derive(Debug)]
pub(crate) struct Job<'a> {
    /// The block.
    pub(crate) data: &'a [u8],
    /// Its elements.
    pub(crate) elements: Range<usize>,
    /// Where they go.
    pub(crate) out: &'a mut [u8],
}

/// What one thread does at a time.
enum Share<'s, 'a> {
    /// A block of which some elements are wanted.
    Cut((Job<'a>, Range<usize>)),
    /// Blocks that are decoded together.
    Whole(&'s mut [Job<'a>]),
}

/// How many elements there are, and in which blocks.
#[derive(Clone, Copy, Debug)]
pub struct Grid {
    /// log2 of the elements of a block.
    pub log: u8,
    /// Elements of the segment.
    pub n: usize,
}

impl Grid {
    /// The grid that encoders choose for `n` elements.
    pub fn new(n: usize) -> Self {
        Grid { log: BLOCK_LOG, n }
    }

    /// For tensors that are decoded again and again: a short one is cut in four to eight blocks, as far as these are no
    /// smaller than 2^16 elements, so that a thread decodes them side by side, or threads share them.
    pub(crate) fn fine(n: usize) -> Self {
        if n <= 1 << (BLOCK_LOG - 2) {
            return Grid::new(n);
        }
        let log = n.ilog2().saturating_sub(2) as u8;
        Grid { log: log.clamp(BLOCK_LOG - 2, BLOCK_LOG), n }
    }

    /// Reads the block size.
    pub(crate) fn get(cursor: &mut Cursor<'_>, n: usize) -> Result<Self> {
        let log = cursor.u8()?;
        if !(7..=MAX_LOG).contains(&log) {
            return Err(CodecError::Corrupt("bad block size"));
        }
        Ok(Grid { log, n })
    }

    /// Number of blocks.
    pub fn blocks(self) -> usize {
        self.n.div_ceil(1 << self.log)
    }

    /// Elements of block `b`.
    pub fn elements(self, b: usize) -> Range<usize> {
        b << self.log..((b + 1) << self.log).min(self.n)
    }

    /// Bytes of block `b`, of elements of `size` bytes.
    pub(crate) fn bytes(self, b: usize, size: usize) -> Range<usize> {
        let elements = self.elements(b);
        elements.start * size..elements.end * size
    }

    /// What `split` makes of each block.
    pub(crate) fn parts<'a>(
        self,
        blocks: &[&'a [u8]],
        split: fn(&'a [u8]) -> Result<Halves<'a>>,
    ) -> Result<Vec<Part<'a>>> {
        let one = |(b, data): (usize, &&'a [u8])| split(data).map(|(stream, rest)| (self.elements(b), stream, rest));
        blocks.iter().enumerate().map(one).collect()
    }

    /// Appends the lengths of all blocks but the last, then the blocks, which `encode(block, out)` appends. Blocks are
    /// encoded side by side where there are threads for it, else straight into their place.
    pub(crate) fn put_blocks(self, out: &mut Vec<u8>, encode: impl Fn(usize, &mut Vec<u8>) + Sync + Send) {
        let n = self.blocks();
        let mut table = out.len();
        out.resize(table + 4 * n.saturating_sub(1), 0);
        let mut put = |out: &mut Vec<u8>, b: usize, len: usize| {
            if b + 1 < n {
                out[table..table + 4].copy_from_slice(&(len as u32).to_le_bytes());
                table += 4;
            }
        };
        if n <= 1 || threads() == 1 {
            for b in 0..n {
                let start = out.len();
                encode(b, out);
                let len = out.len() - start;
                put(out, b, len);
            }
            return;
        }
        let one = |b| {
            let mut block = Vec::new();
            encode(b, &mut block);
            block
        };
        let done: Vec<Vec<u8>> = share_out((0..n).collect(), one);
        out.reserve(done.iter().map(Vec::len).sum());
        for (b, block) in done.iter().enumerate() {
            put(out, b, block.len());
            out.extend_from_slice(block);
        }
    }

    /// Appends the lengths of all blocks but the last, given those of all.
    pub(crate) fn put_lengths(self, out: &mut Vec<u8>, lengths: impl Iterator<Item = usize>) {
        let all_but_last = lengths.take(self.blocks().saturating_sub(1));
        out.extend(all_but_last.flat_map(|len| (len as u32).to_le_bytes()));
    }

    /// Reads the offset table; the cursor must then hold exactly the blocks.
    pub(crate) fn get_blocks<'a>(self, cursor: &mut Cursor<'a>) -> Result<Vec<&'a [u8]>> {
        let n = self.blocks();
        let mut lengths = Cursor::new(cursor.take(4 * n.saturating_sub(1))?);
        let mut blocks = Vec::with_capacity(n);
        for _ in 1..n {
            blocks.push(cursor.take(lengths.u32()? as usize)?);
        }
        if n > 0 {
            blocks.push(cursor.take(cursor.rest().len())?);
        }
        cursor.done()?;
        Ok(blocks)
    }

    /// Decodes the blocks that hold `range` (elements of `size` bytes) into `out`, which holds exactly that range.
    /// `decode(block, elements, out)` decodes one whole block.
    pub(crate) fn decode_range(
        self,
        blocks: &[&[u8]],
        size: usize,
        range: Range<usize>,
        out: &mut [u8],
        decode: impl Fn(&[u8], Range<usize>, &mut [u8]) -> Result<()> + Sync,
    ) -> Result<()> {
        self.decode_together(blocks, size, range, out, 1, |jobs| {
            jobs.iter_mut().try_for_each(|j| decode(j.data, j.elements.clone(), j.out))
        })
    }

    /// As [`decode_range`](Self::decode_range); `decode` decodes up to `most` whole blocks at once.
    pub(crate) fn decode_together(
        self,
        blocks: &[&[u8]],
        size: usize,
        range: Range<usize>,
        out: &mut [u8],
        most: usize,
        decode: impl Fn(&mut [Job<'_>]) -> Result<()> + Sync,
    ) -> Result<()> {
        if range.is_empty() {
            return Ok(());
        }
        let (mut whole, mut cut) = (Vec::new(), Vec::new());
        let mut rest = out;
        let first = range.start >> self.log;
        for (b, &data) in blocks.iter().enumerate().skip(first).take(((range.end - 1) >> self.log) - first + 1) {
            let elements = self.elements(b);
            let wanted = elements.start.max(range.start)..elements.end.min(range.end);
            let (out, tail) = rest.split_at_mut(wanted.len() * size);
            rest = tail;
            let all = wanted == elements;
            let job = Job { data, elements, out };
            if all { whole.push(job) } else { cut.push((job, wanted)) }
        }
        let part = |(job, wanted): (Job<'_>, Range<usize>)| {
            let mut all = vec![0u8; job.elements.len() * size];
            let from = (wanted.start - job.elements.start) * size;
            decode(&mut [Job { data: job.data, elements: job.elements, out: &mut all }])?;
            job.out.copy_from_slice(&all[from..from + job.out.len()]);
            Ok(())
        };
        // Every thread gets something to do before one does several at once.
        let threads = threads();
        let at_once = whole.len().div_ceil(threads).clamp(1, most);
        // A block alone needs no other thread.
        if threads == 1 || whole.len() + cut.len() <= at_once {
            cut.into_iter().try_for_each(part)?;
            return whole.chunks_mut(at_once).try_for_each(decode);
        }
        let wholes = whole.chunks_mut(at_once).map(Share::Whole);
        try_share_out(cut.into_iter().map(Share::Cut).chain(wholes).collect(), |share| match share {
            Share::Cut(job) => part(job),
            Share::Whole(jobs) => decode(jobs),
        })
    }
}
