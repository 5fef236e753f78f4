//! Finds where a zip archive's directory is, by the records at the archive's end.

use super::MAX_DIRECTORY;
use crate::{
    bytes::{Trouble, bad, take, u16_at, u32_at, u64_at},
    layout::ReadAt,
};

/// Where the directory is, in the coordinates of the file.
pub(crate) struct End {
    /// Offset of the directory's first byte.
    pub(crate) at: u64,
    pub(crate) len: u64,
    pub(crate) count: u64,
    /// What must be added to the archive's own offsets: the length of what was put before the archive.
    pub(crate) shift: u64,
}

const RECORD: usize = 22;
const RECORD_MAGIC: &[u8] = b"PK\x05\x06";
const LOCATOR: u64 = 20;
const LOCATOR_MAGIC: &[u8] = b"PK\x06\x07";
const RECORD64: u64 = 56;
const RECORD64_MAGIC: &[u8] = b"PK\x06\x06";
const ENTRY_MAGIC: &[u8] = b"PK\x01\x02";
const MAX_COMMENT: u64 = 0xffff;

/// What an end record claims, in the archive's own coordinates.
#[derive(Clone, Copy)]
struct Claim {
    offset: u64,
    len: u64,
    count: u64,
    /// Where in the file the record itself is: the directory ends there.
    record_at: u64,
}

pub(crate) fn find(src: &dyn ReadAt) -> Result<End, Trouble> {
    let tail_len = src.size().min(MAX_COMMENT + RECORD as u64);
    let tail_at = src.size() - tail_len;
    let tail = take(src, tail_at, tail_len)?.unwrap_or_default();
    let Some(at) = find_record(&tail) else {
        return bad("the archive has no directory at its end: it looks incompletely written");
    };
    let record_at = tail_at + at as u64;
    let record = tail.get(at..).unwrap_or_default();
    let Some(small) = small_claim(record, record_at) else {
        return bad("the archive's end record is cut short");
    };
    let claim = match large_claim(src, record_at)? {
        Some(large) => merge(small, large),
        None => small,
    };
    place(src, claim)
}

/// The last end record whose comment reaches the end of the file; failing that, the last one whose comment fits.
fn find_record(tail: &[u8]) -> Option<usize> {
    let candidates = || {
        let last = tail.len().checked_sub(RECORD)?;
        let is_record = |&at: &usize| tail.get(at..).is_some_and(|r| r.starts_with(RECORD_MAGIC));
        Some((0..=last).rev().filter(is_record))
    };
    let room = |at: usize| tail.len() - RECORD - at;
    let comment = |at: usize| u16_at(tail, at + 20).map(usize::from);
    let exact = candidates()?.find(|&at| comment(at) == Some(room(at)));
    exact.or_else(|| candidates()?.find(|&at| comment(at).is_some_and(|c| c <= room(at))))
}

fn small_claim(record: &[u8], record_at: u64) -> Option<Claim> {
    Some(Claim {
        count: u16_at(record, 10)?.into(),
        len: u32_at(record, 12)?.into(),
        offset: u32_at(record, 16)?.into(),
        record_at,
    })
}

/// What the zip64 record says, where a locator stands right before the end record and there is such a record.
fn large_claim(src: &dyn ReadAt, record_at: u64) -> Result<Option<Claim>, Trouble> {
    let Some(locator_at) = record_at.checked_sub(LOCATOR) else {
        return Ok(None);
    };
    let locator = take(src, locator_at, LOCATOR)?.unwrap_or_default();
    if !locator.starts_with(LOCATOR_MAGIC) {
        return Ok(None);
    }
    // The offset in the locator is the archive's; where something was put before the archive, the record still ends
    // where the locator begins.
    for at in [u64_at(&locator, 8), locator_at.checked_sub(RECORD64)].into_iter().flatten() {
        let record = take(src, at, RECORD64)?.unwrap_or_default();
        if record.starts_with(RECORD64_MAGIC) && at < locator_at {
            return Ok(claim64(&record, at));
        }
    }
    bad("the archive's zip64 end record is missing")
}

fn claim64(record: &[u8], record_at: u64) -> Option<Claim> {
    Some(Claim { count: u64_at(record, 32)?, len: u64_at(record, 40)?, offset: u64_at(record, 48)?, record_at })
}

/// The small record counts where its fields are not filled up.
fn merge(small: Claim, large: Claim) -> Claim {
    let pick = |s: u64, full: u64, l: u64| if s == full { l } else { s };
    Claim {
        count: pick(small.count, 0xffff, large.count),
        len: pick(small.len, 0xffff_ffff, large.len),
        offset: pick(small.offset, 0xffff_ffff, large.offset),
        record_at: large.record_at,
    }
}

/// Turns a claim into a place in the file, or says why it cannot be one.
fn place(src: &dyn ReadAt, claim: Claim) -> Result<End, Trouble> {
    let end = claim.offset.checked_add(claim.len);
    let Some(gap) = end.and_then(|end| claim.record_at.checked_sub(end)) else {
        return bad("the archive's directory leaves the file");
    };
    if claim.len > MAX_DIRECTORY {
        return bad("the archive's directory is longer than any real one");
    }
    let begins = |at: u64| -> Result<bool, Trouble> {
        let first = take(src, at, claim.len.min(4))?.unwrap_or_default();
        Ok(first.is_empty() || first.starts_with(ENTRY_MAGIC))
    };
    let shift = match gap {
        _ if begins(claim.offset)? => 0,
        gap if begins(claim.offset + gap)? => gap,
        _ => return bad("the archive's directory is not where its end record says"),
    };
    Ok(End { at: claim.offset + shift, len: claim.len, count: claim.count, shift })
}
