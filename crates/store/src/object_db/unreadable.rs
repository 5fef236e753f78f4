//! The list of object copies that a check could not read.

use crate::{
    Result,
    pack::PackId,
    storage::{Key, Storage},
};
use mdl_objects::Id;
use std::{collections::BTreeSet, fmt::Write};

const KEY: Key = Key::fixed("unreadable");

/// Copies, by pack and object.
pub type Unreadable = BTreeSet<(PackId, Id)>;

/// The list.
pub(crate) fn read(storage: &dyn Storage) -> Unreadable {
    let bytes = storage.get(&KEY).ok().flatten().unwrap_or_default();
    let text = std::str::from_utf8(&bytes).unwrap_or_default();
    let entry = |line: &str| {
        let (pack, object) = line.split_once(' ')?;
        Some((pack.parse().ok()?, object.parse().ok()?))
    };
    text.lines().filter_map(entry).collect()
}

/// Replaces the list.
pub fn write(storage: &dyn Storage, list: &Unreadable) -> Result<()> {
    if *list == read(storage) {
        return Ok(());
    }
    if list.is_empty() {
        return storage.delete(&KEY);
    }
    let mut text = String::new();
    for (pack, object) in list {
        // Writing to a string does not fail.
        let _ = writeln!(text, "{pack} {object}");
    }
    storage.put(&KEY, text.as_bytes())
}
