//! Pack encoding: records, footer, trailer.

use crate::{
    RepoError, Result,
    storage::{Key, Prefix},
};
use mdl_objects::{Id, Kind, ObjectError, ParseIdError, Reader};
use std::{fmt, str::FromStr};

/// Where packs are in a storage.
pub const PACK_DIR: Prefix = Prefix::fixed("packs/");
/// The first bytes of a pack, and its last.
pub const MAGIC: [u8; 8] = *b"MDLPACK\n";
/// What is wrong with a pack that begins otherwise.
pub const NO_MAGIC: &str = "it does not begin as a pack does";
/// Version of a pack no record of which names a grandparent, and of one that has such records.
const PLAIN: u64 = 1;
const WITH_GRAND: u64 = 2;
/// In the byte of a record's kind: a grandparent follows the base.
const GRAND: u8 = 0x80;
/// footer offset, footer length, footer hash, version, magic.
pub(super) const TRAILER_LEN: usize = 8 + 8 + 32 + 8 + 8;
/// A record without a base.
const RECORD_MIN: usize = 32 + 1 + 1 + 8 + 8 + 8 + 16;

/// Name of a pack: BLAKE3-256 of its footer, which holds a checksum of every payload.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct PackId(Id);

impl PackId {
    /// The pack of this name.
    pub fn from_bytes(name: [u8; 32]) -> PackId {
        PackId(Id::from_bytes(name))
    }

    /// Its name.
    pub fn as_bytes(&self) -> &[u8; 32] {
        self.0.as_bytes()
    }

    /// The storage key of this pack.
    pub fn key(&self) -> Key {
        PACK_DIR.hashed(&self.0, ".pack")
    }

    /// The pack with this storage key, if it is one.
    pub fn from_key(key: &str) -> Option<PackId> {
        key.strip_prefix(PACK_DIR.as_str())?.strip_suffix(".pack")?.parse().ok()
    }
}

impl FromStr for PackId {
    type Err = ParseIdError;

    fn from_str(name: &str) -> Result<PackId, ParseIdError> {
        name.parse().map(PackId)
    }
}

impl fmt::Display for PackId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

/// Where and how one object is stored in a pack.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Record {
    /// The object.
    pub id: Id,
    /// The object's kind.
    pub kind: Kind,
    /// More than those of base and grandparent, 0 where there is no base: the tensor's place since a version that is
    /// stored whole, as skip deltas count it, or the number of deltas to follow.
    pub depth: u8,
    /// The delta base of this payload; present exactly where `depth` is not 0.
    pub base: Option<Id>,
    /// The base's own base at the time (the grandparent), where this payload needs it too; only with a base.
    pub grandparent: Option<Id>,
    /// Offset of the payload in the pack.
    pub offset: u64,
    /// Length of the payload.
    pub len: u64,
    /// Length of the decoded object in bytes.
    pub logical: u64,
    /// First 16 bytes of the payload's BLAKE3.
    pub check: [u8; 16],
}

impl Record {
    /// The delta bases of this payload.
    pub fn bases(&self) -> impl Iterator<Item = Id> + use<> {
        self.base.into_iter().chain(self.grandparent)
    }
}

pub(crate) fn checksum(payload: &[u8]) -> [u8; 16] {
    shorten(&blake3::hash(payload))
}

/// The 16 bytes of a hash that records keep.
pub(crate) fn shorten(hash: &blake3::Hash) -> [u8; 16] {
    let mut out = [0; 16];
    out.copy_from_slice(&hash.as_bytes()[..16]);
    out
}

/// Records, in ascending order of their ids, as they are sent: a footer.
pub fn encode_records(records: &[Record]) -> Vec<u8> {
    let mut out = Vec::with_capacity(8 + records.len() * (RECORD_MIN + 32));
    out.extend_from_slice(&(records.len() as u64).to_le_bytes());
    for r in records {
        out.extend_from_slice(r.id.as_bytes());
        out.push(r.kind.code() | if r.grandparent.is_some() { GRAND } else { 0 });
        out.push(r.depth);
        out.extend_from_slice(&r.offset.to_le_bytes());
        out.extend_from_slice(&r.len.to_le_bytes());
        out.extend_from_slice(&r.logical.to_le_bytes());
        out.extend_from_slice(&r.check);
        r.bases().for_each(|id| out.extend_from_slice(id.as_bytes()));
    }
    out
}

/// Records that were sent; none if they make no sense.
pub fn decode_records(bytes: &[u8]) -> Option<Vec<Record>> {
    decode_footer(bytes, WITH_GRAND, u64::MAX)
}

/// Parses the footer of a pack of this version; `payload_end` is where the payloads end in the file.
pub(super) fn decode_footer(bytes: &[u8], version: u64, payload_end: u64) -> Option<Vec<Record>> {
    let mut r = Reader::new(bytes);
    let n = usize::try_from(r.u64().ok()?).ok()?;
    if n > bytes.len() / RECORD_MIN {
        return None;
    }
    let mut records: Vec<Record> = Vec::with_capacity(n);
    for _ in 0..n {
        let record = decode_record(&mut r, version)?;
        let inside = record.offset >= MAGIC.len() as u64
            && record.offset.checked_add(record.len).is_some_and(|end| end <= payload_end);
        if !inside || records.last().is_some_and(|last| last.id >= record.id) {
            return None;
        }
        records.push(record);
    }
    r.finish().is_ok().then_some(records)
}

fn decode_record(r: &mut Reader<'_>, version: u64) -> Option<Record> {
    let id = r.id().ok()?;
    let [kind, depth] = r.array().ok()?;
    let has_grand = version == WITH_GRAND && kind & GRAND != 0;
    let kind = Kind::from_code(if has_grand { kind & !GRAND } else { kind })?;
    let (offset, len, logical, check) = (r.u64().ok()?, r.u64().ok()?, r.u64().ok()?, r.array().ok()?);
    let base = if depth > 0 { Some(r.id().ok()?) } else { None };
    let grandparent = if has_grand { Some(r.id().ok()?) } else { None };
    let fits = (base.is_none() || kind == Kind::Tensor) && (grandparent.is_none() || base.is_some());
    fits.then_some(Record { id, kind, depth, base, grandparent, offset, len, logical, check })
}

/// Name, footer and trailer of a pack with these records, in ascending order of their ids, whose payloads end there.
pub fn encode_tail(records: &[Record], payload_end: u64) -> (PackId, Vec<u8>) {
    let mut tail = encode_records(records);
    let (id, footer_len) = (PackId::from_bytes(*blake3::hash(&tail).as_bytes()), tail.len() as u64);
    // The oldest version that can hold these records.
    let version = if records.iter().any(|r| r.grandparent.is_some()) { WITH_GRAND } else { PLAIN };
    tail.extend_from_slice(&payload_end.to_le_bytes());
    tail.extend_from_slice(&footer_len.to_le_bytes());
    tail.extend_from_slice(id.as_bytes());
    tail.extend_from_slice(&version.to_le_bytes());
    tail.extend_from_slice(&MAGIC);
    (id, tail)
}

/// Version, footer's offset and length, after checking the trailer of pack `id` in a file of `size` bytes.
pub(super) fn decode_trailer(id: &PackId, size: u64, trailer: &[u8]) -> Result<(u64, u64, usize)> {
    let bad = |why: &str| RepoError::corrupt(format!("pack {id}"), why);
    let parse = |mut r: Reader<'_>| Ok((r.u64()?, r.u64()?, r.array()?, r.u64()?, r.array()?));
    let (offset, len, hash, version, magic) = parse(Reader::new(trailer)).map_err(|_: ObjectError| bad("truncated"))?;
    if magic != MAGIC {
        return Err(bad("no pack trailer at its end"));
    }
    if version != PLAIN && version != WITH_GRAND {
        return Err(bad(&format!("pack version {version} is not one this program reads")));
    }
    if hash != *id.as_bytes() {
        return Err(bad("its name is not the hash of its footer"));
    }
    let end = offset.checked_add(len).and_then(|n| n.checked_add(TRAILER_LEN as u64));
    match usize::try_from(len) {
        Ok(n) if end == Some(size) => Ok((version, offset, n)),
        _ => Err(bad("footer and file size disagree")),
    }
}
