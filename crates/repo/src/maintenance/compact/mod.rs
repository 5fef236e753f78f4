//! Compaction: short delta chains for the versions people read, few packs instead of many.
//!
//! New packs are written while commits go on. Only the deletion of packs whose every object has been seen in another
//! one locks all writers out, and it looks again before it deletes. A kill anywhere leaves objects twice, never less
//! than once.

mod merge;
mod rebase;

use crate::{
    aging::in_windows,
    config::is_partial,
    maintenance::{
        gc::{beside_collectors, grace, millis, rescue_reached},
        undamaged,
    },
    pruned,
    repo::Repo,
};
use mdl_objects::Id;
use mdl_store::{
    Progress, Result,
    pack::PackId,
    progress::go_on,
    reachability::{Catalog, roots},
    storage::{Storage, StoredKey},
    transaction::MaintenanceLock,
};
use rebase::Rebase;
pub use rebase::encode as encode_anew;
use serde::Serialize;
use std::{
    cmp::Reverse,
    collections::{BTreeSet, HashSet},
};

/// Names the operation in `Stopped` errors.
const WHAT: &str = "the compaction";

/// What a compaction may do.
#[derive(Clone, Copy, Debug, Default)]
pub struct CompactOptions {
    /// Only say what would be done; bytes are then an estimate.
    pub dry_run: bool,
}

/// What a compaction did, or would do. As JSON it is what `mdl compact --json` prints and what the server's job ends
/// with: quantities are named as everywhere there (docs/cli-json.md).
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct CompactReport {
    /// Whether nothing was changed.
    pub dry_run: bool,
    /// Packs before.
    pub packs_before: u64,
    /// Packs after.
    pub packs_after: u64,
    /// Bytes of all packs before.
    #[serde(rename = "stored_bytes_before")]
    pub bytes_before: u64,
    /// Bytes of all packs after.
    #[serde(rename = "stored_bytes_after")]
    pub bytes_after: u64,
    /// Tensors that were encoded anew.
    pub tensors_reencoded: u64,
    /// Bytes that these take, estimated.
    #[serde(skip)]
    pub bytes_reencoded: u64,
    /// Deltas that the deepest reachable tensor needed before.
    pub deepest_before: u64,
    /// Deltas that the deepest reachable tensor needs now.
    pub deepest_after: u64,
}

/// Of equal copies the one in the larger pack is taken: merged packs win over what they were merged from.
fn larger_first(s: &StoredKey) -> Reverse<u64> {
    Reverse(s.size)
}

/// Encodes tensors anew whose chains are too long (those of branch tips beyond 1 delta, of tags beyond 4, all
/// others beyond `delta.max_depth`), or whose delta bases are in pruned versions only, and merges small packs. A
/// second run does nothing.
///
/// # Errors
/// Damaged packs, refs or objects; an I/O error; `Stopped`. Nothing is lost on any error.
pub fn compact(repo: &Repo, options: &CompactOptions, progress: &dyn Progress) -> Result<CompactReport> {
    let mut report = beside_collectors(repo, || shorten(repo, options, progress))?;
    if !options.dry_run {
        beside_collectors(repo, || merge_packs(repo, progress))?;
        let catalog = kept(repo.storage())?;
        report.packs_after = catalog.packs.len() as u64;
        report.bytes_after = catalog.bytes();
    }
    Ok(report)
}

fn shorten(repo: &Repo, options: &CompactOptions, progress: &dyn Progress) -> Result<CompactReport> {
    let storage = repo.storage();
    let lock = MaintenanceLock::beside_writers(repo)?;
    repo.odb().reopen();
    let roots = roots(repo.refs(), Some(i64::MIN))?.complete()?;
    let catalog = require_undamaged(Catalog::read(storage, is_partial(storage), larger_first)?)?;
    go_on(progress, WHAT)?;
    // Pruned versions that are still whole are read like all others until a collection takes them.
    let record = pruned(repo)?;
    let gone = pruned::pruned_contents(repo, &catalog, &roots, &record, i64::MIN, &HashSet::new())?;
    let pruned = pruned::pruned_contents(repo, &catalog, &roots, &record, i64::MAX, &in_windows(repo, &record)?)?;
    if !options.dry_run {
        rescue_reached(&lock, storage, &catalog, &roots, &gone)?;
    }
    let is_quantised = |id: &Id| repo.odb().tensor(id).is_ok_and(|reader| reader.is_quantised());
    let plan = Rebase::plan(&catalog, storage, &roots, (&gone, &pruned), repo.config.max_depth(), &is_quantised)?;
    if !options.dry_run && !plan.jobs.is_empty() {
        progress.begin("encoding tensors anew", plan.logical(&catalog));
        for pack in plan.carry_out(&lock, &catalog, repo.odb(), progress)? {
            repo.odb().note_pack(pack)?;
        }
        progress.end();
    }
    // What is doomed is replaced already.
    let is_any_doomed = catalog.doomed().next().is_some();
    let others = is_any_doomed.then(|| kept(storage).and_then(require_undamaged)).transpose()?;
    let packs = others.as_ref().unwrap_or(&catalog);
    let groups = merge::plan(packs);
    let (merged, size): (usize, u64) = groups.iter().fold((0, 0), |(n, size), g| {
        let old: u64 = g.packs.iter().map(|p| packs.packs[*p].pack.size).sum();
        (n + g.packs.len() - usize::from(g.len > 0), size + old.saturating_sub(g.len))
    });
    let jobs = plan.jobs.len() as u64;
    Ok(CompactReport {
        dry_run: options.dry_run,
        packs_before: packs.packs.len() as u64,
        packs_after: (packs.packs.len() - merged) as u64,
        bytes_before: packs.bytes(),
        bytes_after: packs.bytes() - size + plan.estimate(&catalog),
        tensors_reencoded: jobs,
        bytes_reencoded: plan.estimate(&catalog),
        deepest_before: plan.deepest_before,
        deepest_after: plan.deepest_after,
    })
}

/// One group after the other, so that no more than one merged pack's length of space is needed.
fn merge_packs(repo: &Repo, progress: &dyn Progress) -> Result<()> {
    let mut tries = kept(repo.storage())?.packs.len();
    while merge_group(repo, progress)? && tries > 0 {
        tries -= 1;
    }
    Ok(())
}

/// Merges the first group there is; false if there is none.
fn merge_group(repo: &Repo, progress: &dyn Progress) -> Result<bool> {
    let storage = repo.storage();
    go_on(progress, WHAT)?;
    let (old, fresh) = {
        let lock = MaintenanceLock::beside_writers(repo)?;
        let catalog = require_undamaged(kept(storage)?)?;
        let Some(group) = merge::plan(&catalog).into_iter().next() else {
            return Ok(false);
        };
        progress.begin("merging packs", group.len);
        let fresh = merge::write(&lock, &catalog, storage, &group, progress)?;
        progress.end();
        let old: BTreeSet<PackId> = group.packs.iter().map(|p| catalog.packs[*p].pack.id).collect();
        (old, fresh)
    };
    // A merge that was cut off may have had the same outcome: what was just written is not deleted.
    let old = old.into_iter().filter(|p| Some(*p) != fresh).collect();
    let alone = MaintenanceLock::exclusive(repo)?;
    let catalog = require_undamaged(kept(storage)?)?;
    let gone = merge::redundant(&catalog, &old);
    alone.revalidate()?;
    if storage.excludes() {
        alone.delete_each(&gone)?;
    } else {
        alone.doom(&gone, millis(grace(repo, None)))?;
    }
    repo.odb().reopen();
    Ok(!gone.is_empty())
}

/// The packs that are not doomed.
fn kept(storage: &dyn Storage) -> Result<Catalog> {
    Catalog::read_kept(storage, is_partial(storage), larger_first)
}

/// Packs that cannot be read may hold what seems to be missing: nothing is moved around them.
fn require_undamaged(catalog: Catalog) -> Result<Catalog> {
    undamaged(catalog, "nothing was compacted")
}
