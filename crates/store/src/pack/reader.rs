//! Opens packs: checks trailer and footer, finds records, reads payloads.

use crate::{
    Missing, RepoError, Result,
    pack::{
        CHUNK,
        format::{MAGIC, PackId, Record, TRAILER_LEN, checksum, decode_footer, decode_trailer, shorten},
    },
    storage::Storage,
};
use mdl_objects::Id;

/// A pack whose footer is in memory.
#[derive(Debug)]
pub struct Pack {
    /// Its name.
    pub id: PackId,
    /// Its length in bytes.
    pub size: u64,
    records: Vec<Record>,
    payload_end: u64,
}

impl Pack {
    /// Reads and verifies the footer.
    pub fn open(storage: &dyn Storage, id: PackId) -> Result<Pack> {
        let key = id.key();
        let size = storage.size(&key)?.ok_or_else(|| RepoError::not_found(Missing::Pack, id))?;
        let bad = |why: &str| RepoError::corrupt(format!("pack {id}"), why);
        let at = size.checked_sub(TRAILER_LEN as u64).ok_or_else(|| bad("truncated"))?;
        let mut trailer = [0; TRAILER_LEN];
        storage.read_at(&key, at, &mut trailer)?;
        let (version, offset, len) = decode_trailer(&id, size, &trailer)?;
        let mut footer = vec![0; len];
        storage.read_at(&key, offset, &mut footer)?;
        if blake3::hash(&footer).as_bytes() != id.as_bytes() {
            return Err(bad("its footer is not what was written"));
        }
        let records = decode_footer(&footer, version, offset).ok_or_else(|| bad("its footer makes no sense"))?;
        Ok(Pack { id, size, records, payload_end: offset })
    }

    /// Whether it begins as a pack does, which opening it does not read.
    pub fn has_magic(&self, storage: &dyn Storage) -> Result<bool> {
        let mut first = [0; MAGIC.len()];
        storage.read_at(&self.id.key(), 0, &mut first)?;
        Ok(first == MAGIC)
    }

    /// Whether payloads share bytes. No writer makes such a pack: from a small one, objects without end could be
    /// checked, and copied one by one.
    pub fn has_overlaps(&self) -> bool {
        let mut ranges: Vec<(u64, u64)> = self.records.iter().map(|r| (r.offset, r.offset + r.len)).collect();
        ranges.sort_unstable();
        ranges.windows(2).any(|pair| pair[0].1 > pair[1].0)
    }

    /// Every record, sorted by id.
    pub fn records(&self) -> &[Record] {
        &self.records
    }

    /// Where its payloads end.
    pub fn payload_end(&self) -> u64 {
        self.payload_end
    }

    /// The record of an object.
    pub fn get(&self, id: &Id) -> Option<&Record> {
        self.records.binary_search_by(|r| r.id.cmp(id)).ok().map(|i| &self.records[i])
    }

    /// A whole payload, its checksum verified. The caller bounds `record.len` where memory matters.
    pub fn payload(&self, storage: &dyn Storage, record: &Record) -> Result<Vec<u8>> {
        let len = usize::try_from(record.len).map_err(|_| RepoError::corrupt(record.id, "too large"))?;
        let mut bytes = vec![0; len];
        storage.read_at(&self.id.key(), record.offset, &mut bytes)?;
        if checksum(&bytes) != record.check {
            return Err(RepoError::corrupt(format!("{} {}", record.kind, record.id.short()), "stored bytes changed"));
        }
        Ok(bytes)
    }

    /// Whether a payload is what was written. It is read piece by piece; `read` is told of the length of each.
    pub fn is_intact(&self, storage: &dyn Storage, record: &Record, read: impl Fn(u64)) -> Result<bool> {
        let mut hasher = blake3::Hasher::new();
        self.stream_payload(storage, record, |bytes| {
            hasher.update(bytes);
            read(bytes.len() as u64);
            Ok(())
        })?;
        Ok(shorten(&hasher.finalize()) == record.check)
    }

    /// Passes a payload, not verified, to `sink` piece by piece.
    pub(crate) fn stream_payload(
        &self,
        storage: &dyn Storage,
        record: &Record,
        mut sink: impl FnMut(&[u8]) -> Result<()>,
    ) -> Result<()> {
        let mut buffer = vec![0; record.len.min(CHUNK) as usize];
        for at in (0..record.len).step_by(CHUNK as usize) {
            let piece = &mut buffer[..(record.len - at).min(CHUNK) as usize];
            self.payload_range(storage, record, at, piece)?;
            sink(piece)?;
        }
        Ok(())
    }

    /// Part of a payload, not verified.
    pub fn payload_range(&self, storage: &dyn Storage, record: &Record, offset: u64, buf: &mut [u8]) -> Result<()> {
        if offset.checked_add(buf.len() as u64).is_none_or(|end| end > record.len) {
            return Err(RepoError::corrupt(record.id, "its payload is shorter than its header says"));
        }
        storage.read_at(&self.id.key(), record.offset + offset, buf)
    }
}
