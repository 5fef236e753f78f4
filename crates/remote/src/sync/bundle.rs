//! A bundle: a pack still to be written, described by the objects it will hold and where their bytes are now.
//!
//! The same objects make the same bundle, byte for byte, on both sides and every time, so that a transfer that was cut
//! off can be resumed.

use crate::sync::missing::Needed;
use mdl_store::pack::{MAGIC, PackId, Record, encode_tail};
use std::ops::Range;

/// Where the bytes of a piece of a bundle are.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Piece {
    /// In memory here.
    Bytes(Vec<u8>),
    /// In a pack of the side that offers.
    Stored {
        /// The pack.
        pack: PackId,
        /// Where in it.
        offset: u64,
        /// How many bytes.
        len: u64,
    },
}

impl Piece {
    /// Its length.
    pub fn byte_len(&self) -> u64 {
        match self {
            Piece::Bytes(bytes) => bytes.len() as u64,
            Piece::Stored { len, .. } => *len,
        }
    }
}

/// A pack still to be written.
#[derive(Clone, Debug)]
pub struct Bundle {
    /// Its name.
    pub id: PackId,
    /// Its length in bytes.
    pub size: u64,
    /// Objects, in the order of their payloads.
    pub records: Vec<Record>,
    sources: Vec<Source>,
    tail: Vec<u8>,
    tail_at: u64,
}

/// A run of payloads that lie side by side.
#[derive(Clone, Debug)]
struct Source {
    at: u64,
    pack: PackId,
    offset: u64,
    len: u64,
}

/// A pack that gives at least this many bytes of one depth makes a bundle by itself: it stays the same whatever else
/// comes to be needed, so that parts of it which have arrived can still be used.
const OF_ITS_OWN: u64 = 8 << 20;

impl Needed {
    /// Bundles of about `limit` bytes of payload at most; one object is never cut. A tensor's bases are in the same
    /// bundle or in one before: stored one after the other, no kill in between leaves a tensor without its base.
    pub fn bundles(&self, limit: u64) -> Vec<Bundle> {
        let mut records = self.records.clone();
        // Depth falls strictly from a delta to what it stands on.
        records.sort_by_key(|(pack, r)| (r.depth, *pack, r.offset));
        let (mut out, mut pool) = (Vec::new(), Vec::new());
        for of_one_depth in records.chunk_by(|a, b| a.1.depth == b.1.depth) {
            let by_pack = || of_one_depth.chunk_by(|a, b| a.0 == b.0);
            let is_large = |g: &&[(PackId, Record)]| g.iter().map(|(_, r)| r.len).sum::<u64>() >= OF_ITS_OWN;
            if by_pack().any(|g| is_large(&g)) {
                out.extend(split(&pool, limit));
                pool.clear();
            }
            out.extend(by_pack().filter(is_large).flat_map(|g| split(g, limit)));
            by_pack().filter(|g| !is_large(g)).for_each(|g| pool.extend_from_slice(g));
        }
        out.extend(split(&pool, limit));
        out
    }
}

fn split(objects: &[(PackId, Record)], limit: u64) -> Vec<Bundle> {
    groups(objects, limit, |(_, r)| r.len).into_iter().map(Bundle::from_objects).collect()
}

/// Cuts items, in their order, into groups of at most `most` bytes, or of one that is larger.
pub(crate) fn groups<T>(mut items: &[T], most: u64, size: impl Fn(&T) -> u64) -> Vec<&[T]> {
    let mut groups = Vec::new();
    while !items.is_empty() {
        let mut bytes: u64 = 0;
        let fits = items.iter().take_while(|item| {
            bytes = bytes.saturating_add(size(item));
            bytes <= most
        });
        let (group, rest) = items.split_at(fits.count().max(1));
        groups.push(group);
        items = rest;
    }
    groups
}

impl Bundle {
    /// Of objects in the order of where they lie.
    fn from_objects(objects: &[(PackId, Record)]) -> Bundle {
        let mut at = MAGIC.len() as u64;
        let mut sources: Vec<Source> = Vec::new();
        let mut records = Vec::with_capacity(objects.len());
        for (pack, r) in objects {
            match sources.last_mut() {
                Some(s) if s.pack == *pack && s.offset + s.len == r.offset => s.len += r.len,
                _ => sources.push(Source { at, pack: *pack, offset: r.offset, len: r.len }),
            }
            records.push(Record { offset: at, ..r.clone() });
            at = at.saturating_add(r.len);
        }
        let mut sorted = records.clone();
        sorted.sort_by_key(|r| r.id);
        let (id, tail) = encode_tail(&sorted, at);
        Bundle { id, size: at.saturating_add(tail.len() as u64), records, sources, tail, tail_at: at }
    }

    /// Bytes of payload.
    pub fn payload_bytes(&self) -> u64 {
        self.tail_at - MAGIC.len() as u64
    }

    /// What a part of it is made of, in order. A range beyond its end is cut there.
    pub fn pieces(&self, part: Range<u64>) -> Vec<Piece> {
        let part = part.start..part.end.min(self.size);
        let mut out = Vec::new();
        let bytes = |at: u64, bytes: &[u8]| {
            let cut = cut(&part, at, bytes.len() as u64);
            cut.map(|r| Piece::Bytes(bytes[r.start as usize..r.end as usize].to_vec()))
        };
        out.extend(bytes(0, &MAGIC));
        let first = self.sources.partition_point(|s| s.at + s.len <= part.start);
        for s in self.sources[first..].iter().take_while(|s| s.at < part.end) {
            out.extend(cut(&part, s.at, s.len).map(|r| Piece::Stored {
                pack: s.pack,
                offset: s.offset + r.start,
                len: r.end - r.start,
            }));
        }
        out.extend(bytes(self.tail_at, &self.tail));
        out
    }
}

/// The part of something at `at`, of this length, that lies in a range; from its own start.
fn cut(part: &Range<u64>, at: u64, len: u64) -> Option<Range<u64>> {
    let (start, end) = (part.start.max(at), part.end.min(at + len));
    (start < end).then(|| start - at..end - at)
}
