//! rANS coding and decoding on the device.

use crate::{
    Buffer, DeviceError, Kernel, Result, Session, View,
    layout::places,
    schemes::tables::{SLOTS, SYMBOLS},
};

const ENCODE: Kernel = Kernel::new("rans", "rans_encode");
const DECODE: Kernel = Kernel::new("rans", "rans_decode");
/// Streams of a block of threads, a warp each.
const WARPS: usize = 4;

/// Symbols, and a context for each; without, all are in context 0. Of a job that decodes the symbols are written.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Part<'a> {
    pub symbols: View<'a>,
    pub ctx: Option<View<'a>>,
}

/// A stream to be made.
#[derive(Clone, Debug)]
pub(crate) struct Encode<'a> {
    /// One or two parts.
    pub parts: Vec<Part<'a>>,
    /// Of `RansSymbol`: 256 a context.
    pub table: View<'a>,
    /// 1, 4 or 32.
    pub lanes: u32,
}

/// A stream to be read.
#[derive(Clone, Debug)]
pub(crate) struct Decode<'a> {
    /// One or two parts.
    pub parts: Vec<Part<'a>>,
    /// Of u32: 4,096 slots a context. Every context of the parts has its slots.
    pub table: View<'a>,
    /// 1, 4 or 32.
    pub lanes: u32,
    /// The stream, states included.
    pub stream: View<'a>,
}

/// The words of `RansJob` in `rans.cu`.
fn job(parts: &[Part<'_>], table: View<'_>, stream: u64, lanes: u32, len: u32) -> Result<[u64; 8]> {
    let (first, second) = match parts {
        [a] => (Some(a), None),
        [a, b] => (Some(a), Some(b)),
        _ => return Err(DeviceError::Failed("a stream of one part or two".to_owned())),
    };
    if parts.iter().any(|p| p.ctx.is_some_and(|c| c.len() != p.symbols.len())) {
        return Err(DeviceError::Failed("a context for every symbol".to_owned()));
    }
    let symbols = |p: Option<&Part<'_>>| p.map_or(0, |p| p.symbols.address());
    let ctx = |p: Option<&Part<'_>>| p.and_then(|p| p.ctx).map_or(0, |c| c.address());
    let n = |p: Option<&Part<'_>>| p.map_or(0, |p| p.symbols.len() as u64);
    Ok([
        symbols(first),
        symbols(second),
        ctx(first),
        ctx(second),
        table.address(),
        stream,
        n(first) | n(second) << 32,
        u64::from(lanes) | u64::from(len) << 32,
    ])
}

/// Runs a kernel over streams with these tables, and gives the number that it leaves for each. `context` is the size of
/// a context's table.
///
/// Streams that follow each other and have the same table share a block of threads (`RansTeam` in `rans.cu`), and the
/// table's copy in its shared memory.
fn run<'s, 'a>(
    session: &'s Session,
    kernel: Kernel,
    jobs: Vec<[u64; 8]>,
    tables: impl Iterator<Item = View<'a>>,
    context: usize,
) -> Result<Buffer<'s>> {
    let mut teams: Vec<[u32; 4]> = Vec::new();
    let mut last = None;
    for (j, table) in tables.enumerate() {
        match teams.last_mut() {
            Some([_, count, ..]) if last == Some(table.address()) && *count < WARPS as u32 => *count += 1,
            _ => teams.push([j as u32, 1, (table.len() / context) as u32, 0]),
        }
        last = Some(table.address());
    }
    let out = session.buffer(4 * jobs.len())?;
    let (list, count) = (session.upload_list(jobs)?, teams.len() as u32);
    let teams = session.upload_u32(teams.as_flattened())?;
    session.launch(kernel, (count, 1), 32 * WARPS as u32, &[list.arg(), teams.arg(), out.arg()])?;
    Ok(out)
}

/// The streams, in memory that `room` keeps.
#[derive(Debug)]
pub(crate) struct Streams<'s> {
    room: Buffer<'s>,
    /// Where each begins, and how long it is.
    places: Vec<(usize, usize)>,
}

impl<'s> Streams<'s> {
    /// Streams that begin at `starts`; their lengths are on the device.
    pub(crate) fn new(session: &Session, room: Buffer<'s>, starts: Vec<usize>, lengths: &Buffer<'_>) -> Result<Self> {
        let lengths = session.download_u32(lengths.view())?;
        Ok(Streams { room, places: starts.into_iter().zip(lengths.into_iter().map(|l| l as usize)).collect() })
    }

    /// Stream `i`.
    pub(crate) fn get(&self, i: usize) -> View<'_> {
        let (at, len) = self.places.get(i).copied().unwrap_or_default();
        self.room.view().part(at..at + len)
    }
}

/// Makes streams.
pub(crate) fn encode<'s>(session: &'s Session, jobs: &[Encode<'_>]) -> Result<Streams<'s>> {
    let symbols = |j: &Encode<'_>| j.parts.iter().map(|p| p.symbols.len()).sum::<usize>();
    let (starts, len) = places(jobs.iter().map(|j| 2 * symbols(j) + 4 * j.lanes as usize));
    let room = session.buffer(len)?;
    let words = jobs
        .iter()
        .zip(&starts)
        .map(|(j, start)| job(&j.parts, j.table, room.address() + *start as u64, j.lanes, 0))
        .collect::<Result<Vec<_>>>()?;
    let lengths = run(session, ENCODE, words, jobs.iter().map(|j| j.table), SYMBOLS)?;
    Streams::new(session, room, starts, &lengths)
}

/// Reads streams into the symbols of their parts. Fails where one does not end where it should.
pub(crate) fn decode(session: &Session, jobs: &[Decode<'_>]) -> Result<()> {
    if jobs.is_empty() {
        return Ok(());
    }
    let words = jobs
        .iter()
        .map(|j| job(&j.parts, j.table, j.stream.address(), j.lanes, j.stream.len() as u32))
        .collect::<Result<Vec<_>>>()?;
    let bad = run(session, DECODE, words, jobs.iter().map(|j| j.table), SLOTS)?;
    session.expect_zeros(bad.view(), "stream does not end where it should")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::{Noise, SIZES, session};
    use mdl_codec::engine_internals::{DecTable, EncTable, normalise};

    fn slots(table: &DecTable) -> Vec<u8> {
        table.slots().iter().flat_map(|s| s.to_le_bytes()).collect()
    }

    #[test]
    fn streams_of_every_length_come_back_and_damaged_ones_are_refused() {
        let session = session();
        for n in SIZES {
            for lanes in [1, 4, 32] {
                if n > 5000 && lanes != 32 {
                    continue;
                }
                let mut noise = Noise(n as u64 * 77 + lanes);
                let symbols: Vec<u8> = (0..n).map(|_| (noise.next() & noise.next() & 31) as u8).collect();
                let ctx: Vec<u8> = (0..n).map(|i| (i / 5 % 3) as u8).collect();
                let mut counts = [[0u32; 256]; 3];
                symbols.iter().zip(&ctx).for_each(|(&s, &c)| counts[usize::from(c)][usize::from(s)] += 1);
                counts.iter_mut().for_each(|c| c[200] += 1);
                let freqs = counts.map(|c| normalise(&c));
                let table = session.upload_u64(&EncTable::new(&freqs).words()).unwrap();
                let slots = session.upload(&slots(&DecTable::new(&freqs).unwrap())).unwrap();
                let (s, c) = (session.upload(&symbols).unwrap(), session.upload(&ctx).unwrap());
                let cut = n / 3;
                let part = |b: &Buffer<'_>, c: &Buffer<'_>, range: std::ops::Range<usize>| Part {
                    symbols: View::at(b.address() + range.start as u64, range.len()),
                    ctx: Some(View::at(c.address() + range.start as u64, range.len())),
                };
                let job = Encode {
                    parts: vec![part(&s, &c, 0..cut), part(&s, &c, cut..n)],
                    table: table.view(),
                    lanes: lanes as u32,
                };
                let streams = encode(&session, &[job]).unwrap();
                let out = session.buffer(n).unwrap();
                let mut job = Decode {
                    parts: vec![part(&out, &c, 0..cut), part(&out, &c, cut..n)],
                    table: slots.view(),
                    lanes: lanes as u32,
                    stream: streams.get(0),
                };
                decode(&session, std::slice::from_ref(&job)).unwrap();
                assert_eq!(session.download(out.view()).unwrap(), symbols, "{n} on {lanes}");
                job.stream = streams.get(0).part(0..streams.get(0).len() - 2);
                assert!(decode(&session, &[job]).is_err(), "{n} on {lanes}");
            }
        }
    }
}
