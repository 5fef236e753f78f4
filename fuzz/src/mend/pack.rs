//! Mends packs: magic, ranges, checksums, ids of the payloads' contents, order, footer, trailer.

use super::tensor::Header;
use mdl_codec::{Bases, CpuEngine, Engine, SEGMENT_BYTES};
use mdl_objects::{Id, Kind, tensor_id};
use std::collections::HashMap;

const MAGIC: &[u8; 8] = b"MDLPACK\n";
const TRAILER: usize = 64;
/// In the byte of a record's kind: a grandparent follows the base.
const GRAND: u8 = 0x80;
/// Payload bytes around a bare footer.
const AROUND: usize = 256;
/// Decoded bytes of an object that is given its id.
const MOST: u64 = 1 << 20;

#[derive(Clone, Debug)]
struct Record {
    id: [u8; 32],
    kind: u8,
    depth: u8,
    offset: u64,
    len: u64,
    logical: u64,
    check: [u8; 16],
    bases: [Option<[u8; 32]>; 2],
}

/// The name of a pack as its trailer has it.
pub fn name(data: &[u8]) -> Option<[u8; 32]> {
    let at = data.len().checked_sub(TRAILER)?;
    data.get(at + 16..)?.first_chunk().copied()
}

struct Bytes<'a>(&'a [u8]);

impl Bytes<'_> {
    fn take<const N: usize>(&mut self) -> Option<[u8; N]> {
        let (head, rest) = self.0.split_first_chunk::<N>()?;
        self.0 = rest;
        Some(*head)
    }

    fn number(&mut self) -> Option<u64> {
        self.take().map(u64::from_le_bytes)
    }

    fn record(&mut self) -> Option<Record> {
        let id = self.take()?;
        let [kind, depth] = self.take()?;
        let (offset, len, logical, check) = (self.number()?, self.number()?, self.number()?, self.take()?);
        let base = if depth > 0 { Some(self.take()?) } else { None };
        let grandparent = if kind & GRAND != 0 { Some(self.take()?) } else { None };
        Some(Record {
            id,
            kind: (kind & !GRAND).wrapping_sub(1) % 6 + 1,
            depth,
            offset,
            len,
            logical,
            check,
            bases: [base, grandparent],
        })
    }
}

/// Records until the first that is cut off, each inside the payloads.
fn records(footer: &[u8], end: u64) -> Vec<Record> {
    let mut bytes = Bytes(footer);
    let _count = bytes.number();
    let mut out = Vec::new();
    while let Some(mut r) = bytes.record() {
        r.offset = if r.offset < 8 || r.offset > end { 8 } else { r.offset };
        r.len = r.len.min(end - r.offset);
        let tensor = Kind::from_code(r.kind) == Some(Kind::Tensor);
        if !tensor || r.bases[0].is_none() {
            (r.bases, r.depth) = ([None; 2], 0);
        }
        out.push(r);
    }
    out
}

fn encode(mut records: Vec<Record>) -> Vec<u8> {
    records.sort_by_key(|r| r.id);
    records.dedup_by_key(|r| r.id);
    let mut out = (records.len() as u64).to_le_bytes().to_vec();
    for r in &records {
        let [base, grandparent] = r.bases;
        out.extend(r.id);
        out.push(r.kind | if grandparent.is_some() { GRAND } else { 0 });
        out.push(r.depth);
        [r.offset, r.len, r.logical].iter().for_each(|n| out.extend(n.to_le_bytes()));
        out.extend(r.check);
        [base, grandparent].iter().flatten().for_each(|id| out.extend(id));
    }
    out
}

fn finish(mut payloads: Vec<u8>, footer: &[u8]) -> Vec<u8> {
    let (at, len) = (payloads.len() as u64, footer.len() as u64);
    payloads.extend(footer);
    payloads.extend(at.to_le_bytes());
    payloads.extend(len.to_le_bytes());
    payloads.extend(blake3::hash(footer).as_bytes());
    payloads.extend(2u64.to_le_bytes());
    payloads.extend(MAGIC);
    payloads
}

/// A footer whose records are in order and inside [`around`]'s payloads.
pub fn footer(data: &[u8]) -> Vec<u8> {
    encode(records(data, (MAGIC.len() + AROUND) as u64))
}

/// A pack with this footer.
pub fn around(footer: &[u8]) -> Vec<u8> {
    let mut payloads = MAGIC.to_vec();
    payloads.extend((0..AROUND).map(|i| i as u8));
    finish(payloads, footer)
}

/// The pack that these bytes once were, with what they are now as payloads and records.
pub fn pack(data: &mut Vec<u8>) {
    let Some(trailer) = data.len().checked_sub(TRAILER).filter(|at| *at >= MAGIC.len() + 8) else {
        return;
    };
    let number = |at: usize| data.get(trailer + at..)?.first_chunk().map(|b| u64::from_le_bytes(*b));
    // Where bytes came in between or went, either the offset or the length of the footer is right.
    let by_length = number(8).and_then(|len| (trailer as u64).checked_sub(len));
    let candidates = [number(0), by_length].into_iter().flatten();
    let fits = candidates.filter(|at| *at >= 8 && *at <= trailer as u64);
    let Some(at) = fits.max_by_key(|at| records(&data[*at as usize..trailer], *at).len()) else {
        return;
    };
    let mut records = records(&data[at as usize..trailer], at);
    data.truncate(at as usize);
    data[..8].copy_from_slice(MAGIC);
    settle(data, &mut records);
    *data = finish(std::mem::take(data), &encode(records));
}

/// Ids of what the payloads hold, what depends on them after what it depends on; then the checksums.
fn settle(payloads: &mut [u8], records: &mut [Record]) {
    records.sort_by_key(|r| r.depth);
    let mut renamed: HashMap<[u8; 32], ([u8; 32], Vec<u8>)> = HashMap::new();
    for r in records {
        let Some(payload) = payloads.get_mut(r.offset as usize..(r.offset + r.len) as usize) else {
            continue;
        };
        let found = match Kind::from_code(r.kind) {
            Some(Kind::Tensor) => tensor(payload, r, &renamed),
            Some(kind) => content(payload).map(|bytes| (*Id::from_content(kind, &bytes).as_bytes(), bytes)),
            None => None,
        };
        if let Some((id, bytes)) = found {
            r.logical = bytes.len() as u64;
            let old = std::mem::replace(&mut r.id, id);
            renamed.insert(old, (id, bytes));
        }
        r.check.copy_from_slice(&blake3::hash(payload).as_bytes()[..16]);
    }
}

fn content(payload: &[u8]) -> Option<Vec<u8>> {
    match payload.split_first()? {
        (0, rest) => Some(rest.to_vec()),
        (1, rest) => zstd::bulk::decompress(rest, MOST as usize).ok(),
        _ => None,
    }
}

/// The id of a tensor, as far as it decodes; the ids of its bases are written anew.
fn tensor(
    payload: &mut [u8],
    record: &mut Record,
    renamed: &HashMap<[u8; 32], ([u8; 32], Vec<u8>)>,
) -> Option<([u8; 32], Vec<u8>)> {
    let mut header = Header::parse(payload)?;
    let len = header.byte_len().filter(|n| *n <= MOST)? as usize;
    let mut contents: [Option<&[u8]>; 2] = [None; 2];
    for (i, relative) in header.bases.iter_mut().enumerate() {
        if let Some((id, bytes)) = relative.and_then(|id| renamed.get(id.as_bytes())) {
            *relative = Some(Id::from_bytes(*id));
            contents[i] = Some(bytes);
        }
    }
    record.bases = header.bases.map(|id| id.map(|id| *id.as_bytes()));
    record.depth = if header.bases[0].is_some() { record.depth.max(1) } else { 0 };
    let tail = header.encode();
    payload.get_mut(header.at..).filter(|place| place.len() == tail.len())?.copy_from_slice(&tail);
    let (mut out, mut at) = (vec![0; len], 0usize);
    for (i, (segment, length)) in out.chunks_mut(SEGMENT_BYTES).zip(&header.lengths).enumerate() {
        let part =
            |bytes: Option<&'_ [u8]>| bytes.map(|b| b.iter().copied().skip(i * SEGMENT_BYTES).collect::<Vec<u8>>());
        let [base, grandparent] = contents.map(part);
        let family = Bases { base: base.as_deref(), grandparent: grandparent.as_deref() };
        let encoded = payload.get(at..at + *length as usize)?;
        CpuEngine::new().decode(header.dtype, encoded, family, segment).ok()?;
        at += *length as usize;
    }
    Some((*tensor_id(header.dtype, &header.shape, &out).as_bytes(), out))
}
