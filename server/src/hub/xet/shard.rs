//! Reads the file section of a shard: which chunks of which xorbs each file is made of, and its SHA-256.

use super::wrong;
use crate::problem::Result;
use std::{
    io::{ErrorKind, Read},
    ops::Range,
};

/// Every record of a shard has this length.
const RECORD: usize = 48;
const MAGIC: [u8; 32] = *b"HFRepoMetaData\0UigEj{\x81W\x83\xa5\xbd\xd9\\\xcd\xd1J\xa9";
const VERSION: u64 = 2;
/// Ends the section.
const END: [u8; 32] = [0xff; 32];
/// Each segment has a record for a check of its chunks, which the SHA-256 makes superfluous here.
const HAS_VERIFICATION: u32 = 1 << 31;
/// The last record has the SHA-256.
const HAS_SHA256: u32 = 1 << 30;

/// Consecutive chunks of a xorb.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Segment {
    /// The xorb's hash, in the order of its hex digits.
    pub(super) xorb: [u8; 32],
    pub(super) chunks: Range<u32>,
    /// Their bytes.
    pub(super) bytes: u64,
}

/// What a file is made of.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct FileInfo {
    pub(super) sha256: [u8; 32],
    pub(super) segments: Vec<Segment>,
}

impl FileInfo {
    /// Length in bytes.
    pub(super) fn size(&self) -> u64 {
        self.segments.iter().fold(0, |sum: u64, s| sum.saturating_add(s.bytes))
    }

    /// Chunks that are read for it.
    pub(super) fn chunks(&self) -> u64 {
        self.segments.iter().fold(0, |sum: u64, s| sum.saturating_add(s.chunks.len() as u64))
    }
}

/// The files of a shard, one after the other.
pub(super) fn files(mut shard: impl Read) -> Result<impl Iterator<Item = Result<FileInfo>>> {
    let (magic, version, _) = split(&record(&mut shard)?);
    if magic != MAGIC || version != VERSION {
        return Err(wrong(&format!("no shard of version {VERSION}")));
    }
    let mut ended = false;
    Ok(std::iter::from_fn(move || {
        if ended {
            return None;
        }
        let next = file(&mut shard).transpose();
        ended = !matches!(next, Some(Ok(_)));
        next
    }))
}

fn file(shard: &mut impl Read) -> Result<Option<FileInfo>> {
    let (hash, head, _) = split(&record(shard)?);
    if hash == END {
        return Ok(None);
    }
    let [flags, count] = halves(head);
    let mut segments = Vec::new();
    // The count is not believed: memory grows with what is there.
    for _ in 0..count {
        let (xorb, a, b) = split(&record(shard)?);
        let ([_, bytes], [start, end]) = (halves(a), halves(b));
        if start >= end || bytes == 0 {
            return Err(wrong("a file has a part without bytes"));
        }
        segments.push(Segment { xorb: turned(xorb), chunks: start..end, bytes: u64::from(bytes) });
    }
    if flags & HAS_VERIFICATION != 0 {
        for _ in 0..count {
            record(shard)?;
        }
    }
    if flags & HAS_SHA256 == 0 {
        return Err(wrong("the shard does not say the SHA-256 of a file"));
    }
    let (sha256, _, _) = split(&record(shard)?);
    Ok(Some(FileInfo { sha256: turned(sha256), segments }))
}

fn record(shard: &mut impl Read) -> Result<[u8; RECORD]> {
    let mut out = [0; RECORD];
    match shard.read_exact(&mut out) {
        Ok(()) => Ok(out),
        Err(e) if e.kind() == ErrorKind::UnexpectedEof => Err(wrong("the shard is cut off")),
        Err(e) => Err(crate::problem::storage_failed(e)),
    }
}

/// A hash and two numbers.
fn split(record: &[u8; RECORD]) -> ([u8; 32], u64, u64) {
    let (mut hash, mut a, mut b) = ([0; 32], [0; 8], [0; 8]);
    hash.copy_from_slice(&record[..32]);
    a.copy_from_slice(&record[32..40]);
    b.copy_from_slice(&record[40..]);
    (hash, u64::from_le_bytes(a), u64::from_le_bytes(b))
}

/// Two numbers of 32 bits that lie one after the other.
fn halves(word: u64) -> [u32; 2] {
    [(word & u64::from(u32::MAX)) as u32, (word >> 32) as u32]
}

/// A hash is stored as four words of 64 bits, little endian, and read as their hex digits.
fn turned(mut hash: [u8; 32]) -> [u8; 32] {
    hash.chunks_exact_mut(8).for_each(<[u8]>::reverse);
    hash
}
