//! A collection on a disk without room for all packs that it writes: one pack after the other, each step complete.
//!
//! A step leaves every other pack as it is, so what it writes also holds what those need, garbage or not. What is
//! written twice for that is less than what the step frees.

use super::{
    Garbage, NOT_DELETED, WHAT,
    plan::{GcPlan, left_beside, live, packed_len},
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
        let Some((pack, slots)) = next(repo, &catalog, &plan, free)? else {
            return Err(RepoError::NoRoom { wanted: written(&catalog, &plan).saturating_add(MARGIN), free });
        };
        lock.revalidate()?;
        let old = catalog.packs[pack].pack.id;
        let fresh = if slots.is_empty() {
            None
        } else {
            let mut writer = lock.pack_of_copies()?;
            for slot in slots {
                copy(&catalog, storage, slot, catalog.record(slot).depth, &mut writer, progress)?;
            }
            Some(lock.publish_copies(writer)?)
        };
        lock.delete_together(&BTreeSet::from_iter(Some(old).filter(|id| Some(*id) != fresh)))?;
        repo.odb().reopen();
    }
}

/// The next pack to go, with what of it must be written anew first: one that needs no room before one that does, the
/// newest first, since nothing older is a difference to it.
fn next(repo: &Repo, catalog: &Catalog, plan: &GcPlan, room: u64) -> Result<Option<(usize, Vec<Slot>)>> {
    let mut packs: Vec<usize> = plan.delete.iter().chain(&plan.rewrite).copied().collect();
    packs.sort_by_key(|p| Reverse(catalog.packs[*p].modified));
    let mut smallest = None;
    for p in packs {
        let wider = left_beside(catalog, repo.storage(), &plan.kept, p)?;
        let slots = live(catalog, &wider, p);
        if slots.is_empty() {
            return Ok(Some((p, slots)));
        }
        let len = packed_len(slots.iter().map(|s| catalog.record(*s)));
        if smallest.is_none() && len < catalog.packs[p].pack.size && len.saturating_add(MARGIN) <= room {
            smallest = Some((p, slots));
        }
    }
    Ok(smallest)
}
