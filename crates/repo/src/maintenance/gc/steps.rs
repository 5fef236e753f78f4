//! A collection on a disk without room for all packs that it writes: as many at once as there is room for, each step
//! complete.
//!
//! What is written anew of a pack also holds what every other one needs, garbage or not. What is written twice for that
//! is less than what the step frees.

use super::{
    Garbage, NOT_DELETED, WHAT,
    plan::{GcPlan, live, needed_beside, packed_len},
};
use crate::{config::is_partial, maintenance::undamaged, repo::Repo};
use mdl_store::{
    Progress, RepoError, Result,
    progress::go_on,
    reachability::{Catalog, Slot, copy},
    transaction::MaintenanceLock,
};
use std::{cmp::Reverse, collections::BTreeSet};

/// Room that is not counted on: directories, the list of packs that go, the reflog.
const MARGIN: u64 = 256 << 10;
/// What a file takes beyond its length.
const BLOCK: u64 = 4 << 10;

/// Whether there is room for all packs that a plan writes before it deletes those that they are made of.
pub(super) fn fits(repo: &Repo, catalog: &Catalog, plan: &GcPlan) -> Result<bool> {
    let Some(room) = repo.storage().room()? else { return Ok(true) };
    Ok(plan.rewrite.is_empty() || written(catalog, plan).saturating_add(MARGIN) <= room)
}

/// Bytes that a plan writes.
fn written(catalog: &Catalog, plan: &GcPlan) -> u64 {
    let new = |p: &usize| packed_len(live(catalog, &plan.kept, *p).iter().map(|s| catalog.record(*s)));
    plan.rewrite.iter().map(new).fold(0, u64::saturating_add)
}

/// Goes on until nothing is left to free.
///
/// # Errors
/// `NoRoom` where not even the smallest step fits; whatever was done before stays done.
pub(super) fn carry_out(
    repo: &Repo,
    lock: &MaintenanceLock<'_>,
    garbage: &Garbage<'_>,
    progress: &dyn Progress,
) -> Result<()> {
    let storage = repo.storage();
    loop {
        go_on(progress, WHAT)?;
        let catalog = Catalog::read(storage, is_partial(storage), |s| (s.modified <= garbage.horizon, s.size))?;
        let catalog = undamaged(catalog, NOT_DELETED)?;
        let Garbage { horizon, roots, gone, options, .. } = garbage;
        let plan = GcPlan::make(&catalog, storage, roots, gone, options, *horizon, progress)?;
        if plan.delete.is_empty() && plan.rewrite.is_empty() {
            return Ok(());
        }
        let free = storage.room()?.unwrap_or(u64::MAX);
        let step = Step::next(repo, &catalog, &plan, free)?;
        if step.delete.is_empty() && step.rewrite.is_empty() {
            return Err(RepoError::NoRoom { wanted: written(&catalog, &plan).saturating_add(MARGIN), free });
        }
        lock.revalidate()?;
        let name = |p: &usize| catalog.packs[*p].pack.id;
        lock.delete_together(&step.delete.iter().map(name).collect())?;
        let mut fresh = BTreeSet::new();
        for (_, slots) in &step.rewrite {
            let mut writer = lock.pack_of_copies()?;
            for slot in slots {
                copy(&catalog, storage, *slot, catalog.record(*slot).depth, &mut writer, progress)?;
            }
            fresh.insert(lock.publish_copies(writer)?);
        }
        let old = step.rewrite.iter().map(|(p, _)| name(p)).filter(|id| !fresh.contains(id));
        lock.delete_together(&old.collect())?;
        repo.odb().reopen();
    }
}

/// What goes next.
#[derive(Debug, Default)]
struct Step {
    /// Packs of which no other one needs anything: they need no room.
    delete: Vec<usize>,
    /// Packs with what of them must be written anew first.
    rewrite: Vec<(usize, Vec<Slot>)>,
}

impl Step {
    /// As much as there is room for, the newest packs first, since nothing older is a difference to them.
    fn next(repo: &Repo, catalog: &Catalog, plan: &GcPlan, room: u64) -> Result<Step> {
        let needed = needed_beside(catalog, repo.storage(), &plan.kept)?;
        let mut packs: Vec<usize> = plan.delete.iter().chain(&plan.rewrite).copied().collect();
        packs.sort_by_key(|p| Reverse(catalog.packs[*p].modified));
        let (mut step, mut wanted) = (Step::default(), MARGIN);
        for p in packs {
            let slots = live(catalog, &needed, p);
            if slots.is_empty() {
                step.delete.push(p);
                continue;
            }
            let len = packed_len(slots.iter().map(|s| catalog.record(*s)));
            let more = wanted.saturating_add(len).saturating_add(BLOCK);
            if len < catalog.packs[p].pack.size && more <= room {
                step.rewrite.push((p, slots));
                wanted = more;
            }
        }
        Ok(step)
    }
}
