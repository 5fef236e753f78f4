//! The list of doomed packs, which makes many deletions one step.
//!
//! In a storage with locks the list exists only while packs are being deleted: everything that is kept is in other
//! packs before it is written, and a writer first finishes the deletion. In one without it stays, and a pack first
//! *waits* on it for a time of grace, then *goes*. A pack that goes may be there or not, and may have lost what it
//! refers to: nothing is built on it.

use crate::{
    RepoError, Result,
    pack::PackId,
    storage::{Key, Storage, Swap},
};
use std::{
    collections::{BTreeMap, BTreeSet},
    fmt::Write,
};

pub(crate) const KEY: Key = Key::fixed("condemned");
const HEADER: &str = "mdl condemned 2";

/// A pack's entry on the list.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DoomedPack {
    /// Whether its deletion was decided; else it waits for its grace to be over.
    pub going: bool,
    /// Which change of the list doomed it.
    pub change: u64,
    /// When it was doomed or, of one that goes, when its deletion was last taken up: milliseconds since 1970.
    pub at_ms: i64,
    /// The grace in force then.
    pub grace_ms: i64,
}

impl DoomedPack {
    /// When its grace is over.
    pub fn over_ms(&self) -> i64 {
        self.at_ms.saturating_add(self.grace_ms)
    }
}

/// The list.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct DoomedPacks {
    /// Changes made to it so far.
    pub change: u64,
    /// Of the packs that were deleted, the latest change that had doomed one.
    pub deleted: u64,
    /// The packs, by name.
    pub packs: BTreeMap<PackId, DoomedPack>,
}

/// The list, and the bytes it was read from, which a swap compares.
#[derive(Clone, Debug, Default)]
pub struct StoredList {
    bytes: Option<Vec<u8>>,
    pub(crate) list: DoomedPacks,
}

/// Reads the list; none is an empty one.
pub(crate) fn read(storage: &dyn Storage) -> Result<StoredList> {
    stored_list(storage.get(&KEY)?)
}

fn stored_list(bytes: Option<Vec<u8>>) -> Result<StoredList> {
    let list = bytes.as_deref().map_or(Ok(DoomedPacks::default()), parse)?;
    Ok(StoredList { bytes, list })
}

fn parse(bytes: &[u8]) -> Result<DoomedPacks> {
    let bad = || {
        RepoError::corrupt(
            "the list of packs to delete (file `condemned`)",
            "its checksum is wrong; remove the file while no writer runs, then collect garbage",
        )
    };
    let text = std::str::from_utf8(bytes).map_err(|_| bad())?;
    let (body, sum) = text.trim_end().rsplit_once('\n').ok_or_else(bad)?;
    if blake3::hash(format!("{body}\n").as_bytes()).to_hex().as_str() != sum {
        return Err(bad());
    }
    match body.split_once('\n').unwrap_or((body, "")) {
        (HEADER, rest) => parse_v2(rest).ok_or_else(bad),
        (first, _) if first.starts_with("mdl ") => Err(RepoError::user(
            "the list of packs to delete is not of a format this program reads",
            "it was made by a newer mdl: update this one",
        )),
        _ => parse_v1(body).ok_or_else(bad),
    }
}

fn pack(name: &str) -> Option<PackId> {
    name.parse().ok()
}

/// Names only: all of them go.
fn parse_v1(body: &str) -> Option<DoomedPacks> {
    let gone = DoomedPack { going: true, change: 0, at_ms: 0, grace_ms: 0 };
    let packs = body.lines().map(|name| Some((pack(name)?, gone.clone())));
    Some(DoomedPacks { packs: packs.collect::<Option<_>>()?, ..DoomedPacks::default() })
}

fn parse_v2(rest: &str) -> Option<DoomedPacks> {
    let mut lines = rest.lines();
    let (change, deleted) = lines.next()?.split_once(' ')?;
    let entry = |line: &str| {
        let [name, word @ ("goes" | "waits"), change, at_ms, grace_ms] = line.split(' ').collect::<Vec<_>>()[..] else {
            return None;
        };
        let (going, change) = (word == "goes", change.parse().ok()?);
        let (at_ms, grace_ms) = (at_ms.parse().ok()?, grace_ms.parse().ok()?);
        Some((pack(name)?, DoomedPack { going, change, at_ms, grace_ms }))
    };
    Some(DoomedPacks {
        change: change.parse().ok()?,
        deleted: deleted.parse().ok()?,
        packs: lines.map(entry).collect::<Option<_>>()?,
    })
}

fn summed(mut text: String) -> Vec<u8> {
    let sum = blake3::hash(text.as_bytes()).to_hex();
    // Writing to a string does not fail.
    let _ = writeln!(text, "{sum}");
    text.into_bytes()
}

impl DoomedPacks {
    fn bytes(&self) -> Vec<u8> {
        let mut text = format!("{HEADER}\n{} {}\n", self.change, self.deleted);
        for (pack, s) in &self.packs {
            let word = if s.going { "goes" } else { "waits" };
            let _ = writeln!(text, "{pack} {word} {} {} {}", s.change, s.at_ms, s.grace_ms);
        }
        summed(text)
    }
}

impl StoredList {
    /// Replaces the list by what `f` makes of it, if it is unchanged since it was read; else the inner error is what
    /// another process made of it. After an I/O error the list was replaced or it was not.
    pub(crate) fn replace(
        &self,
        storage: &dyn Storage,
        f: impl FnOnce(&mut DoomedPacks),
    ) -> Result<Result<DoomedPacks, StoredList>> {
        let mut new = self.list.clone();
        f(&mut new);
        if new == self.list {
            return Ok(Ok(new));
        }
        new.change += 1;
        match storage.swap(&KEY, self.bytes.as_deref(), Some(&new.bytes()))? {
            Swap::Done => Ok(Ok(new)),
            Swap::Lost(found) => stored_list(found).map(Err),
        }
    }
}

/// Makes a change to the list as it is when the change is written, and returns what it then is. Within `f` the change
/// that is being made has the number `change + 1`; an `f` that fails must not have changed anything. After an I/O error
/// the change was made or it was not.
pub(crate) fn change(storage: &dyn Storage, f: impl Fn(&mut DoomedPacks) -> Result<()>) -> Result<DoomedPacks> {
    let mut found = read(storage)?;
    loop {
        let mut outcome = Ok(());
        let done = found.replace(storage, |list| outcome = f(list))?;
        outcome?;
        match done {
            Ok(list) => return Ok(list),
            Err(other) => found = other,
        }
    }
}

/// Deletes these packs, together as far as any writer can tell: after an I/O error the next writer or collector goes
/// on. The caller keeps all other processes out.
pub(crate) fn delete(storage: &dyn Storage, packs: &BTreeSet<PackId>) -> Result<()> {
    if packs.is_empty() {
        return Ok(());
    }
    let names = packs.iter().map(|p| format!("{p}\n"));
    storage.put(&KEY, &summed(names.collect()))?;
    finish(storage)
}

/// Finishes a deletion that was cut off; packs that only wait are taken off the list. The caller keeps all other
/// processes out.
pub(crate) fn finish(storage: &dyn Storage) -> Result<()> {
    if storage.get(&KEY)?.is_none() {
        return Ok(());
    }
    let list = read(storage)?.list;
    let mut going = list.packs.iter().filter(|(_, s)| s.going);
    going.try_for_each(|(p, _)| storage.delete(&p.key()))?;
    storage.delete(&KEY)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_was_written_is_read_and_every_flipped_bit_is_seen() {
        let name = |i: u8| pack(&format!("{i:02x}").repeat(32)).expect("a name");
        let entry =
            |i: u8| DoomedPack { going: i % 2 == 1, change: u64::from(i), at_ms: 1000 + i64::from(i), grace_ms: 10 };
        let list = DoomedPacks { change: 7, deleted: 3, packs: (0..3).map(|i| (name(i), entry(i))).collect() };
        let bytes = list.bytes();
        assert_eq!(parse(&bytes).expect("parse"), list);
        for i in 0..(bytes.len() - 1) * 8 {
            let mut bad = bytes.clone();
            bad[i / 8] ^= 1 << (i % 8);
            assert!(parse(&bad).is_err(), "bit {i}");
        }
    }
}
