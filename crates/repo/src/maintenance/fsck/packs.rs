//! Fsck of packs: each pack's first bytes and the checksum of every payload.

use crate::maintenance::fsck::{Bad, Problem, problem};
use mdl_store::{
    Progress,
    pack::NO_MAGIC,
    reachability::{Catalog, Slot},
    storage::Storage,
};
use rayon::prelude::*;

/// Reads everything once, a little at a time. Returns packs with a wrong beginning, and damaged copies of objects.
pub(super) fn check(catalog: &Catalog, storage: &dyn Storage, progress: &dyn Progress) -> (Vec<Problem>, Vec<Bad>) {
    let torn = catalog.packs.iter().filter_map(|listed| {
        let reason = match listed.pack.has_magic(storage) {
            Ok(true) => return None,
            Ok(false) => NO_MAGIC.to_owned(),
            Err(e) => e.to_string(),
        };
        Some(problem(listed.pack.id.key().as_str(), reason))
    });
    let torn = torn.collect();
    let slots = (0..catalog.packs.len()).flat_map(|p| catalog.slots(p)).collect();
    (torn, intact(catalog, storage, slots, progress))
}

/// Copies, of these, whose stored bytes changed.
pub fn intact(catalog: &Catalog, storage: &dyn Storage, mut slots: Vec<Slot>, progress: &dyn Progress) -> Vec<Bad> {
    slots.sort_by_key(|s| (s.pack, catalog.record(*s).offset));
    let bad = slots.into_par_iter().filter_map(|slot| {
        if progress.stopped() {
            return None;
        }
        let pack = &catalog.packs[slot.pack as usize].pack;
        match pack.is_intact(storage, catalog.record(slot), |n| progress.advance(n)) {
            Ok(true) => None,
            Ok(false) => Some(Bad { slot, reason: "stored bytes changed".to_owned(), is_damage: true }),
            Err(e) => Some(Bad::new(slot, &e)),
        }
    });
    bad.collect()
}
