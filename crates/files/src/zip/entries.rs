//! Walks a zip directory and checks every entry against its local header.

use super::{Entry, end::End};
use crate::{
    bytes::{Trouble, bad, take, u16_at, u32_at, u64_at},
    check::short,
    layout::ReadAt,
};
use std::collections::HashSet;

const CENTRAL: usize = 46;
const CENTRAL_MAGIC: &[u8] = b"PK\x01\x02";
const LOCAL: usize = 30;
const LOCAL_MAGIC: &[u8] = b"PK\x03\x04";
const ZIP64_FIELD: u16 = 1;
const FULL: u64 = 0xffff_ffff;
const STORED: u16 = 0;
const ENCRYPTED: u16 = 1;
/// The sizes follow the payload; the local header does not know them.
pub(super) const STREAMED: u16 = 1 << 3;

pub(super) struct Record<'a> {
    name: &'a [u8],
    pub(super) flags: u16,
    method: u16,
    packed: u64,
    unpacked: u64,
    /// Offset of the local header, in the archive's coordinates.
    local: u64,
}

/// Reads all entries, sorted by offset.
pub(crate) fn read(src: &dyn ReadAt, end: &End) -> Result<Vec<Entry>, Trouble> {
    let directory = directory(src, end)?;
    let mut names = HashSet::new();
    let mut placed = Vec::new();
    for record in records(&directory) {
        let (_, record) = record?;
        if !names.insert(record.name) {
            return bad(format!("two entries are named {:?}", lossy(record.name)));
        }
        placed.push(place(src, &record, end)?);
    }
    // The small record counts modulo 2^16 in archives written without zip64.
    if placed.len() as u64 & 0xffff != end.count & 0xffff {
        return bad(format!("the directory lists {} entries, its end says {}", placed.len(), end.count));
    }
    disjoint(placed)
}

/// The name in the local header that begins the file, for files without a directory.
pub(crate) fn first_name(src: &dyn ReadAt) -> Result<String, Trouble> {
    let header = take(src, 0, LOCAL as u64)?.unwrap_or_default();
    let len = u64::from(u16_at(&header, 26).unwrap_or(0));
    let name = take(src, LOCAL as u64, len)?.unwrap_or_default();
    Ok(lossy(&name))
}

fn lossy(name: &[u8]) -> String {
    short(&String::from_utf8_lossy(name))
}

pub(super) fn directory(src: &dyn ReadAt, end: &End) -> Result<Vec<u8>, Trouble> {
    take(src, end.at, end.len)?.ok_or_else(|| Trouble::Bad("the archive's directory leaves the file".into()))
}

/// The records of a directory, and where in it they are.
pub(super) fn records(directory: &[u8]) -> impl Iterator<Item = Result<(usize, Record<'_>), Trouble>> {
    let mut at = 0;
    std::iter::from_fn(move || {
        let rest = directory.get(at..).filter(|rest| !rest.is_empty())?;
        let Some((record, len)) = record(rest) else {
            at = directory.len();
            return Some(bad("the archive's directory is broken"));
        };
        at += len;
        Some(Ok((at - len, record)))
    })
}

/// The record at the start of `bytes`, and its length.
fn record(bytes: &[u8]) -> Option<(Record<'_>, usize)> {
    if !bytes.starts_with(CENTRAL_MAGIC) {
        return None;
    }
    let field = |at| u16_at(bytes, at).map(usize::from);
    let name_end = CENTRAL + field(28)?;
    let extra_end = name_end + field(30)?;
    let len = extra_end + field(32)?;
    bytes.get(..len)?;
    let mut record = Record {
        flags: u16_at(bytes, 8)?,
        method: u16_at(bytes, 10)?,
        packed: u32_at(bytes, 20)?.into(),
        unpacked: u32_at(bytes, 24)?.into(),
        local: u32_at(bytes, 42)?.into(),
        name: bytes.get(CENTRAL..name_end)?,
    };
    widen(&mut record, bytes.get(name_end..extra_end)?)?;
    Some((record, len))
}

/// Replaces the fields that are filled up by those of the zip64 extra field.
fn widen(record: &mut Record<'_>, mut extra: &[u8]) -> Option<()> {
    let full = [&mut record.unpacked, &mut record.packed, &mut record.local].into_iter();
    let mut full = full.filter(|field| **field == FULL).peekable();
    while full.peek().is_some() {
        // Without a zip64 field the value is meant as it stands; the bounds are checked later.
        let (Some(id), Some(len)) = (u16_at(extra, 0), u16_at(extra, 2)) else {
            return Some(());
        };
        let body = extra.get(4..4 + usize::from(len))?;
        if id == ZIP64_FIELD {
            for (i, field) in full.enumerate() {
                *field = u64_at(body, 8 * i)?;
            }
            return Some(());
        }
        extra = extra.get(4 + usize::from(len)..)?;
    }
    Some(())
}

/// An entry and where its local header begins.
pub(super) type Placed = (u64, Entry);

/// Finds the payload behind the local header, and checks that the header belongs to the record.
pub(super) fn place(src: &dyn ReadAt, record: &Record<'_>, end: &End) -> Result<Placed, Trouble> {
    let wrong = |what: &str| bad(format!("entry {:?}: {what}", lossy(record.name)));
    let Some(at) = record.local.checked_add(end.shift) else {
        return wrong("its offset overflows");
    };
    let want = LOCAL + record.name.len();
    let header = take(src, at, want as u64)?.unwrap_or_default();
    if !header.starts_with(LOCAL_MAGIC) || header.get(LOCAL..) != Some(record.name) {
        return wrong("its local header is missing or names another entry");
    }
    if !agrees(&header, record) {
        return wrong("its local header contradicts the directory");
    }
    let behind = |at| u16_at(&header, at).map_or(0, u64::from);
    let payload = at + (LOCAL as u64) + behind(26) + behind(28);
    if payload.checked_add(record.packed).is_none_or(|stop| stop > end.at) {
        return wrong("its payload leaves the archive");
    }
    let stored = record.method == STORED && record.flags & ENCRYPTED == 0;
    if stored && record.packed != record.unpacked {
        return wrong("it is stored, yet has two sizes");
    }
    let name = String::from_utf8_lossy(record.name).into_owned();
    let entry = Entry { name, stored, payload, len: record.packed };
    Ok((at, entry))
}

fn agrees(header: &[u8], record: &Record<'_>) -> bool {
    let (Some(flags), Some(method)) = (u16_at(header, 6), u16_at(header, 8)) else {
        return false;
    };
    let size = |at, want: u64| {
        let found = u32_at(header, at).map(u64::from);
        flags & STREAMED != 0 || found == Some(want) || found == Some(FULL)
    };
    let names = u16_at(header, 26).map(usize::from) == Some(record.name.len());
    names
        && method == record.method
        && (flags ^ record.flags) & ENCRYPTED == 0
        && size(18, record.packed)
        && size(22, record.unpacked)
}

/// Sorts by offset and refuses entries that share bytes.
fn disjoint(mut placed: Vec<Placed>) -> Result<Vec<Entry>, Trouble> {
    placed.sort_by_key(|(at, _)| *at);
    let mut free_from = 0;
    for (at, entry) in &placed {
        if *at < free_from {
            return bad(format!("entry {:?} overlaps the one before it", short(&entry.name)));
        }
        free_from = entry.payload + entry.len;
    }
    Ok(placed.into_iter().map(|(_, entry)| entry).collect())
}
