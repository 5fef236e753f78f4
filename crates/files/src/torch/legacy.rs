//! Finds the tensors of a file that `torch.save` wrote before it wrote zips.
//!
//! The file is five pickles (magic, version, system, object, storage keys) and, for each key in the order of the list,
//! the number of elements (i64, always little-endian) and the elements. Nothing says how long a pickle is, so each is
//! run in a window that grows until it holds the STOP. The keys are addresses and so is their order in the file: names
//! and the numbering of equal ones go by the order in which the object mentions the storages.

use super::{
    MAX_PICKLE, names, sort, storages,
    storages::{Storage, StorageEntry, StorageTable},
};
use crate::{
    bytes::{Trouble, array_at, bad, take},
    layout::{Format, Layout, ReadAt},
    pickle::{self, Graph, Keep, Lost, Node, Value},
    resolve::unique,
};
use std::collections::HashSet;

/// How many bytes [`magic`] wants to see.
pub(crate) const MAGIC_ROOM: u64 = 32;
/// The magic number as LONG1 and as a line of text, with the pickle's STOP.
const BINARY_MAGIC: &[u8] = b"\x8a\x0a\x6c\xfc\x9c\x46\xf9\x20\x6a\xa8\x50\x19.";
const TEXT_MAGIC: &[u8] = b"L119547037146038801333356L\n.";
const VERSION: Value = Value::Int(1001);
/// The first window on a pickle; doubled while it is too short.
const WINDOW: u64 = 64 << 10;

/// The length of the magic pickle, if `first` begins with it: in protocol 0 or 1 a line of text, later a binary number,
/// from protocol 4 on in a frame.
pub(crate) fn magic(first: &[u8]) -> Option<u64> {
    let number = match *first {
        [0x80, 2..=5, 0x95, ..] => first.get(11..)?,
        [0x80, 2..=5, ..] => first.get(2..)?,
        _ => first,
    };
    let framed = (first.len() - number.len()) as u64;
    let magic = [BINARY_MAGIC, TEXT_MAGIC].into_iter().find(|m| number.starts_with(m));
    magic.map(|m| framed + m.len() as u64)
}

/// The layout of a file whose magic ends at `after`; `None` where a pickle cannot be followed, since its end is then
/// unknown.
pub(crate) fn scan(src: &dyn ReadAt, after: u64) -> Result<Option<Layout>, Trouble> {
    let mut pickles = Pickles { src, at: after };
    if pickles.next(Keep::Nodes, |version| version.root == VERSION)? != Some(true) {
        return Ok(None);
    }
    let Some(foreign) = pickles.next(Keep::All, is_big_endian)? else {
        return Ok(None);
    };
    let Some(finds) = pickles.next(Keep::Nodes, |object| names::walk(object, ""))? else {
        return Ok(None);
    };
    let Some(listed) = pickles.next(Keep::All, |keys| listed(keys, &finds))? else {
        return Ok(None);
    };
    let mut places = payloads(src, pickles.at, &listed?)?;
    places.sort_by_key(|place| place.found.order);
    let mut layout = Layout { format: Format::TorchLegacy, ..Layout::plain() };
    for Place { found, offset, len } in places {
        let fallback = format!("data/{}", found.order);
        let storage = Storage { offset, len, fallback };
        storages::push(storage, Some(found), foreign, &mut layout);
    }
    unique(&mut layout.extents);
    sort(&mut layout);
    Ok(Some(layout))
}

/// Pickles one after the other.
struct Pickles<'a> {
    src: &'a dyn ReadAt,
    /// Where the next one begins.
    at: u64,
}

impl Pickles<'_> {
    /// What `read` makes of the next pickle; `None` where it cannot be followed or is too long.
    fn next<T>(&mut self, keep: Keep, read: impl FnOnce(&Graph<'_>) -> T) -> Result<Option<T>, Trouble> {
        let rest = self.src.size().saturating_sub(self.at);
        let mut room = WINDOW;
        loop {
            let window = take(self.src, self.at, room.min(rest))?.unwrap_or_default();
            match pickle::run_first(&window, keep) {
                Ok((graph, used)) => {
                    self.at += used as u64;
                    return Ok(Some(read(&graph)));
                }
                Err(Lost::SHORT) if room >= rest => return bad("it ends in mid-pickle (incompletely written?)"),
                Err(Lost::SHORT) if room < MAX_PICKLE => room *= 2,
                Err(_) => return Ok(None),
            }
        }
    }
}

/// Whether the system pickle says that the writer's numbers were big-endian.
fn is_big_endian(system: &Graph<'_>) -> bool {
    let Some(Node::Bag(dict)) = system.node(system.root) else {
        return false;
    };
    let mut pairs = dict.items.iter();
    pairs.any(|&(key, order)| system.text(key) == Some(b"little_endian") && order == Value::Bool(false))
}

/// The storages whose payloads follow, as far as the object mentioned them. PyTorch lists none twice, and names would
/// multiply if it did.
fn listed<'f>(keys: &Graph<'_>, finds: &'f StorageTable) -> Result<Vec<&'f StorageEntry>, Trouble> {
    let Some(Node::Bag(list)) = keys.node(keys.root) else {
        return Ok(Vec::new());
    };
    let mut seen = HashSet::new();
    let known = |&(_, key): &(Value, Value)| keys.text(key).and_then(|key| finds.get(key));
    let mut listed = Vec::new();
    for found in list.items.iter().map_while(known) {
        if !seen.insert(found.order) {
            return bad("a storage is listed twice");
        }
        listed.push(found);
    }
    Ok(listed)
}

/// Where a storage's elements lie.
struct Place<'f> {
    found: &'f StorageEntry,
    offset: u64,
    len: u64,
}

/// The payloads from `at` on, up to the first of unknown element size: what follows that one cannot be found.
fn payloads<'f>(src: &dyn ReadAt, mut at: u64, listed: &[&'f StorageEntry]) -> Result<Vec<Place<'f>>, Trouble> {
    let mut places = Vec::new();
    for (i, &found) in listed.iter().enumerate() {
        let Some(unit) = found.storage.unit else { break };
        let Some(count) = take(src, at, 8)?.and_then(|b| array_at(&b, 0)).map(i64::from_le_bytes) else {
            return bad(format!("it ends before storage {i} (incompletely written?)"));
        };
        let Ok(count) = u64::try_from(count) else {
            return bad(format!("storage {i} has a negative length"));
        };
        let offset = at + 8;
        let len = count.checked_mul(unit);
        let end = len.and_then(|len| offset.checked_add(len));
        let (Some(len), Some(end)) = (len, end.filter(|&end| end <= src.size())) else {
            return bad(format!("it ends inside storage {i} (incompletely written?)"));
        };
        places.push(Place { found, offset, len });
        at = end;
    }
    Ok(places)
}
