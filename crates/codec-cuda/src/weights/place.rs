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
use mdl_codec::{Dtype, Held, scheme_of};

const INDEX: Kernel = Kernel::new("weights", "weights_index");

/// A segment that lies decoded: its place in the room, its bytes.
struct Plain<'a> {
    at: usize,
    len: usize,
    encoded: &'a [u8],
}

/// Puts parts of `step` elements there.
pub(super) fn place(engine: &CudaEngine, dtype: Dtype, n: usize, step: usize, parts: &[Part<'_>]) -> Result<Weights> {
    let fused = matches!(dtype, Dtype::F32 | Dtype::F16 | Dtype::BF16);
    let (mut contents, mut plain) = (Contents::default(), Vec::new());
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
        if !fused || !planes::add(&mut contents, dtype, encoded, first, m)? {
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
    let chunks = fits(contents.chunks())?;
    let tiles: Vec<u32> = contents.tiles().flatten().collect();
    let firsts: Vec<u8> = contents.firsts().flat_map(u64::to_le_bytes).collect();
    let (tiles_at, firsts_at) = (contents.put_u32(tiles.iter().copied()), contents.put(firsts));
    let blocks_at = contents.layout.take(8 * WORDS * contents.blocks.len());
    let room = engine.room(contents.layout.len())?;
    let base = view_of(room.span());
    engine.on_session(|session| {
        for (at, bytes) in &contents.bytes {
            session.write(base.part(*at..at + bytes.len()), bytes)?;
        }
        for one in &plain {
            let out = base.part(one.at..one.at + one.len);
            decode_plain(engine, session, dtype, one.encoded, out)?;
        }
        let words: Vec<u8> =
            contents.blocks.iter().flat_map(|b| b.words(base.address())).flat_map(u64::to_le_bytes).collect();
        session.write(base.part(blocks_at..blocks_at + words.len()), &words)?;
        index(session, &contents, base.address() + blocks_at as u64)
    })?;
    let at = |place: usize| base.address() + place as u64;
    let table = match fused {
        false => Table::Plain,
        true => Table::Blocks {
            blocks: at(blocks_at),
            tiles: at(tiles_at),
            firsts: at(firsts_at),
            tile_count: fits(tiles.len() / 2)?,
            chunks,
        },
    };
    Ok(Weights { driver: engine.driver.clone(), ordinal: engine.ordinal, dtype, n, room, table })
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
