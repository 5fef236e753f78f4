//! Catalog of every pack and every copy of every object, with the copy that readers would take.
//!
//! It reads footers from storage itself instead of asking the odb, whose footers may be older than the files.

use crate::{
    RepoError, Result,
    lock::{
        doomed,
        doomed::{DoomedPack, StoredList},
    },
    object_db::{Location, unreadable, unreadable::Unreadable},
    pack::{PACK_DIR, Pack, PackId, Record, payload},
    storage::{Storage, StoredKey},
};
use mdl_objects::Id;
use std::{
    collections::{HashMap, HashSet},
    sync::Arc,
    time::SystemTime,
};

/// Bytes of a pack without records: magic, record count, trailer.
pub const PACK_FIXED: u64 = 8 + 8 + 64;

/// Bytes that a record takes in a pack, its place in the footer included.
pub fn record_bytes(r: &Record) -> u64 {
    r.len.saturating_add(74 + 32 * r.bases().count() as u64)
}

/// Whether a pack of this length is worth rewriting for what that frees: a quarter of it, or much.
pub fn is_worth(freed: u64, size: u64) -> bool {
    const MUCH: u64 = 64 << 20;
    freed >= size / 4 || freed >= MUCH
}

/// How often packs are listed anew because one was deleted before it could be read.
const TRIES: usize = 10;

/// A pack and when it was written.
#[derive(Debug)]
pub struct CatalogPack {
    pub pack: Arc<Pack>,
    pub modified: SystemTime,
    /// Its entry on the list of doomed packs, if it is doomed.
    pub doomed: Option<DoomedPack>,
}

/// One copy of an object: a pack of the catalog, a record of that pack.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Slot {
    /// The pack, as an index into [`Catalog::packs`].
    pub pack: u32,
    /// The record, as an index into the pack's records.
    pub record: u32,
}

/// All packs. Objects are numbered from 0.
#[derive(Debug, Default)]
pub struct Catalog {
    /// The packs.
    pub packs: Vec<CatalogPack>,
    /// Packs (and the list of doomed ones) that cannot be read, and why.
    pub damaged: Vec<(String, RepoError)>,
    /// Keys below the packs' prefix that name no pack.
    pub strays: Vec<String>,
    /// Whether the repository is partial: missing contents are elsewhere, and no damage.
    pub partial: bool,
    /// The list of doomed packs at the time.
    pub seen: StoredList,
    unreadable: Unreadable,
    numbers: HashMap<Id, u32>,
    best: Vec<Slot>,
    /// Copies that are not preferred, since they could not be read, but that are the only ones shallow enough for the
    /// deltas on them.
    leaned_on: HashMap<u32, Slot>,
}

impl Catalog {
    /// Reads every footer. Of several copies with the same depth one that is not doomed is preferred, then the one
    /// in the pack that `order` puts first. Packs whose deletion was decided are not there. `partial`: objects may be
    /// absent. Packs that cannot be read are in `damaged`.
    pub fn read<K: Ord>(storage: &dyn Storage, partial: bool, order: impl Fn(&StoredKey) -> K) -> Result<Catalog> {
        Catalog::read_but(storage, partial, order, |s| s.going)
    }

    /// As `read`, without any pack that is doomed.
    pub fn read_kept<K: Ord>(storage: &dyn Storage, partial: bool, order: impl Fn(&StoredKey) -> K) -> Result<Catalog> {
        Catalog::read_but(storage, partial, order, |_| true)
    }

    fn read_but<K: Ord>(
        storage: &dyn Storage,
        partial: bool,
        order: impl Fn(&StoredKey) -> K,
        without: fn(&DoomedPack) -> bool,
    ) -> Result<Catalog> {
        let mut tries = if storage.excludes() { 1 } else { TRIES };
        loop {
            let mut out = Catalog { unreadable: unreadable::read(storage), partial, ..Catalog::default() };
            // Before the packs: one that is listed is still there, or was decided on since.
            out.seen = doomed::read(storage).unwrap_or_else(|e| {
                out.damaged.push(("condemned".to_owned(), e));
                StoredList::default()
            });
            let list = out.seen.list.packs.clone();
            let doomed_as = |s: &StoredKey| list.get(&PackId::from_key(&s.key)?);
            let mut listed = storage.list(&PACK_DIR)?;
            listed.sort_by_cached_key(|s| (doomed_as(s).is_some(), order(s), s.key.clone()));
            for s in listed {
                let doomed = doomed_as(&s).cloned();
                let opened = match PackId::from_key(&s.key) {
                    Some(_) if doomed.as_ref().is_some_and(without) => continue,
                    Some(id) => Pack::open(storage, id),
                    None => {
                        out.strays.push(s.key.to_string());
                        continue;
                    }
                };
                match opened {
                    Ok(pack) => out.packs.push(CatalogPack { pack: Arc::new(pack), modified: s.modified, doomed }),
                    Err(e) => out.damaged.push((s.key.to_string(), e)),
                }
            }
            tries -= 1;
            let vanished = |(_, e): &(String, RepoError)| matches!(e, RepoError::NotFound { .. });
            if tries == 0 || !out.damaged.iter().any(vanished) {
                out.number();
                return Ok(out);
            }
        }
    }

    /// Of these packs alone, and when each was written; earlier ones are preferred. `storage` has the list of copies
    /// that a check could not read.
    pub fn from_packs(storage: &dyn Storage, packs: impl Iterator<Item = (Arc<Pack>, SystemTime)>) -> Catalog {
        let mut out = Catalog {
            unreadable: unreadable::read(storage),
            packs: packs.map(|(pack, modified)| CatalogPack { pack, modified, doomed: None }).collect(),
            ..Catalog::default()
        };
        out.number();
        out
    }

    fn number(&mut self) {
        for (p, entry) in self.packs.iter().enumerate() {
            for (r, record) in entry.pack.records().iter().enumerate() {
                let slot = Slot { pack: p as u32, record: r as u32 };
                let n = *self.numbers.entry(record.id).or_insert(self.best.len() as u32);
                match self.best.get(n as usize).copied() {
                    None => self.best.push(slot),
                    Some(old) if self.rank(slot) < self.rank(old) => self.best[n as usize] = slot,
                    Some(_) => {}
                }
            }
        }
        if !self.unreadable.is_empty() {
            self.leaned_on = self.find_leaned_on();
        }
    }

    /// Where every copy reads well the preferred one is the shallowest, and there are none.
    fn find_leaned_on(&self) -> HashMap<u32, Slot> {
        let mut shallowest: HashMap<u32, Slot> = HashMap::new();
        let all = || (0..self.packs.len()).flat_map(move |p| self.slots(p));
        for slot in all().filter(|s| self.is_unreadable(*s)) {
            let n = self.number_of(slot);
            let depth = |s: Slot| self.record(s).depth;
            if depth(slot) < shallowest.get(&n).map_or(depth(self.best(n)), |s| depth(*s)) {
                shallowest.insert(n, slot);
            }
        }
        if shallowest.is_empty() {
            return shallowest;
        }
        let mut leaned_on = HashMap::new();
        for record in all().map(|s| self.record(s)) {
            for n in record.bases().filter_map(|id| self.find(&id)) {
                if let Some(slot) = shallowest.get(&n)
                    && self.best_record(n).depth >= record.depth
                    && self.record(*slot).depth < record.depth
                {
                    leaned_on.insert(n, *slot);
                }
            }
        }
        leaned_on
    }

    /// The copy of an object that some delta needs since it is shallower than the preferred copy allows, if there is
    /// one.
    pub fn leaned_on(&self, n: u32) -> Option<Slot> {
        self.leaned_on.get(&n).copied()
    }

    /// Whether readers take a copy: the preferred one, or one that a delta needs.
    pub fn is_taken(&self, slot: Slot) -> bool {
        let n = self.number_of(slot);
        self.best(n) == slot || self.leaned_on(n) == Some(slot)
    }

    /// The copy of a base that a reader takes for a delta of this `depth`; none: the chain does not descend.
    pub fn below(&self, n: u32, depth: u8) -> Option<Slot> {
        let copies = [Some(self.best(n)), self.leaned_on(n)];
        copies.into_iter().flatten().find(|s| self.record(*s).depth < depth)
    }

    /// Copies are preferred in this order: those that can be read, those with few deltas to follow.
    fn rank(&self, slot: Slot) -> (bool, u8) {
        (self.is_unreadable(slot), self.record(slot).depth)
    }

    /// Whether an earlier check could not read a copy.
    pub fn is_unreadable(&self, slot: Slot) -> bool {
        self.unreadable.contains(&self.name(slot))
    }

    /// A copy by the names of its pack and its object.
    pub fn name(&self, slot: Slot) -> (PackId, Id) {
        (self.packs[slot.pack as usize].pack.id, self.record(slot).id)
    }

    /// These copies, and those that a reader takes for their delta bases.
    pub fn with_chains(&self, slots: &[Slot]) -> Vec<Slot> {
        let mut all: HashSet<Slot> = HashSet::new();
        let mut stack = slots.to_vec();
        while let Some(slot) = stack.pop() {
            if all.insert(slot) {
                let record = self.record(slot);
                let below = record.bases().filter_map(|id| self.find(&id));
                stack.extend(below.map(|n| self.below(n, record.depth).unwrap_or(self.best(n))));
            }
        }
        let mut all: Vec<Slot> = all.into_iter().collect();
        all.sort();
        all
    }

    /// Number of distinct objects.
    pub fn count(&self) -> usize {
        self.best.len()
    }

    /// The number of an object.
    pub fn find(&self, id: &Id) -> Option<u32> {
        self.numbers.get(id).copied()
    }

    /// The preferred copy of an object.
    pub fn best(&self, n: u32) -> Slot {
        self.best[n as usize]
    }

    /// The record of a copy.
    pub fn record(&self, slot: Slot) -> &Record {
        &self.packs[slot.pack as usize].pack.records()[slot.record as usize]
    }

    /// The record of an object's preferred copy.
    pub fn best_record(&self, n: u32) -> &Record {
        self.record(self.best(n))
    }

    /// The number of the object that a copy is a copy of.
    pub fn number_of(&self, slot: Slot) -> u32 {
        self.numbers.get(&self.record(slot).id).copied().unwrap_or(u32::MAX)
    }

    /// Every copy in a pack.
    pub fn slots(&self, pack: usize) -> impl Iterator<Item = Slot> + use<> {
        let n = self.packs.get(pack).map_or(0, |s| s.pack.records().len());
        (0..n as u32).map(move |record| Slot { pack: pack as u32, record })
    }

    /// A copy as the object database's location.
    pub fn location(&self, slot: Slot) -> Location {
        Location { pack: self.packs[slot.pack as usize].pack.clone(), record: self.record(slot).clone() }
    }

    /// The packs that are doomed.
    pub fn doomed(&self) -> impl Iterator<Item = (usize, &DoomedPack)> {
        let all = self.packs.iter().enumerate();
        all.filter_map(|(p, s)| Some((p, s.doomed.as_ref()?)))
    }

    /// Bytes of all packs that can be read.
    pub fn bytes(&self) -> u64 {
        self.packs.iter().map(|s| s.pack.size).sum()
    }

    /// Canonical bytes of a copy of an object that is no tensor, verified.
    pub fn content(&self, storage: &dyn Storage, slot: Slot) -> Result<Vec<u8>> {
        payload::content(storage, &self.packs[slot.pack as usize].pack, self.record(slot))
    }
}
