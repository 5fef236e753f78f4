//! Plans a garbage collection: what is kept and which packs go.

use crate::maintenance::{
    gc::{GcOptions, WHAT},
    is_unmovable, taken,
};
use mdl_store::{
    Progress, Result,
    pack::Record,
    progress::go_on,
    reachability::{Catalog, Marks, OnDamage, PACK_FIXED, PrunedContents, Root, Slot, is_worth, record_bytes},
    storage::Storage,
};
use std::{
    cmp::Reverse,
    collections::BTreeSet,
    iter,
    time::{Duration, SystemTime},
};

/// What a collection is going to do with the packs of a catalog.
#[derive(Debug)]
pub(super) struct GcPlan {
    /// Objects that stay: closed under references and bases.
    pub kept: Marks,
    /// Packs without anything that is kept.
    pub delete: Vec<usize>,
    /// Those of them that nothing in a pack of `rewrite` needs either: they can go first, and make room.
    pub delete_first: Vec<usize>,
    /// Packs whose kept objects move to a new pack.
    pub rewrite: Vec<usize>,
    /// Doomed packs that hold something that is kept.
    pub rescued: Vec<usize>,
}

/// From when on a pack is too young to be touched.
pub(super) fn horizon(options: &GcOptions, grace: Duration) -> SystemTime {
    if options.prune_now {
        return far_future();
    }
    SystemTime::now().checked_sub(grace).unwrap_or(SystemTime::UNIX_EPOCH)
}

/// From when on no pack is too young.
pub(super) fn far_future() -> SystemTime {
    SystemTime::now() + Duration::from_secs(1 << 32)
}

/// The copies of a pack that are kept, in the order they lie in it: their objects are, and readers take them.
pub(super) fn live(catalog: &Catalog, kept: &Marks, pack: usize) -> Vec<Slot> {
    let mut out = taken(catalog, pack);
    out.retain(|s| kept.has(catalog.number_of(*s)));
    out
}

/// Length of a pack that holds just these copies.
pub(super) fn packed_len<'a>(records: impl Iterator<Item = &'a Record>) -> u64 {
    records.map(record_bytes).fold(PACK_FIXED, u64::saturating_add)
}

impl GcPlan {
    /// Marks from the roots and sorts the packs.
    ///
    /// # Errors
    /// A root cannot be followed to its end: nothing may be deleted then. An I/O error.
    pub fn make(
        catalog: &Catalog,
        storage: &dyn Storage,
        roots: &[Root],
        gone: &PrunedContents,
        options: &GcOptions,
        horizon: SystemTime,
        progress: &dyn Progress,
    ) -> Result<GcPlan> {
        let mut kept = Marks::new(catalog, gone);
        for root in roots {
            go_on(progress, WHAT)?;
            // A reflog may name what an earlier collection, told to, has deleted.
            if root.firm || catalog.find(&root.id).is_some() {
                kept.mark(catalog, storage, (root.id, None), OnDamage::Refuse)?;
            }
        }
        let mut stays = BTreeSet::new();
        for (p, pack) in catalog.packs.iter().enumerate() {
            go_on(progress, WHAT)?;
            if pack.modified > horizon && pack.doomed.is_none() {
                leave(catalog, storage, &mut kept, &mut stays, p)?;
            }
        }
        let mut rescued = Vec::new();
        // Leaving a pack as it is keeps everything in it, and what that needs; which may make another one worth less.
        loop {
            let (mut delete, mut rewrite, mut changed) = (Vec::new(), Vec::new(), false);
            for p in (0..catalog.packs.len()).filter(|p| !stays.contains(p)).collect::<Vec<_>>() {
                let live = live(catalog, &kept, p);
                let size = catalog.packs[p].pack.size;
                let freed = size.saturating_sub(packed_len(live.iter().map(|s| catalog.record(*s))));
                let worth = is_worth(freed, size) || options.prune_now;
                let doomed = catalog.packs[p].doomed.is_some();
                if live.is_empty() {
                    delete.extend((!doomed).then_some(p));
                } else if doomed || is_unmovable(catalog, &live) || freed > 0 && !worth {
                    leave(catalog, storage, &mut kept, &mut stays, p)?;
                    rescued.extend(doomed.then_some(p));
                    changed = true;
                } else if freed > 0 {
                    rewrite.push(p);
                }
            }
            if !changed {
                let others = if delete.is_empty() { &[] } else { rewrite.as_slice() };
                let delete_first = not_needed(catalog, storage, &kept, others, &delete)?;
                return Ok(GcPlan { kept, delete, delete_first, rewrite, rescued });
            }
        }
    }

    /// A pack that can go by itself, with nothing written before: nothing in any other pack, and no move in a reflog,
    /// needs it. The newest that there is.
    pub fn lone(&self, catalog: &Catalog, storage: &dyn Storage, all_roots: &[Root]) -> Result<Option<usize>> {
        let mut kept = self.kept.clone();
        for root in all_roots {
            kept.mark(catalog, storage, (root.id, None), OnDamage::PassOver)?;
        }
        let mut candidates = self.delete.clone();
        candidates.sort_by_key(|p| Reverse(catalog.packs[*p].modified));
        for p in candidates {
            let others: Vec<usize> = (0..catalog.packs.len()).filter(|o| *o != p).collect();
            if !not_needed(catalog, storage, &kept, &others, &[p])?.is_empty() {
                return Ok(Some(p));
            }
        }
        Ok(None)
    }

    /// Which of some doomed packs can be deleted: those that hold nothing which is kept, or which any pack that stays
    /// needs. Packs that are only now to be doomed count as staying: a concurrent writer may be building on them.
    pub fn expendable(&self, catalog: &Catalog, storage: &dyn Storage, over: BTreeSet<usize>) -> Result<Vec<usize>> {
        let mut going: Vec<usize> = over.into_iter().collect();
        loop {
            let stay: Vec<usize> = (0..catalog.packs.len()).filter(|p| !going.contains(p)).collect();
            let free = not_needed(catalog, storage, &self.kept, &stay, &going)?;
            if free.len() == going.len() {
                return Ok(going);
            }
            going = free;
        }
    }
}

/// Which of `packs` hold nothing that is kept once the packs `others` stay as they are too.
fn not_needed(
    catalog: &Catalog,
    storage: &dyn Storage,
    kept: &Marks,
    others: &[usize],
    packs: &[usize],
) -> Result<Vec<usize>> {
    let (mut wider, mut stays) = (kept.clone(), BTreeSet::new());
    for p in others {
        leave(catalog, storage, &mut wider, &mut stays, *p)?;
    }
    let packs = packs.iter().copied();
    Ok(packs.filter(|p| live(catalog, &wider, *p).is_empty()).collect())
}

/// What stays of each pack if that pack alone goes: what is kept, and what any other pack, as it is, needs. Each object
/// is looked at once, however many packs there are.
pub(super) fn needed_beside(catalog: &Catalog, storage: &dyn Storage, kept: &Marks) -> Result<Marks> {
    let mut needed = kept.clone();
    // Packs that name an object, as a copy or a base: none yet, one, or several.
    let mut namers: Vec<Option<Option<usize>>> = vec![None; catalog.count()];
    for (p, slot) in (0..catalog.packs.len()).flat_map(|p| catalog.slots(p).map(move |slot| (p, slot))) {
        let record = catalog.record(slot);
        for n in iter::once(record.id).chain(record.bases()).filter_map(|id| catalog.find(&id)) {
            let namer = &mut namers[n as usize];
            *namer = Some(namer.map_or(Some(p), |before| before.filter(|one| *one == p)));
        }
    }
    let only = |n: u32| namers[n as usize].flatten();
    let objects = || (0..).zip(&namers).map(|(n, _)| n);
    objects().filter(|n| only(*n).is_none()).for_each(|n| needed.mark_alone(n));
    let mut within: Vec<Vec<u32>> = vec![Vec::new(); catalog.count()];
    for n in objects() {
        let (inside, outside): (Vec<u32>, Vec<u32>) =
            kept.needed_by(catalog, storage, n)?.into_iter().partition(|m| only(*m) == only(n));
        outside.into_iter().for_each(|m| needed.mark_alone(m));
        within[n as usize] = inside;
    }
    let mut stack: Vec<u32> = needed.iter().collect();
    while let Some(n) = stack.pop() {
        for m in std::mem::take(&mut within[n as usize]) {
            needed.mark_alone(m);
            stack.push(m);
        }
    }
    Ok(needed)
}

fn leave(
    catalog: &Catalog,
    storage: &dyn Storage,
    kept: &mut Marks,
    stays: &mut BTreeSet<usize>,
    pack: usize,
) -> Result<()> {
    stays.insert(pack);
    catalog.slots(pack).try_for_each(|s| kept.mark_copy(catalog, storage, s))
}
