//! Finds the tensors of a PyTorch zip archive (`torch.save`, TorchScript).

pub(crate) mod legacy;
mod names;
mod storages;
mod tensors;

use crate::{
    bytes::{Trouble, take},
    layout::{Format, Layout, ReadAt},
    pickle,
    resolve::unique,
    zip::Entry,
};
use std::collections::HashMap;
use storages::{Storage, StorageTable};

/// The longest pickle that is followed; a longer one's storages are opaque.
const MAX_PICKLE: u64 = 256 << 20;

/// The directory within the archive that holds everything, with its slash: that of the first `data.pkl`.
pub(crate) fn prefix(entries: &[Entry]) -> Option<&str> {
    let names = entries.iter().map(|e| e.name.as_str());
    names.filter_map(|name| name.strip_suffix("data.pkl")).find(|p| is_prefix(p))
}

/// Empty, or one directory.
fn is_prefix(prefix: &str) -> bool {
    prefix.is_empty() || prefix.find('/') == Some(prefix.len() - 1)
}

/// The layout of an archive whose entries lie under `prefix`.
///
/// Every stored entry of a directory that has a pickle beside it (`data.pkl` beside `data/`, in TorchScript also
/// `constants.pkl` beside `constants/`) is an extent, whether or not the pickle can be followed.
pub(crate) fn scan(src: &dyn ReadAt, entries: &[Entry], prefix: &str) -> Result<Layout, Trouble> {
    let mut layout = Layout { format: Format::TorchZip, ..Layout::plain() };
    let foreign = is_big_endian(src, entries, prefix)?;
    let mut kept = storage_dirs(entries, prefix);
    for entry in entries {
        let Some(stem) = stem(entry, prefix) else { continue };
        let Some(storages) = kept.remove(stem) else { continue };
        let found = finds(src, entry, stem)?;
        for (key, storage) in storages {
            let storage = Storage { offset: storage.payload, len: storage.len, fallback: format!("{stem}/{key}") };
            storages::push(storage, found.get(key.as_bytes()), foreign, &mut layout);
        }
    }
    sort(&mut layout);
    unique(&mut layout.extents);
    Ok(layout)
}

/// The stored entries below `prefix`, by directory: key and entry.
fn storage_dirs<'a>(entries: &'a [Entry], prefix: &str) -> HashMap<&'a str, Vec<(&'a str, &'a Entry)>> {
    let mut dirs: HashMap<_, Vec<_>> = HashMap::new();
    for entry in entries.iter().filter(|e| e.stored) {
        let place = entry.name.strip_prefix(prefix).and_then(|rest| rest.split_once('/'));
        if let Some((dir, key)) = place.filter(|(_, key)| !key.is_empty()) {
            dirs.entry(dir).or_default().push((key, entry));
        }
    }
    dirs
}

/// `data` of `archive/data.pkl`.
fn stem<'a>(entry: &'a Entry, prefix: &str) -> Option<&'a str> {
    let stem = entry.name.strip_prefix(prefix)?.strip_suffix(".pkl")?;
    (!stem.is_empty() && !stem.contains('/')).then_some(stem)
}

/// What the pickle in `entry` says about its storages; nothing where it cannot be followed.
fn finds(src: &dyn ReadAt, entry: &Entry, stem: &str) -> Result<StorageTable, Trouble> {
    if !entry.stored || entry.len > MAX_PICKLE {
        return Ok(StorageTable::default());
    }
    let bytes = take(src, entry.payload, entry.len)?.unwrap_or_default();
    // `data.pkl` is the file itself; other pickles go by their name.
    let base = if stem == "data" { "" } else { stem };
    Ok(pickle::run(&bytes).map(|graph| names::walk(&graph, base)).unwrap_or_default())
}

fn is_big_endian(src: &dyn ReadAt, entries: &[Entry], prefix: &str) -> Result<bool, Trouble> {
    let is_order = |e: &&Entry| e.stored && e.name.strip_prefix(prefix) == Some("byteorder");
    match entries.iter().find(is_order) {
        Some(entry) => Ok(take(src, entry.payload, entry.len.min(16))?.is_some_and(|b| b.starts_with(b"big"))),
        None => Ok(false),
    }
}

/// Sorts the extents by offset and follows with the views.
fn sort(layout: &mut Layout) {
    let mut order: Vec<usize> = (0..layout.extents.len()).collect();
    order.sort_by_key(|&i| layout.extents.get(i).map(|e| (e.offset, e.byte_len())));
    let mut moved = vec![u32::MAX; order.len()];
    for (to, &from) in order.iter().enumerate() {
        if let (Some(slot), Ok(to)) = (moved.get_mut(from), u32::try_from(to)) {
            *slot = to;
        }
    }
    for view in &mut layout.views {
        let to = usize::try_from(view.extent).ok().and_then(|i| moved.get(i));
        view.extent = to.copied().unwrap_or(u32::MAX);
    }
    layout.extents.sort_by_key(|e| (e.offset, e.byte_len()));
    layout.views.sort_by_key(|v| v.extent);
}
