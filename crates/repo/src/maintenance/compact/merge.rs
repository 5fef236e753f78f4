//! Merges packs: chooses which ones, writes the new ones, and says when the old ones may go.

use crate::maintenance::{is_unmovable, taken};
use mdl_store::{
    Progress, Result,
    pack::PackId,
    progress::go_on,
    reachability::{Catalog, PACK_FIXED, Slot, copy, is_worth, record_bytes},
    storage::Storage,
    transaction::MaintenanceLock,
};
use std::collections::{BTreeSet, HashMap, HashSet};

/// A pack below this length is merged with others.
const SMALL: u64 = 32 << 20;
/// A merged pack is closed before it grows past this length.
const TARGET: u64 = 256 << 20;

/// Packs that become one, or none if all they hold is elsewhere.
#[derive(Debug, Default)]
pub(super) struct Group {
    pub packs: Vec<usize>,
    /// Length of the pack they become; 0 for none.
    pub len: u64,
    /// Whether one of them holds so many copies that no reader takes that it is worth rewriting by itself.
    is_worth: bool,
}

/// Sorts packs into groups to be merged. With nothing to gain there are none; what one run leaves, a second leaves
/// alone.
pub(super) fn plan(catalog: &Catalog) -> Vec<Group> {
    let mut groups = Vec::new();
    let mut open = Group::default();
    let mut order: Vec<usize> = (0..catalog.packs.len()).collect();
    order.sort_by_key(|p| (catalog.packs[*p].modified, catalog.packs[*p].pack.id));
    let mut flush = |open: &mut Group| {
        let group = std::mem::take(open);
        if group.packs.len() > 1 || group.is_worth {
            groups.push(group);
        }
    };
    let mut lone = Vec::new();
    for p in order {
        let size = catalog.packs[p].pack.size;
        let slots = taken(catalog, p);
        if is_unmovable(catalog, &slots) {
            continue;
        }
        let payload: u64 = slots.iter().map(|s| record_bytes(catalog.record(*s))).sum();
        let freed = size.saturating_sub(payload + PACK_FIXED);
        let is_worth = is_worth(freed, size);
        if slots.is_empty() {
            lone.push(Group { packs: vec![p], len: 0, is_worth });
        } else if payload + PACK_FIXED < SMALL {
            if !open.packs.is_empty() && open.len + payload > TARGET {
                flush(&mut open);
            }
            open.len += payload + if open.packs.is_empty() { PACK_FIXED } else { 0 };
            open.packs.push(p);
            open.is_worth |= is_worth;
        } else if is_worth {
            lone.push(Group { packs: vec![p], len: payload + PACK_FIXED, is_worth });
        }
    }
    flush(&mut open);
    lone.extend(groups);
    lone
}

/// Writes what a group becomes. The old packs stay.
pub(super) fn write(
    lock: &MaintenanceLock<'_>,
    catalog: &Catalog,
    storage: &dyn Storage,
    group: &Group,
    progress: &dyn Progress,
) -> Result<Option<PackId>> {
    let slots: Vec<Slot> = group.packs.iter().flat_map(|p| taken(catalog, *p)).collect();
    if slots.is_empty() {
        return Ok(None);
    }
    let moved: HashSet<Slot> = slots.iter().copied().collect();
    let mut depths = HashMap::new();
    let mut writer = lock.pack_of_copies()?;
    for slot in slots {
        go_on(progress, super::WHAT)?;
        let depth = depth(catalog, &moved, slot, &mut depths);
        copy(catalog, storage, slot, depth, &mut writer, progress)?;
    }
    lock.publish_copies(writer).map(Some)
}

/// The depth a copy has in the new pack: one more than its base's there, or than its base's recorded elsewhere (of two
/// bases the deeper one counts). Never more than it was, and what stands elsewhere keeps its record, so that depth
/// descends everywhere at every moment.
fn depth(catalog: &Catalog, moved: &HashSet<Slot>, slot: Slot, known: &mut HashMap<Slot, u8>) -> u8 {
    let record = catalog.record(slot);
    if !moved.contains(&slot) {
        return record.depth;
    }
    if let Some(depth) = known.get(&slot) {
        return *depth;
    }
    let below: Option<Vec<Slot>> = record.bases().map(|b| Some(catalog.best(catalog.find(&b)?))).collect();
    let new = match below {
        Some(all) if all.iter().all(|b| catalog.record(*b).depth < record.depth) => {
            let deepest = all.into_iter().map(|b| depth(catalog, moved, b, known)).max();
            deepest.map_or(record.depth, |d| d.saturating_add(1))
        }
        // A chain that is broken already, which stays as it is.
        _ => record.depth,
    };
    known.insert(slot, new);
    new
}

/// Those of some packs that can go: every object in them has a copy in a pack that stays, with no greater depth.
pub(super) fn redundant(catalog: &Catalog, packs: &BTreeSet<PackId>) -> BTreeSet<PackId> {
    let mut elsewhere: HashMap<mdl_objects::Id, u8> = HashMap::new();
    let (going, staying): (Vec<_>, Vec<_>) = catalog.packs.iter().partition(|s| packs.contains(&s.pack.id));
    for r in staying.iter().flat_map(|s| s.pack.records()) {
        let depth = elsewhere.entry(r.id).or_insert(r.depth);
        *depth = r.depth.min(*depth);
    }
    let is_covered = |r: &mdl_store::pack::Record| elsewhere.get(&r.id).is_some_and(|d| *d <= r.depth);
    let covered = going.iter().filter(|s| s.pack.records().iter().all(is_covered));
    covered.map(|s| s.pack.id).collect()
}
