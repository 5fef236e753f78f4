//! Object lookup: finds which pack has an object, by the index and, where that cannot tell, all packs' footers.
//!
//! What the index has is checked against the pack's footer; what it lacks is believed only where a wrong "no" costs no
//! more than storing an object again.

use crate::{
    RepoError, Result,
    lock::doomed::DoomedPacks,
    object_db::{Hint, Index, Location, Odb, PackSet, unreadable, unreadable::Unreadable},
    pack::{PACK_DIR, Pack, PackId},
};
use mdl_codec::locks::MutexGuard;
use mdl_objects::{Id, Kind};
use std::{
    collections::{BTreeMap, HashMap},
    mem::take,
    sync::Arc,
};

/// Every object of every pack that can be read: the pack of its shallowest copy, and the depth there.
type All = HashMap<Id, (PackId, u8)>;

#[derive(Debug, Default)]
pub(super) struct State {
    /// Every pack known to exist, with its footer if it was needed.
    pub packs: BTreeMap<PackId, Option<Arc<Pack>>>,
    pub listed: bool,
    pub index: IndexState,
    /// Whether the open index has been shown every pack that was listed.
    synced: bool,
    /// Built when there is no index to ask, or it knows of no such object.
    pub all: Option<All>,
    /// Copies that a check could not read.
    pub unreadable: Unreadable,
    /// Packs that a writer must not rely on, as of the latest change to their list that was seen.
    pub doomed: DoomedPacks,
    /// The first pack that could not be read since packs were listed: it may hold whatever seems to be absent.
    pub failed: Option<RepoError>,
}

#[derive(Debug, Default)]
pub(super) enum IndexState {
    #[default]
    Closed,
    Open(Index),
    /// Held by another process, or broken: do without until `release`.
    Absent,
}

impl Odb {
    pub(super) fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock()
    }

    pub(super) fn list(&self, state: &mut State) -> Result<()> {
        if state.listed {
            return Ok(());
        }
        let listed = self.storage.keys(&PACK_DIR)?;
        let mut old = take(&mut state.packs);
        // At once: a map is built from what is sorted faster than it grows.
        let ids = listed.iter().filter_map(|key| PackId::from_key(key));
        state.packs = ids.map(|id| (id, old.remove(&id).flatten())).collect();
        (state.listed, state.synced, state.failed) = (true, false, None);
        state.unreadable = unreadable::read(&*self.storage);
        Ok(())
    }

    pub(super) fn load(&self, state: &mut State, id: PackId) -> Result<Arc<Pack>> {
        if let Some(Some(pack)) = state.packs.get(&id) {
            return Ok(pack.clone());
        }
        let pack = Arc::new(Pack::open(&*self.storage, id)?);
        state.packs.insert(id, Some(pack.clone()));
        Ok(pack)
    }

    /// Opens a pack; one that cannot be read must not make the rest unreachable, but is remembered.
    fn try_load(&self, state: &mut State, id: PackId) -> Option<Arc<Pack>> {
        match self.load(state, id) {
            Ok(pack) => Some(pack),
            Err(e) => {
                // One that is gone was replaced: what it held is elsewhere.
                if !matches!(e, RepoError::NotFound { .. }) {
                    state.failed.get_or_insert(e);
                }
                None
            }
        }
    }

    /// Opens the index and brings it up to the packs that exist.
    pub(super) fn open_index(&self, state: &mut State) -> Result<()> {
        self.list(state)?;
        let Some(dir) = self.index_dir.as_deref() else {
            return Ok(());
        };
        let index = match take(&mut state.index) {
            IndexState::Open(index) => Some(index),
            IndexState::Closed => Index::open(dir),
            IndexState::Absent => None,
        };
        state.index = match index {
            Some(index) if state.synced || self.sync_index(state, &index) => IndexState::Open(index),
            _ => IndexState::Absent,
        };
        state.synced = true;
        Ok(())
    }

    /// Indexes packs the index has not seen; starts afresh where it knows packs that are gone. False: the index failed.
    fn sync_index(&self, state: &mut State, index: &Index) -> bool {
        if index.has_just(&PackSet::from_packs(state.packs.keys())) {
            return true;
        }
        let Some(mut known) = index.packs() else {
            return false;
        };
        if known.iter().any(|p| !state.packs.contains_key(p)) {
            if index.clear_packs().is_none() {
                return false;
            }
            known.clear();
        }
        let missing: Vec<PackId> = state.packs.keys().filter(|p| !known.contains(p)).copied().collect();
        let done =
            missing.into_iter().all(|id| self.try_load(state, id).is_none_or(|pack| index.add_pack(&pack).is_some()));
        done && index.note_packs().is_some()
    }

    /// As `locate`; where there is nothing but a pack that cannot be read, that is the error.
    pub(super) fn search(&self, state: &mut State, id: &Id) -> Result<Option<Location>> {
        if let Some(found) = self.look(state, id)? {
            return Ok(Some(found));
        }
        // Another process may have added or replaced packs since they were listed.
        let before: Vec<PackId> = state.packs.keys().copied().collect();
        let complete = state.all.is_some() && state.failed.is_none();
        state.listed = false;
        self.list(state)?;
        if complete && state.packs.keys().eq(&before) {
            return Ok(None);
        }
        state.all = None;
        let found = self.look(state, id)?;
        if found.is_some() || state.all.is_some() {
            return Ok(found);
        }
        // Only the footers themselves can say that there is no such object.
        let found = self.look_in_all(state, id);
        if found.is_some() {
            distrust(state);
        }
        Ok(found)
    }

    /// Where an object is, as far as the packs that were listed and the index over them tell.
    pub(super) fn look(&self, state: &mut State, id: &Id) -> Result<Option<Location>> {
        self.open_index(state)?;
        if state.all.is_none()
            && let IndexState::Open(index) = &state.index
        {
            match index.find(id) {
                Some(None) => return Ok(None),
                Some(Some(hint)) => match self.follow_hint(state, hint, id) {
                    Hinted::Right(found) => return Ok(Some(found)),
                    Hinted::Wrong => distrust(state),
                    // An I/O error, or a pack that was replaced just now.
                    Hinted::Unread => {}
                },
                None => state.index = IndexState::Absent,
            }
        }
        Ok(self.look_in_all(state, id))
    }

    fn follow_hint(&self, state: &mut State, hint: Hint, id: &Id) -> Hinted {
        let Some(pack) = self.try_load(state, hint.pack) else {
            return Hinted::Unread;
        };
        match pack.get(id).cloned() {
            // There may be another copy.
            Some(_) if state.unreadable.contains(&(hint.pack, *id)) => Hinted::Unread,
            Some(_) if state.doomed.packs.contains_key(&hint.pack) => Hinted::Unread,
            Some(record) if record.depth == hint.depth => Hinted::Right(Location { pack, record }),
            _ => Hinted::Wrong,
        }
    }

    fn look_in_all(&self, state: &mut State, id: &Id) -> Option<Location> {
        let all = match state.all.take() {
            Some(all) => all,
            None => self.read_all(state),
        };
        let hit = all.get(id).copied();
        state.all = Some(all);
        let pack = self.try_load(state, hit?.0)?;
        let record = pack.get(id)?.clone();
        Some(Location { pack, record })
    }

    pub(super) fn read_all(&self, state: &mut State) -> All {
        let mut all = All::new();
        let ids: Vec<PackId> = state.packs.keys().copied().collect();
        for id in ids {
            let Some(pack) = self.try_load(state, id) else { continue };
            for r in pack.records() {
                let slot = all.entry(r.id).or_insert((id, r.depth));
                // A doomed copy is good to be read, and may be the only one that a chain descends over.
                let rank = |pack, depth| {
                    let unreadable = state.unreadable.contains(&(pack, r.id));
                    (unreadable, depth, state.doomed.packs.contains_key(&pack))
                };
                if rank(id, r.depth) < rank(slot.0, slot.1) {
                    *slot = (id, r.depth);
                }
            }
        }
        all
    }

    /// The shallowest copy that a writer may rely on, where that is not the one that readers take.
    pub(super) fn look_among_kept(&self, state: &mut State, id: &Id) -> Option<Location> {
        let kept = state.packs.keys().copied().filter(|p| !state.doomed.packs.contains_key(p));
        let kept: Vec<PackId> = kept.filter(|p| !state.unreadable.contains(&(*p, *id))).collect();
        self.copies(state, kept, id).min_by_key(|l| l.record.depth)
    }

    /// The copies of an object in these packs, as far as they can be read.
    fn copies(&self, state: &mut State, packs: Vec<PackId>, id: &Id) -> impl Iterator<Item = Location> {
        packs.into_iter().filter_map(move |p| {
            let pack = self.try_load(state, p)?;
            let record = pack.get(id)?.clone();
            Some(Location { pack, record })
        })
    }

    /// A copy of a tensor with fewer deltas to follow than `depth`, which is what a difference to it states: of
    /// several the one that reads well, else the shallowest. A copy that was stored anew may lie deeper than the one
    /// that it stands in for.
    pub(crate) fn find_below(&self, id: &Id, depth: u8) -> Result<Option<Location>> {
        let mut state = self.lock();
        self.list(&mut state)?;
        let packs: Vec<PackId> = state.packs.keys().copied().collect();
        let is_below = |l: &Location| l.record.depth < depth && l.record.kind == Kind::Tensor;
        let copies: Vec<Location> = self.copies(&mut state, packs, id).filter(is_below).collect();
        let rank = |l: &Location| (state.unreadable.contains(&(l.pack.id, *id)), l.record.depth);
        let found = copies.into_iter().min_by_key(rank);
        if found.as_ref().is_some_and(|l| !rank(l).0) {
            // The index had named a copy that is not the shallowest.
            distrust(&mut state);
        }
        Ok(found)
    }

    /// Whether a check found a copy of an object that cannot be read: what is stored in its place must stand on
    /// nothing, since others may state a depth against that copy.
    pub fn has_unreadable_copy(&self, id: &Id) -> Result<bool> {
        let mut state = self.lock();
        self.list(&mut state)?;
        let unreadable = &state.unreadable;
        Ok(!unreadable.is_empty() && state.packs.keys().any(|p| unreadable.contains(&(*p, *id))))
    }

    /// From now on no copy in these packs counts as stored. A list older than one seen before says nothing.
    pub(crate) fn avoid(&self, list: &DoomedPacks) {
        let mut state = self.lock();
        if list.change >= state.doomed.change {
            state.doomed = list.clone();
        }
        (state.listed, state.all) = (false, None);
    }

    /// Whether a pack is one that a writer must not rely on.
    pub(crate) fn is_doomed(&self, pack: &PackId) -> bool {
        self.lock().doomed.packs.contains_key(pack)
    }

    /// Does without the index until it is released: what it said led astray.
    pub(crate) fn do_without_index(&self) {
        let mut state = self.lock();
        distrust(&mut state);
        (state.listed, state.all) = (false, None);
    }
}

/// Where a hint of the index led.
enum Hinted {
    Right(Location),
    /// The pack says otherwise.
    Wrong,
    /// The pack could not be read.
    Unread,
}

/// The index lied: believe the packs, and let the next opening build it anew.
fn distrust(state: &mut State) {
    if let IndexState::Open(index) = std::mem::replace(&mut state.index, IndexState::Absent) {
        let _ = index.clear_packs();
    }
}
