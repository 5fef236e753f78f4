//! Putting compressed weights into the device's memory, and checking them there.

use crate::{
    Arg, CudaEngine, Decode, DeviceError, Kernel, Result, Session, View,
    engine::view_of,
    schemes,
    weights::{
        Block, Part, Table, Weights,
        blocks::{Contents, Source, WORDS, fits},
        lossy, planes,
    },
};
use mdl_codec::{Dtype, Held, SEGMENT_BYTES, engine_internals::Exceptions, scheme_of};
use std::ops::Range;

const INDEX: Kernel = Kernel::new("weights", "weights_index");

/// A segment that lies decoded: its place in the room, its bytes.
struct Plain<'a> {
    at: usize,
    len: usize,
    encoded: &'a [u8],
}

/// Whether kernels decode elements of this type number by number.
pub(super) fn is_fused(dtype: Dtype) -> bool {
    matches!(dtype, Dtype::F32 | Dtype::F16 | Dtype::BF16)
}

/// Puts parts of `step` elements there.
pub(super) fn place(engine: &CudaEngine, dtype: Dtype, n: usize, step: usize, parts: &[Part<'_>]) -> Result<Weights> {
    let fused = is_fused(dtype);
    let (mut contents, mut plain, mut stored) = (Contents::default(), Vec::new(), Vec::new());
    for (i, part) in parts.iter().enumerate() {
        let (first, m) = (i * step, step.min(n - i * step));
        let encoded = match part {
            Part::Lossy(encoded) if fused => {
                lossy::add(&mut contents, &engine.cpu, encoded, first, m)?;
                continue;
            }
            Part::Lossy(_) => return Err(DeviceError::Unsupported("few mantissa bits of this type")),
            Part::Segment(encoded) => *encoded,
        };
        if scheme_of(encoded)?.bases() > 0 {
            return Err(DeviceError::Corrupt("a relative is missing or has another length"));
        }
        let at = if fused { planes::add(&mut contents, dtype, encoded, first, m)? } else { None };
        if let Some(at) = at {
            stored.push(vec![Kept::There(at..at + encoded.len())]);
        } else {
            let len = m * dtype.size();
            // Elements follow each other without a gap where there is no list of blocks.
            let at = if fused { contents.layout.take(len) } else { first * dtype.size() };
            plain.push(Plain { at, len, encoded });
            contents.push(Block { symbols: Some(at), first, n: m, ..Block::default() });
        }
    }
    if !fused {
        contents.layout.take(n * dtype.size());
    }
    let sealed = Sealed::new(&mut contents)?;
    let room = engine.room(contents.layout.len())?;
    let base = view_of(room.span());
    engine.on_session(|session| {
        for one in &plain {
            let out = base.part(one.at..one.at + one.len);
            decode_plain(engine, session, dtype, one.encoded, out)?;
        }
        sealed.write(session, base, &contents)?;
        index(session, &contents, base.address() + sealed.blocks as u64)
    })?;
    let table = if fused { sealed.table(base) } else { Table::Plain };
    let lossy = parts.iter().any(|p| matches!(p, Part::Lossy(_)));
    let kept = plain.is_empty() && !lossy && step == SEGMENT_BYTES / dtype.size();
    let stored = kept.then_some(stored);
    Ok(Weights { driver: engine.driver.clone(), ordinal: engine.ordinal, dtype, n, room, table, lossy, stored })
}

/// What a part of a stored segment is.
#[derive(Clone, Debug)]
pub(super) enum Kept {
    /// Bytes that the host has.
    Here(Vec<u8>),
    /// Bytes in the room.
    There(Range<usize>),
}

impl Kept {
    /// How many they are.
    pub fn len(&self) -> usize {
        match self {
            Kept::Here(bytes) => bytes.len(),
            Kept::There(range) => range.len(),
        }
    }
}

/// The exceptions of a block, as it lists them.
pub(super) fn listed(exceptions: &[(usize, u16)]) -> Vec<u8> {
    let (mut list, mut out) = (Exceptions::default(), Vec::new());
    exceptions.iter().for_each(|&(i, key)| list.push(i, key));
    list.put(&mut out);
    out
}

/// Places of the lists over all blocks, which are complete.
#[derive(Clone, Copy, Debug)]
pub(super) struct Sealed {
    pub blocks: usize,
    tiles: usize,
    firsts: usize,
    tile_count: u32,
    chunks: u32,
}

impl Sealed {
    /// Finds places for the lists.
    pub fn new(contents: &mut Contents<'_>) -> Result<Sealed> {
        let chunks = fits(contents.chunks())?;
        let tiles: Vec<u32> = contents.tiles().flatten().collect();
        let firsts: Vec<u8> = contents.firsts().flat_map(u64::to_le_bytes).collect();
        let tile_count = fits(tiles.len() / 2)?;
        let (tiles, firsts) = (contents.put_u32(tiles), contents.put(firsts));
        let blocks = contents.layout.take(8 * WORDS * contents.blocks.len());
        Ok(Sealed { blocks, tiles, firsts, tile_count, chunks })
    }

    /// Writes what the host has into the room.
    pub fn write(&self, session: &Session, base: View<'_>, contents: &Contents<'_>) -> Result<()> {
        for (at, bytes) in &contents.bytes {
            session.write(base.part(*at..at + bytes.len()), bytes)?;
        }
        let words = contents.blocks.iter().flat_map(|b| b.words(base.address()));
        let words: Vec<u8> = words.flat_map(u64::to_le_bytes).collect();
        session.write(base.part(self.blocks..self.blocks + words.len()), &words)
    }

    /// How the room is read.
    pub fn table(&self, base: View<'_>) -> Table {
        let at = |place: usize| base.address() + place as u64;
        Table::Blocks {
            blocks: at(self.blocks),
            tiles: at(self.tiles),
            firsts: at(self.firsts),
            tile_count: self.tile_count,
            chunks: self.chunks,
        }
    }
}

fn decode_plain(engine: &CudaEngine, session: &Session, dtype: Dtype, encoded: &[u8], out: View<'_>) -> Result<()> {
    let scheme = scheme_of(encoded)?;
    let job = Decode { dtype, scheme, body: &encoded[1..], base: None, grandparent: None, out };
    match schemes::decode(session, scheme, std::slice::from_ref(&job)) {
        Err(DeviceError::Unsupported(_)) => session.write(out, &engine.by_host(session, &job)?),
        other => other,
    }
}

/// Decodes every stream once: the seek points are noted, and each has to end where it should.
fn index(session: &Session, contents: &Contents<'_>, blocks: u64) -> Result<()> {
    let coded = |(i, b): (usize, &Block)| matches!(b.source, Source::Rans(_)).then_some(i as u32);
    let which: Vec<u32> = contents.blocks.iter().enumerate().filter_map(coded).collect();
    if which.is_empty() {
        return Ok(());
    }
    let list = session.upload_u32(&which)?;
    let bad = session.buffer(4 * which.len())?;
    session.launch(INDEX, (which.len() as u32, 1), 32, &[Arg::Ptr(blocks), list.arg(), bad.arg()])?;
    session.expect_zeros(bad.view(), "stream does not end where it should")
}
