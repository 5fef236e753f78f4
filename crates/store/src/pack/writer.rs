//! Writes a pack: payloads stream out, the footer follows, the name is known last.

use crate::{
    Result,
    pack::{
        format,
        format::{MAGIC, PackId, Record, encode_tail},
    },
    storage::{Storage, Upload},
};
use mdl_objects::{Id, Kind};
use std::collections::BTreeMap;

/// What is known of an object before its payload is placed.
#[derive(Clone, Debug)]
pub struct NewObject {
    /// The object.
    pub id: Id,
    /// What it is.
    pub kind: Kind,
    /// As in [`Record::depth`].
    pub depth: u8,
    /// As in [`Record::base`].
    pub base: Option<Id>,
    /// As in [`Record::grandparent`].
    pub grandparent: Option<Id>,
    /// Length of the decoded object in bytes.
    pub logical: u64,
}

/// A pack being written, within a transaction as a rule. Dropped before it is published, it leaves nothing.
pub struct PackWriter {
    upload: Box<dyn Upload>,
    /// Where the payload being appended starts.
    start: u64,
    at: u64,
    hasher: blake3::Hasher,
    records: BTreeMap<Id, Record>,
}

impl std::fmt::Debug for PackWriter {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("PackWriter").field("at", &self.at).field("objects", &self.records.len()).finish()
    }
}

impl PackWriter {
    /// Starts a pack.
    pub(crate) fn new(storage: &dyn Storage) -> Result<PackWriter> {
        let mut upload = storage.upload()?;
        upload.write(&MAGIC)?;
        let at = MAGIC.len() as u64;
        Ok(PackWriter { upload, start: at, at, hasher: blake3::Hasher::new(), records: BTreeMap::new() })
    }

    /// Appends bytes of the payload that the next `place` names.
    pub fn append(&mut self, bytes: &[u8]) -> Result<()> {
        self.hasher.update(bytes);
        self.at += bytes.len() as u64;
        self.upload.write(bytes)
    }

    /// Names the payload appended since the last `place`. If the pack has the object already the bytes are unused.
    pub fn place(&mut self, object: NewObject) {
        let NewObject { id, kind, depth, base, grandparent, logical } = object;
        let check = format::shorten(&self.hasher.finalize());
        let record = Record {
            id,
            kind,
            depth,
            base,
            grandparent,
            offset: self.start,
            len: self.at - self.start,
            logical,
            check,
        };
        self.records.entry(id).or_insert(record);
        self.hasher.reset();
        self.start = self.at;
    }

    /// Gives up the payload appended since the last `place`; its bytes stay in the pack, unused.
    pub fn discard(&mut self) {
        self.hasher.reset();
        self.start = self.at;
    }

    /// Adds an object with its whole payload, unless the pack has it.
    pub fn add(&mut self, object: NewObject, payload: &[u8]) -> Result<()> {
        if !self.records.contains_key(&object.id) {
            self.append(payload)?;
            self.place(object);
        }
        Ok(())
    }

    /// The record of an object added before.
    pub fn get(&self, id: &Id) -> Option<&Record> {
        self.records.get(id)
    }

    /// Payload bytes so far.
    pub fn payload_bytes(&self) -> u64 {
        self.at - MAGIC.len() as u64
    }

    /// Objects so far.
    pub fn len(&self) -> usize {
        self.records.len()
    }

    /// Whether nothing has been added.
    pub fn is_empty(&self) -> bool {
        self.records.is_empty()
    }

    /// Writes footer and trailer and makes the pack durable and, unless `check` refuses its name, visible. After an I/O
    /// error there is no pack, or a whole one.
    pub(crate) fn finish(mut self, check: impl FnOnce(PackId) -> Result<()>) -> Result<PackId> {
        let records: Vec<Record> = self.records.into_values().collect();
        let (id, tail) = encode_tail(&records, self.at);
        self.upload.write(&tail)?;
        check(id)?;
        self.upload.finish(&id.key())?;
        Ok(id)
    }
}
