//! Garbage collection: deletes what no ref, HEAD or reflog can reach.
//!
//! In a storage with locks the order is: kept objects of a mixed pack are durable in a new pack; then the old packs are
//! doomed, all at once; then they are deleted one by one. A kill anywhere leaves every reachable object readable, and
//! the next writer finishes.

mod imports;
mod phases;
mod plan;
mod steps;

pub use imports::IMPORT_DIR;
pub(crate) use phases::{beside_collectors, rescue_reached};

use crate::{
    aging::in_windows,
    commit,
    config::is_partial,
    maintenance::{gc::phases::gc_in_phases, undamaged},
    pruned,
    repo::Repo,
    shards,
};
use mdl_store::{
    Progress, RepoError, Result, Silent, error,
    lock::now_ms,
    pack::PackId,
    progress::go_on,
    reachability::{Catalog, Marks, PrunedContents, Root, copy, roots},
    storage::Storage,
    transaction::MaintenanceLock,
};
use plan::{GcPlan, far_future, horizon, live, packed_len};
use serde::Serialize;
use std::{
    collections::BTreeSet,
    time::{Duration, SystemTime},
};

pub(crate) const HOUR_MS: i64 = 3600 * 1000;
pub(crate) const DAY_MS: i64 = 24 * HOUR_MS;
/// Names the operation in `Stopped` errors.
const WHAT: &str = "the collection";
/// What follows for the user of a pack that cannot be read.
const NOT_DELETED: &str = "nothing was deleted, since what it holds is unknown";

/// What a collection may do.
#[derive(Clone, Copy, Debug, Default)]
pub struct GcOptions {
    /// Only say what would be done.
    pub dry_run: bool,
    /// Neither the reflog nor the grace period keeps anything, of pruned versions neither. Moves in the reflog that
    /// name what is deleted go with it.
    pub prune_now: bool,
    /// How long unreachable objects stay; none for `gc.grace_hours`. In a storage without locks no writer may take
    /// longer than half of it from its first look to its ref's move; with a grace of zero no writer may run beside the
    /// collection.
    pub grace: Option<Duration>,
}

/// What a collection did, or would do. As JSON it is what `mdl gc --json` prints and what the server's job ends with:
/// quantities are named as everywhere there (docs/cli-json.md).
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct GcReport {
    /// Whether nothing was changed.
    pub dry_run: bool,
    /// Packs before.
    pub packs_before: u64,
    /// Packs after.
    pub packs_after: u64,
    /// Distinct objects before.
    pub objects_before: u64,
    /// Distinct objects after.
    pub objects_after: u64,
    /// Bytes of all packs before.
    #[serde(rename = "stored_bytes_before")]
    pub bytes_before: u64,
    /// Bytes of all packs after.
    #[serde(rename = "stored_bytes_after")]
    pub bytes_after: u64,
    /// Bytes freed, dead uploads included.
    #[serde(rename = "freed_bytes")]
    pub bytes_freed: u64,
    /// Packs that held nothing reachable.
    pub packs_deleted: u64,
    /// Packs whose reachable objects moved to a new one.
    pub packs_rewritten: u64,
    /// Packs that were doomed: what was in them and is kept is elsewhere, and a later collection deletes them. None in
    /// a storage with locks: packs are then deleted at once.
    pub packs_condemned: u64,
    /// Bytes of these.
    #[serde(rename = "condemned_bytes")]
    pub bytes_condemned: u64,
    /// Packs that are doomed and still there, these and earlier ones.
    pub packs_waiting: u64,
    /// Bytes of these.
    #[serde(rename = "waiting_bytes")]
    pub bytes_waiting: u64,
    /// Bytes that dead uploads and imports had left behind.
    #[serde(rename = "abandoned_bytes")]
    pub upload_bytes: u64,
    /// Versions pruned long enough ago whose contents nothing refers to any more, those that lost them before included.
    #[serde(rename = "pruned_versions")]
    pub pruned: u64,
    /// Versions for whose exact contents something else stands: an approximation, or what is left without optimizer
    /// state.
    #[serde(rename = "aged_versions")]
    pub aged: u64,
}

/// Deletes unreachable objects. Roots are all refs, HEAD and the moves of the last `gc.reflog_days`; everything in
/// a pack younger than `gc.grace_hours` stays. What stays is complete: with everything it refers to, except that of
/// a version pruned at least `gc.grace_hours` ago only the commit stays.
///
/// # Errors
/// A damaged ref, a damaged record of pruned versions, a pack that cannot be read, an absent or damaged commit,
/// tree or manifest: then nothing is deleted, since what lies behind is unknown. An I/O error. `Stopped`:
/// garbage is left, as much as there was or less.
pub fn gc(repo: &Repo, options: &GcOptions, progress: &dyn Progress) -> Result<GcReport> {
    if !repo.storage().excludes() {
        return gc_in_phases(repo, options, progress);
    }
    collect(repo, options, horizon(options, grace(repo, options.grace)), progress)
}

/// Like `gc`, in a storage with locks, but sharded commits and staged files that are under way have the ordinary time
/// of grace whatever the options say: a job that runs may have no other copy of them.
pub(super) fn gc_beside_jobs(repo: &Repo, options: &GcOptions, progress: &dyn Progress) -> Result<GcReport> {
    collect(repo, options, ordinary_horizon(repo), progress)
}

/// `unfinished`: from when on sharded commits and staged files stay.
fn collect(repo: &Repo, options: &GcOptions, unfinished: SystemTime, progress: &dyn Progress) -> Result<GcReport> {
    let storage = repo.storage();
    let alone = MaintenanceLock::exclusive(repo)?;
    if !options.dry_run {
        alone.finish_deletion()?;
    }
    let since = (!options.prune_now).then(|| ago(repo.config.reflog_days(), DAY_MS));
    let roots = roots(repo.refs(), since)?.complete()?;
    let horizon = horizon(options, grace(repo, options.grace));
    // Of equal copies the one that stays anyway is kept, then the one in the smaller pack: a rewrite that an
    // earlier collection left is smaller than what it came from.
    let catalog = Catalog::read(storage, is_partial(storage), |s| (s.modified <= horizon, s.size))?;
    let catalog = undamaged(catalog, NOT_DELETED)?;
    go_on(progress, WHAT)?;
    progress.begin("looking for garbage", 0);
    let (record, until) = (pruned(repo)?, pruned_until(repo, options));
    let gone = pruned::pruned_contents(repo, &catalog, &roots, &record, until, &in_windows(repo, &record)?)?;
    let roots = [roots, noted(storage, unfinished)?].concat();
    let plan = GcPlan::make(&catalog, storage, &roots, &gone, options, horizon, progress)?;
    progress.end();
    go_on(progress, WHAT)?;
    let mut report = foretell(&catalog, &plan);
    report.pruned = gone.count() as u64;
    report.aged = gone.count_aged() as u64;
    report.dry_run = options.dry_run;
    // What dead uploads left goes first: it makes room for the rest.
    report.upload_bytes = storage.sweep_uploads(options.dry_run)?;
    report.upload_bytes += imports::sweep(repo, ordinary_horizon(repo), options.dry_run);
    // Before any pack: no record may name what is gone while it could still be joined.
    shards::sweep(storage, unfinished, options.dry_run)?;
    if !options.dry_run {
        commit::sweep_staged(storage, unfinished)?;
        mdl_lossy::sweep_candidates(repo);
        let garbage = Garbage { since, horizon, roots: &roots, gone: &gone, options };
        let done = carry_out(repo, &alone, &garbage, &catalog, &plan, progress);
        if let Err(e) = done {
            if !is_full(&e) || !make_room(repo, &alone, &catalog, &plan)? {
                return Err(e);
            }
            carry_out(repo, &alone, &garbage, &catalog, &plan, progress)?;
        }
        // What is deleted is deleted: no decoded copy stays.
        if let Some(cache) = repo.odb().cache() {
            cache.retain(|id| repo.odb().contains(id).unwrap_or(false));
            // A size may be set for the user, or have been while another process kept something.
            cache.keep_to_size();
        }
    }
    report.bytes_freed = report.bytes_before.saturating_sub(report.bytes_after) + report.upload_bytes;
    Ok(report)
}

/// How long unreachable objects stay.
pub(crate) fn grace(repo: &Repo, given: Option<Duration>) -> Duration {
    let hours = repo.config.grace_hours().saturating_mul(3600);
    given.unwrap_or(Duration::from_secs(hours))
}

/// Versions that were pruned by then lose their contents.
fn pruned_until(repo: &Repo, options: &GcOptions) -> i64 {
    if options.prune_now {
        return i64::MAX;
    }
    now_ms().saturating_sub(millis(grace(repo, options.grace)))
}

/// Drops moves that are too old, or that name what is about to be deleted.
fn expire(repo: &Repo, lock: &MaintenanceLock<'_>, since: Option<i64>, catalog: &Catalog, kept: &Marks) -> Result<()> {
    for name in repo.refs().logged()? {
        lock.keep_log(&name, &|e| match since {
            Some(oldest) => e.who.time_ms >= oldest,
            None => e.old.iter().chain(&e.new).all(|id| kept.has_id(catalog, id)),
        })?;
    }
    Ok(())
}

/// What a collection goes by.
struct Garbage<'a> {
    /// From when on moves keep what they name; none: never.
    since: Option<i64>,
    /// From when on a pack is too young.
    horizon: SystemTime,
    roots: &'a [Root],
    gone: &'a PrunedContents,
    options: &'a GcOptions,
}

fn carry_out(
    repo: &Repo,
    lock: &MaintenanceLock<'_>,
    garbage: &Garbage<'_>,
    catalog: &Catalog,
    plan: &GcPlan,
    progress: &dyn Progress,
) -> Result<()> {
    // A lock whose file was deleted kept no writer out: what this has seen is old.
    lock.revalidate()?;
    expire(repo, lock, garbage.since, catalog, &plan.kept)?;
    let first = plan.delete_first.iter().map(|p| catalog.packs[*p].pack.id);
    lock.delete_together(&first.collect())?;
    if !steps::fits(repo, catalog, plan)? {
        steps::carry_out(repo, lock, garbage, progress)?;
        return forget(repo, lock, catalog, plan);
    }
    let fresh = rewrite(repo, lock, catalog, plan, progress)?;
    let old = plan.rewrite.iter().chain(&plan.delete).map(|p| catalog.packs[*p].pack.id);
    lock.revalidate()?;
    // A rewrite that an earlier collection was cut off after may have had the same outcome.
    lock.delete_together(&old.filter(|id| !fresh.contains(id)).collect())?;
    repo.odb().reopen();
    forget(repo, lock, catalog, plan)
}

/// Takes commits that are gone off the record of pruned versions. Last: a record without its commit does no harm, a
/// commit without its contents and its record would be damage.
fn forget(repo: &Repo, lock: &MaintenanceLock<'_>, catalog: &Catalog, plan: &GcPlan) -> Result<()> {
    pruned::change(lock, repo.storage(), |p| {
        p.keep(|_, id| plan.kept.has_id(catalog, id));
    })
}

/// On a disk so full that not even the list of packs to delete can be written: deletes one that can go by itself.
fn make_room(repo: &Repo, lock: &MaintenanceLock<'_>, catalog: &Catalog, plan: &GcPlan) -> Result<bool> {
    let roots = roots(repo.refs(), Some(i64::MIN))?.complete()?;
    let Some(p) = plan.lone(catalog, repo.storage(), &roots)? else {
        return Ok(false);
    };
    lock.delete_each([&catalog.packs[p].pack.id])?;
    repo.odb().reopen();
    Ok(true)
}

/// Moves what is kept of mixed packs to new ones.
fn rewrite(
    repo: &Repo,
    lock: &MaintenanceLock<'_>,
    catalog: &Catalog,
    plan: &GcPlan,
    progress: &dyn Progress,
) -> Result<BTreeSet<PackId>> {
    let total = plan.rewrite.iter().map(|p| catalog.packs[*p].pack.size).sum();
    progress.begin("rewriting packs", total);
    let mut fresh = BTreeSet::new();
    for pack in &plan.rewrite {
        let mut writer = lock.pack_of_copies()?;
        for slot in live(catalog, &plan.kept, *pack) {
            go_on(progress, WHAT)?;
            copy(catalog, repo.storage(), slot, catalog.record(slot).depth, &mut writer, progress)?;
        }
        fresh.insert(lock.publish_copies(writer)?);
    }
    progress.end();
    Ok(fresh)
}

/// From when on what no ref reaches is too young for an ordinary collection.
pub(crate) fn ordinary_horizon(repo: &Repo) -> SystemTime {
    horizon(&GcOptions::default(), grace(repo, None))
}

/// What sharded sessions and staged files rely on for the time of grace, though no ref holds it.
pub(crate) fn noted(storage: &dyn Storage, horizon: SystemTime) -> Result<Vec<Root>> {
    Ok([shards::roots(storage, horizon)?, commit::staged_roots(storage, horizon)?].concat())
}

fn is_full(e: &RepoError) -> bool {
    matches!(e, RepoError::Io { source, .. } if error::is_full(source))
}

fn foretell(catalog: &Catalog, plan: &GcPlan) -> GcReport {
    let size = |p: &usize| catalog.packs[*p].pack.size;
    let before = catalog.bytes();
    let gone: u64 = plan.delete.iter().chain(&plan.rewrite).map(size).sum();
    let new = |p: &usize| packed_len(live(catalog, &plan.kept, *p).iter().map(|s| catalog.record(*s)));
    GcReport {
        packs_before: catalog.packs.len() as u64,
        packs_after: (catalog.packs.len() - plan.delete.len()) as u64,
        objects_before: catalog.count() as u64,
        objects_after: plan.kept.count() as u64,
        bytes_before: before,
        bytes_after: before - gone + plan.rewrite.iter().map(new).sum::<u64>(),
        packs_deleted: plan.delete.len() as u64,
        packs_rewritten: plan.rewrite.len() as u64,
        ..GcReport::default()
    }
}

/// Bytes that a collection would free for the commits that are in `after` and not in `before`, once their time of grace
/// is over.
pub(crate) fn freed_by(
    catalog: &Catalog,
    storage: &dyn Storage,
    roots: &[Root],
    (before, after): (&PrunedContents, &PrunedContents),
    options: &GcOptions,
) -> Result<u64> {
    let bytes = |gone: &PrunedContents| {
        let plan = GcPlan::make(catalog, storage, roots, gone, options, far_future(), &Silent)?;
        Ok(foretell(catalog, &plan).bytes_after)
    };
    let before: Result<u64> = bytes(before);
    Ok(before?.saturating_sub(bytes(after)?))
}

/// The moment so many days (`DAY_MS`) or hours (`HOUR_MS`) ago; of more than there are, the beginning of time.
pub(crate) fn ago(count: u64, unit_ms: i64) -> i64 {
    now_ms().saturating_sub(i64::try_from(count).unwrap_or(i64::MAX).saturating_mul(unit_ms))
}

/// A span in milliseconds.
pub(crate) fn millis(span: Duration) -> i64 {
    i64::try_from(span.as_millis()).unwrap_or(i64::MAX)
}
