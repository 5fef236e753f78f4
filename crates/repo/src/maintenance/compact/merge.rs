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
use std::collections::{BTreeSet, HashMap};

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
    let mut writer = lock.pack_of_copies()?;
    for slot in slots {
        go_on(progress, super::WHAT)?;
        // With its place: versions to come count on from it.
        copy(catalog, storage, slot, catalog.record(slot).depth, &mut writer, progress)?;
    }
    lock.publish_copies(writer).map(Some)
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
