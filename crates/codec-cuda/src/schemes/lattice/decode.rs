//! Lattice decoder: segments back to reconstructions.

use crate::{
    Arg, Buffer, Decode, DeviceError, Kernel, Result, Session, View,
    layout::{Load, pair},
    schemes::lattice::{FOUR, GROUP, Lines, PIECE, Placed, ROWS, THREADS, columns},
};
use mdl_codec::engine_internals::lattice::{Front, Part, period};
use rayon::prelude::*;

const CLASSES: Kernel = Kernel::new("lattice_decode", "lattice_classes");
const SLOTS: Kernel = Kernel::new("lattice_decode", "lattice_slots");
const WALK: Kernel = Kernel::new("lattice_decode", "lattice_walk");
const NUMBERS: Kernel = Kernel::new("lattice_decode", "lattice_numbers");
/// Blocks from which on several share a block of threads, and with it what is cached of their tables.
const MANY: usize = 512;
/// Bytes of a table's slots.
const TABLE: usize = 4 * 4096;

/// Decodes segments of the three lattice schemes into their `out`; what is written before an error is unspecified.
pub(crate) fn decode(session: &Session, jobs: &[Decode<'_>]) -> Result<()> {
    for jobs in jobs.chunks(ROWS) {
        batch(session, jobs)?;
    }
    Ok(())
}

/// A segment whose header is read.
struct Read<'a> {
    job: &'a Decode<'a>,
    bases: [Option<View<'a>>; 2],
    front: Front<'a>,
    blocks: Vec<Part<'a>>,
    lanes: u32,
    n: usize,
}

/// Where things of a segment are: in the load, in the room.
struct Places {
    piece: Placed,
    map: u64,
    likely: u64,
    /// Tables before it.
    tables: usize,
    symbols: u64,
    bits_before: u64,
    /// Words of `LatticeBlock`, with places instead of addresses.
    blocks: Vec<[u64; 6]>,
}

fn read<'a>(job: &'a Decode<'a>) -> Result<Read<'a>> {
    let size = job.dtype.size();
    if job.out.len() > mdl_codec::SEGMENT_BYTES || !job.out.len().is_multiple_of(size) {
        return Err(DeviceError::Failed("not a segment's length".to_owned()));
    }
    let (bases, n) = (job.bases()?, job.out.len() / size);
    let front = Front::new(job.dtype, job.scheme, job.body, n)?;
    Ok(Read { job, bases, blocks: front.coded()?, lanes: front.lanes()?, front, n })
}

/// The likeliest symbol of a table, where it starts and its frequency, as a slot.
fn likeliest(freqs: &[u16; 256]) -> u32 {
    let (mut best, mut start) = ((0, 0, 0), 0);
    for (s, &f) in freqs.iter().enumerate() {
        if f > best.0 {
            best = (f, s as u32, start);
        }
        start += u32::from(f);
    }
    best.1 | best.2 << 8 | (u32::from(best.0).saturating_sub(1)) << 20
}

fn place(read: &Read<'_>, job: usize, tables: usize, load: &mut Load, room: &mut Lines) -> Result<Places> {
    let front = &read.front;
    let piece = front.piece()?;
    let likely = front.freqs.iter().flat_map(|f| likeliest(f).to_le_bytes());
    let mut blocks = Vec::with_capacity(read.blocks.len());
    for (elements, stream, low) in &read.blocks {
        let n = elements.len();
        let kept = period(piece.cols, n);
        blocks.push([
            load.put(stream.iter().copied()),
            load.put(low.iter().copied()),
            room.take(2 * kept) as u64,
            pair(stream.len(), low.len()),
            pair(job, elements.start),
            pair(n, kept),
        ]);
    }
    Ok(Places {
        piece: Placed::new(piece, load),
        map: load.put(front.map),
        likely: load.put(likely),
        tables,
        symbols: room.take(read.n) as u64,
        bits_before: room.take(4 * read.n.div_ceil(GROUP)) as u64,
        blocks,
    })
}

/// What the words of a segment point to.
struct Rooms<'a, 's> {
    load: &'a Buffer<'s>,
    room: &'a Buffer<'s>,
    slots: &'a Buffer<'s>,
    bad: &'a Buffer<'s>,
}

/// Words of `LatticeDecode`.
fn words(read: &Read<'_>, places: &Places, first_block: usize, rooms: &Rooms<'_, '_>) -> Vec<u64> {
    let (load, room) = (rooms.load.address(), rooms.room.address());
    let address = |v: Option<View<'_>>| v.map_or(0, |v| v.address());
    let axes = mdl_codec::engine_internals::lattice::axes(read.job.scheme.needs_base());
    let mut words = Vec::with_capacity(PIECE + 13);
    words.extend(places.piece.words(load, 0, read.n));
    words.extend([
        address(read.bases[0]),
        address(read.bases[1]),
        read.job.out.address(),
        room + places.symbols,
        room + places.bits_before,
        load + places.map,
        rooms.slots.address() + (places.tables * TABLE) as u64,
        load + places.likely,
        rooms.bad.address(),
        pair(read.n, read.front.block_log().into()),
        pair(read.lanes as usize, axes[1] * axes[2]),
        pair(axes[0] - 1, first_block),
    ]);
    words
}

fn batch(session: &Session, jobs: &[Decode<'_>]) -> Result<()> {
    let reads = jobs.par_iter().map(read).collect::<Result<Vec<_>>>()?;
    let (mut load, mut room, mut tables) = (Load::default(), Lines::default(), 0);
    let mut places = Vec::with_capacity(reads.len());
    for (j, read) in reads.iter().enumerate() {
        places.push(place(read, j, tables, &mut load, &mut room)?);
        tables += read.front.freqs.len();
    }
    let freqs = load.put(reads.iter().flat_map(|r| &r.front.freqs).flatten().flat_map(|f| f.to_le_bytes()));
    let (load, room) = (load.send(session)?, session.buffer(room.len())?);
    let (slots, bad) = (session.buffer(tables * TABLE)?, session.zeroed(4)?);
    let rooms = Rooms { load: &load, room: &room, slots: &slots, bad: &bad };
    let (mut list, mut blocks) = (Vec::new(), Vec::new());
    for (read, places) in reads.iter().zip(&places) {
        list.extend(words(read, places, blocks.len(), &rooms));
        blocks.extend(places.blocks.iter().map(|&[stream, low, averages, a, b, c]| {
            [load.address() + stream, load.address() + low, room.address() + averages, a, b, c]
        }));
    }
    let (list, count) = (session.upload_u64(&list)?, blocks.len());
    let blocks = session.upload_u64(blocks.as_flattened())?;
    let freqs = load.view().part(freqs as usize..load.view().len());
    session.launch(SLOTS, (tables as u32, 1), 256, &[freqs.arg(), slots.arg()])?;
    let longest = reads.iter().map(|r| r.n).max().unwrap_or(0);
    let rows = reads.len() as u32;
    let everything = (columns(longest, THREADS as usize * FOUR, rows), rows);
    if reads.iter().any(|r| r.bases[0].is_some()) {
        session.launch(CLASSES, everything, THREADS, &[list.arg()])?;
    }
    let warps = if count < MANY { 1 } else { 4 };
    let args = [list.arg(), blocks.arg(), Arg::U32(count as u32)];
    session.launch(WALK, (count.div_ceil(warps) as u32, 1), 32 * warps as u32, &args)?;
    session.launch(NUMBERS, everything, THREADS, &[list.arg(), blocks.arg()])?;
    session.expect_zeros(bad.view(), "lattice segment does not decode")
}
