//! Garbage collection in a storage without locks: packs are doomed first, and deleted by a later collection once their
//! time of grace is over and nothing needs them.
//!
//! Everything hangs on one key, the list, and on when it is swapped: [`MaintenanceLock`] has that.

use crate::{
    aging::in_windows,
    config::is_partial,
    maintenance::{
        gc::{
            DAY_MS, GcOptions, GcReport, NOT_DELETED, WHAT, ago, expire, foretell, grace, millis, noted,
            plan::{GcPlan, horizon, live},
            pruned_until, rewrite,
        },
        marked, undamaged,
    },
    pruned,
    repo::Repo,
};
use mdl_store::{
    Progress, RepoError, Result,
    lock::now_ms,
    pack::PackId,
    progress::go_on,
    reachability::{Catalog, Marks, PrunedContents, Root, roots},
    storage::Storage,
    transaction::MaintenanceLock,
};
use std::{collections::BTreeSet, thread::sleep, time::Duration};

/// How often a collection begins anew because other processes changed the list meanwhile.
const TRIES: usize = 20;
/// A grace that one call waits for, to delete what it has doomed.
const SHORT: Duration = Duration::from_secs(10);

/// Runs `f` again where a concurrent collector deleted what it was reading, or changed the list it went by.
pub(crate) fn beside_collectors<T>(repo: &Repo, f: impl Fn() -> Result<T>) -> Result<T> {
    let overtaken = |e: &RepoError| {
        let gone = matches!(e, RepoError::NotFound { what, .. } if what.is_stored());
        gone || matches!(e, RepoError::Overtaken)
    };
    let mut tries = if repo.storage().excludes() { 1 } else { TRIES };
    loop {
        tries -= 1;
        match f() {
            Err(e) if tries > 0 && overtaken(&e) => repo.odb().reopen(),
            done => return done,
        }
    }
}

pub(super) fn gc_in_phases(repo: &Repo, options: &GcOptions, progress: &dyn Progress) -> Result<GcReport> {
    let mut report = beside_collectors(repo, || round(repo, options, progress))?;
    let grace = grace(repo, options.grace);
    if !options.dry_run && report.packs_waiting > 0 && grace <= SHORT {
        wait(grace, progress)?;
        let second = beside_collectors(repo, || round(repo, options, progress))?;
        report = both(report, second);
    }
    Ok(report)
}

/// Deletes what was doomed long enough ago, and dooms what is garbage now.
fn round(repo: &Repo, options: &GcOptions, progress: &dyn Progress) -> Result<GcReport> {
    let storage = repo.storage();
    let lock = MaintenanceLock::beside_writers(repo)?;
    if !options.dry_run {
        lock.take_up()?;
    }
    // First the time, then the refs, then the packs: what a writer in time did to either is seen.
    let (now, grace) = (now_ms(), grace(repo, options.grace));
    let since = (!options.prune_now).then(|| ago(repo.config.reflog_days(), DAY_MS));
    let roots = roots(repo.refs(), since)?.complete()?;
    let horizon = horizon(options, grace);
    let noted = noted(storage, horizon)?;
    let catalog = Catalog::read(storage, is_partial(storage), |s| (s.modified <= horizon, s.size))?;
    let catalog = undamaged(catalog, NOT_DELETED)?;
    go_on(progress, WHAT)?;
    progress.begin("looking for garbage", 0);
    let (record, until) = (pruned(repo)?, pruned_until(repo, options));
    let gone = pruned::pruned_contents(repo, &catalog, &roots, &record, until, &in_windows(repo, &record)?)?;
    let roots = [roots, noted].concat();
    let plan = GcPlan::make(&catalog, storage, &roots, &gone, options, horizon, progress)?;
    let over = catalog.doomed().filter(|(_, s)| s.over_ms() <= now).map(|(p, _)| p);
    let going = plan.expendable(&catalog, storage, over.collect())?;
    progress.end();
    go_on(progress, WHAT)?;
    let mut report = forecast(&catalog, &plan, &going);
    report.pruned = gone.count() as u64;
    report.aged = gone.count_aged() as u64;
    report.dry_run = options.dry_run;
    report.upload_bytes = storage.sweep_uploads(options.dry_run)?;
    report.bytes_freed = sum(&catalog, &going) + report.upload_bytes;
    if options.dry_run {
        return Ok(report);
    }
    expire(repo, &lock, since, &catalog, &plan.kept)?;
    let id = |p: &usize| catalog.packs[*p].pack.id;
    lock.decide(&catalog.seen, &plan.rescued.iter().map(id).collect(), &going.iter().map(id).collect())?;
    let fresh = rewrite(repo, &lock, &catalog, &plan, progress)?;
    let old = plan.rewrite.iter().chain(&plan.delete).copied();
    // Waiting packs are named too: this grace may end sooner than theirs.
    let waiting = waiting(&catalog, &plan, &going);
    let old = old.chain(waiting).map(|p| catalog.packs[p].pack.id);
    lock.doom(&old.filter(|id| !fresh.contains(id)).collect(), millis(grace))?;
    repo.odb().reopen();
    Ok(report)
}

/// Takes doomed packs that hold something reachable from the roots off the list, for a caller that is about to
/// build on it.
///
/// # Errors
/// As marking; `Overtaken` where one is being deleted.
pub(crate) fn rescue_reached(
    lock: &MaintenanceLock<'_>,
    storage: &dyn Storage,
    catalog: &Catalog,
    roots: &[Root],
    gone: &PrunedContents,
) -> Result<()> {
    if catalog.doomed().next().is_none() {
        return Ok(());
    }
    let kept = marked(catalog, storage, roots, Marks::new(catalog, gone))?;
    let all = catalog.doomed().map(|(p, _)| p);
    let reached = all.filter(|p| !live(catalog, &kept, *p).is_empty());
    let packs: BTreeSet<PackId> = reached.map(|p| catalog.packs[p].pack.id).collect();
    lock.rescue(&packs)
}

/// The doomed packs that stay so.
fn waiting(catalog: &Catalog, plan: &GcPlan, going: &[usize]) -> Vec<usize> {
    let all = catalog.doomed().map(|(p, _)| p);
    all.filter(|p| !plan.rescued.contains(p) && !going.contains(p)).collect()
}

fn sum(catalog: &Catalog, packs: &[usize]) -> u64 {
    packs.iter().map(|p| catalog.packs[*p].pack.size).sum()
}

fn forecast(catalog: &Catalog, plan: &GcPlan, going: &[usize]) -> GcReport {
    let fresh = plan.rewrite.len() as u64;
    let doomed: Vec<usize> = plan.delete.iter().chain(&plan.rewrite).copied().collect();
    let waiting = waiting(catalog, plan, going);
    let mut report = foretell(catalog, plan);
    let rewritten = report.bytes_after + sum(catalog, &doomed) - report.bytes_before;
    report.packs_after = report.packs_before + fresh - going.len() as u64;
    report.bytes_after = report.bytes_before + rewritten - sum(catalog, going);
    report.packs_deleted = going.len() as u64;
    report.packs_condemned = doomed.len() as u64;
    report.bytes_condemned = sum(catalog, &doomed);
    report.packs_waiting = (doomed.len() + waiting.len()) as u64;
    report.bytes_waiting = sum(catalog, &doomed) + sum(catalog, &waiting);
    report
}

/// What two rounds did.
fn both(first: GcReport, second: GcReport) -> GcReport {
    GcReport {
        packs_before: first.packs_before,
        objects_before: first.objects_before,
        bytes_before: first.bytes_before,
        bytes_freed: first.bytes_freed + second.bytes_freed,
        packs_deleted: first.packs_deleted + second.packs_deleted,
        packs_rewritten: first.packs_rewritten + second.packs_rewritten,
        packs_condemned: first.packs_condemned + second.packs_condemned,
        bytes_condemned: first.bytes_condemned + second.bytes_condemned,
        upload_bytes: first.upload_bytes + second.upload_bytes,
        ..second
    }
}

/// Waits, and asks from time to time whether the caller has cancelled.
fn wait(grace: Duration, progress: &dyn Progress) -> Result<()> {
    const STEP: Duration = Duration::from_millis(20);
    let until = now_ms().saturating_add(millis(grace));
    while now_ms() <= until && !grace.is_zero() {
        go_on(progress, WHAT)?;
        sleep(STEP.min(grace));
    }
    Ok(())
}
