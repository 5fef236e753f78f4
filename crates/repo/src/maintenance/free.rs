//! Frees a wanted number of bytes: what costs nothing first, versions last, in an order that never needs more room than
//! there is.

use super::{
    CompactOptions, GcOptions, PruneOptions, PrunedVersion, Retention, compact,
    gc::{gc, gc_beside_jobs},
    retention::{Enough, prune_until},
};
use crate::{pruned::Level, repo::Repo};
use mdl_objects::Id;
use mdl_store::{Progress, RepoError, Result, cache::TensorCache};
use serde::Serialize;
use std::collections::BTreeSet;

/// Room that is not counted on.
const MARGIN: u64 = 1 << 20;

/// How much is to be freed.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Wanted {
    /// So many bytes.
    Bytes(u64),
    /// So much of what the repository takes, from 0 to 100.
    Percent(f64),
}

/// What freeing may do.
#[derive(Clone, Debug)]
pub struct FreeOptions {
    /// Only say what would be done.
    pub dry_run: bool,
    /// How much.
    pub wanted: Wanted,
    /// Which versions stay; none: all.
    pub rules: Option<Retention>,
    /// What is left of the others.
    pub to: Level,
    /// The only versions that may go: what an earlier dry run named. None: all that no rule keeps.
    pub among: Option<BTreeSet<Id>>,
}

/// What was freed, or would be, step by step in their order. A step that is not needed frees nothing.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct FreeReport {
    /// Whether nothing was changed.
    pub dry_run: bool,
    /// Bytes that were asked for.
    pub wanted_bytes: u64,
    /// Bytes of packs and of the cache of decoded tensors before.
    pub stored_bytes_before: u64,
    /// Freed by emptying the cache of decoded tensors.
    pub cache_bytes: u64,
    /// Freed by a collection that keeps what the time of grace and the reflog keep.
    pub garbage_bytes: u64,
    /// Freed by one that does not: what no name reaches, and what was pruned before.
    pub grace_bytes: u64,
    /// Freed by letting go of versions.
    pub versions_bytes: u64,
    /// Freed by encoding anew what had these as delta bases. Of a dry run: at most so much.
    pub base_bytes: u64,
    /// All of it.
    pub freed_bytes: u64,
    /// What is left of the versions that go.
    pub to: Level,
    /// Versions that go, newest first.
    pub pruned: Vec<PrunedVersion>,
    /// Versions of which the rules keep everything.
    pub kept_versions: u64,
    /// Bytes that are kept only as delta bases, for want of room to encode anew what needs them.
    pub held_bytes: u64,
    /// Room that the rest wants for a while, where it was not done for want of room.
    pub room_wanted_bytes: u64,
}

impl FreeReport {
    /// Bytes that are still to be freed.
    pub fn missing_bytes(&self) -> u64 {
        self.wanted_bytes.saturating_sub(self.freed_bytes)
    }
}

/// Frees at least as many bytes as are wanted, or as many as can be freed: empties the cache of decoded tensors,
/// collects garbage, then what the time of grace and the reflog hold, then lets go of the oldest versions that no rule
/// keeps, as few as do, and last encodes anew what has these as delta bases. Each step is left out once enough is free.
/// What is collected cannot be taken back. Sharded commits and staged files that are under way stay for the ordinary
/// time of grace: a job that runs may have no other copy.
///
/// # Errors
/// A storage in which deleting waits (a bucket); as `prune`, `gc` and `compact`. What was freed before stays freed.
pub fn free(repo: &Repo, options: &FreeOptions, progress: &dyn Progress) -> Result<FreeReport> {
    if !repo.storage().excludes() {
        let hint = "prune versions and collect: a collection there deletes what it finds after the time of grace";
        return Err(RepoError::user("space in a bucket cannot be freed at once", hint));
    }
    let dry_run = options.dry_run;
    let cache = repo.odb().cache();
    let cached = cache.map_or(0, TensorCache::bytes);
    let before = cached + stored(repo, progress)?;
    let wanted = match options.wanted {
        Wanted::Bytes(bytes) => bytes,
        Wanted::Percent(percent) => (before as f64 * (percent / 100.0).clamp(0.0, 1.0)).ceil() as u64,
    };
    let to = options.to;
    let mut out = FreeReport { dry_run, wanted_bytes: wanted, stored_bytes_before: before, to, ..Default::default() };
    if wanted == 0 {
        return Ok(out);
    }
    out.cache_bytes = if dry_run { cached } else { cache.map_or(0, |cache| cache.retain(|_| false)) };
    out.freed_bytes += out.cache_bytes;
    if out.missing_bytes() > 0 {
        out.garbage_bytes = collect(repo, &GcOptions { dry_run, ..GcOptions::default() }, &mut out, progress)?;
        out.freed_bytes += out.garbage_bytes;
    }
    let now = GcOptions { dry_run, prune_now: true, grace: None };
    if out.missing_bytes() > 0 {
        // Nothing was collected in a dry run: what the first collection would take is counted already.
        let again = if dry_run { out.garbage_bytes } else { 0 };
        out.grace_bytes = collect(repo, &now, &mut out, progress)?.saturating_sub(again);
        out.freed_bytes += out.grace_bytes;
    }
    if out.missing_bytes() > 0 && options.rules.is_some() {
        let base_bytes = versions(repo, options, &now, &mut out, progress)?;
        bases(repo, &now, base_bytes, &mut out, progress)?;
    }
    Ok(out)
}

/// Collects, as far as there is room to write anew what stays of mixed packs, and returns the bytes that are freed.
fn collect(repo: &Repo, options: &GcOptions, out: &mut FreeReport, progress: &dyn Progress) -> Result<u64> {
    let before = stored(repo, progress)?;
    match gc_beside_jobs(repo, options, progress) {
        Err(RepoError::NoRoom { wanted, .. }) => {
            out.room_wanted_bytes = out.room_wanted_bytes.max(wanted);
            Ok(before.saturating_sub(stored(repo, progress)?))
        }
        done => done.map(|report| report.bytes_freed),
    }
}

/// Bytes of all packs.
fn stored(repo: &Repo, progress: &dyn Progress) -> Result<u64> {
    Ok(gc(repo, &GcOptions { dry_run: true, ..GcOptions::default() }, progress)?.bytes_before)
}

/// Lets go of versions. Returns the bytes that stay only as delta bases.
fn versions(
    repo: &Repo,
    options: &FreeOptions,
    now: &GcOptions,
    out: &mut FreeReport,
    progress: &dyn Progress,
) -> Result<u64> {
    let Some(rules) = &options.rules else { return Ok(0) };
    let prune = PruneOptions { dry_run: options.dry_run, to: options.to };
    let enough = Enough { bytes: out.missing_bytes(), among: options.among.as_ref() };
    let pruned = prune_until(repo, None, rules, &prune, Some(&enough))?;
    out.kept_versions = pruned.kept.len() as u64;
    out.pruned = pruned.pruned;
    if out.pruned.is_empty() {
        return Ok(0);
    }
    out.versions_bytes = if options.dry_run { pruned.freed_bytes } else { collect(repo, now, out, progress)? };
    out.freed_bytes += out.versions_bytes;
    Ok(pruned.base_bytes)
}

/// Encodes anew what has pruned versions as delta bases, where enough is not free yet and there is room for it.
fn bases(repo: &Repo, now: &GcOptions, base_bytes: u64, out: &mut FreeReport, progress: &dyn Progress) -> Result<()> {
    if out.missing_bytes() == 0 || base_bytes == 0 {
        return Ok(());
    }
    if out.dry_run {
        out.base_bytes = base_bytes;
        out.freed_bytes += base_bytes;
        return Ok(());
    }
    let plan = compact(repo, &CompactOptions { dry_run: true }, progress)?;
    let wanted = plan.bytes_reencoded.saturating_add(MARGIN);
    if repo.storage().room()?.is_some_and(|free| free < wanted) {
        (out.held_bytes, out.room_wanted_bytes) = (base_bytes, out.room_wanted_bytes.max(wanted));
        return Ok(());
    }
    let before = plan.bytes_before;
    compact(repo, &CompactOptions::default(), progress)?;
    collect(repo, now, out, progress)?;
    out.base_bytes = before.saturating_sub(stored(repo, progress)?);
    out.freed_bytes += out.base_bytes;
    Ok(())
}
