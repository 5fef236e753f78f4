//! The list of packs that a collector is about to delete: what makes many deletions one step. Neighbours: `gc` writes it,
//! `Repo::write_lock` finishes it, the catalog passes over its packs. It must not know why a pack was condemned.
//!
//! Everything that is kept is in other packs before the list is written. While it exists the packs on it may be there or
//! not; objects that only they hold may have lost what they refer to, so nothing may be built on them: a writer first
//! finishes the deletion. Readers need not look: what can be reached is whole either way.

use crate::{
    RepoError, Result,
    pack::PackId,
    repo::Repo,
    storage::{Guard, Storage},
};
use std::{collections::BTreeSet, fmt::Write};

const KEY: &str = "condemned";

/// Packs that are condemned.
///
/// # Errors
/// The list is damaged; the medium failed.
pub(crate) fn read(storage: &dyn Storage) -> Result<BTreeSet<PackId>> {
    let Some(bytes) = storage.get(KEY)? else {
        return Ok(BTreeSet::new());
    };
    parse(&bytes).ok_or_else(|| {
        RepoError::corrupt(
            "the list of packs to delete (file `condemned`)",
            "its checksum is wrong; remove the file, then run `mdl gc`",
        )
    })
}

fn parse(bytes: &[u8]) -> Option<BTreeSet<PackId>> {
    let text = std::str::from_utf8(bytes).ok()?;
    let (body, sum) = text.trim_end().rsplit_once('\n')?;
    let body = format!("{body}\n");
    if blake3::hash(body.as_bytes()).to_hex().as_str() != sum {
        return None;
    }
    body.lines()
        .map(|name| PackId::from_key(&format!("packs/{name}.pack")))
        .collect()
}

/// Deletes these packs, together as far as anyone who writes can tell. The caller keeps everybody else out.
///
/// # Errors
/// The medium failed; the next writer or collector goes on.
pub(super) fn delete(storage: &dyn Storage, packs: &BTreeSet<PackId>) -> Result<()> {
    if packs.is_empty() {
        return Ok(());
    }
    let mut text = String::new();
    packs.iter().for_each(|p| {
        // Writing to a string does not fail.
        let _ = writeln!(text, "{p}");
    });
    let sum = blake3::hash(text.as_bytes()).to_hex();
    storage.put(KEY, format!("{text}{sum}\n").as_bytes())?;
    finish(storage)
}

/// Finishes a deletion that was cut off. The caller keeps everybody else out.
///
/// # Errors
/// The list is damaged; the medium failed.
pub(crate) fn finish(storage: &dyn Storage) -> Result<()> {
    if storage.get(KEY)?.is_none() {
        return Ok(());
    }
    read(storage)?.iter().try_for_each(|p| storage.delete(&p.key()))?;
    storage.delete(KEY)
}

impl Repo {
    /// Keeps collectors out while the guard lives, as everything must that looks objects up and then relies on them. A
    /// collection that was cut off is finished first.
    ///
    /// # Errors
    /// The medium failed.
    pub fn write_lock(&self) -> Result<Box<dyn Guard>> {
        loop {
            let guard = self.storage.lock_shared()?;
            if self.storage.get(KEY)?.is_none() {
                return Ok(guard);
            }
            drop(guard);
            let _alone = self.storage.lock_exclusive()?;
            finish(&*self.storage)?;
            self.odb.renew();
        }
    }
}
