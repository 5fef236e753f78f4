//! What a pruning frees, by the packs as they are; makes sure that what stays is there.

use super::rest::{Lowered, Rest};
use crate::{
    aging::in_windows,
    config::is_partial,
    history::Step,
    maintenance::{
        gc::{DAY_MS, GcOptions, ago, freed_by, noted, ordinary_horizon},
        marked, undamaged,
    },
    pruned::{Pruned, pruned_contents},
    repo::Repo,
};
use mdl_objects::Kind;
use mdl_store::{
    RepoError, Result,
    reachability::{Catalog, Marks, OnDamage, PrunedContents, Root, roots},
};

/// A repository's packs and roots, and what its versions have today.
pub(super) struct Scales {
    collection: GcOptions,
    catalog: Catalog,
    roots: Vec<Root>,
    before: PrunedContents,
}

impl Scales {
    /// For an ordinary collection, or one that is to take all at once (`now`) but for what jobs have under way.
    pub fn new(repo: &Repo, pruned: &Pruned, now: bool) -> Result<Scales> {
        let storage = repo.storage();
        let since = (!now).then(|| ago(repo.config.reflog_days(), DAY_MS));
        let mut roots = roots(repo.refs(), since)?.complete()?;
        let catalog = Catalog::read(storage, is_partial(storage), |s| s.size)?;
        let catalog = undamaged(catalog, "nothing was pruned, since it may hold what is to stay")?;
        let before = pruned_contents(repo, &catalog, &roots, pruned, i64::MAX, &in_windows(repo, pruned)?)?;
        if now {
            roots.extend(noted(storage, ordinary_horizon(repo))?);
        }
        Ok(Scales { collection: GcOptions { prune_now: now, ..GcOptions::default() }, catalog, roots, before })
    }

    /// Bytes that a collection frees for these versions.
    pub fn frees(&self, repo: &Repo, lowered: &[(&Step, Rest)]) -> Result<u64> {
        let after = self.before.with(lowered.iter().map(|(step, rest)| (step.id, rest.left())));
        freed_by(&self.catalog, repo.storage(), &self.roots, (&self.before, &after), &self.collection)
    }

    /// Makes sure that what stays is there, and adds up what goes, and what stays only as a delta base.
    pub fn weigh(&self, repo: &Repo, kept: &[&Step], lowered: &Lowered<'_>) -> Result<(u64, u64)> {
        let Scales { catalog, roots, before, .. } = self;
        let storage = repo.storage();
        let after = before.with(lowered.versions.iter().map(|(step, rest)| (step.id, rest.left())));
        let resting = lowered.versions.iter().filter(|(_, rest)| !matches!(rest, Rest::Nothing));
        let staying: Vec<&Step> = kept.iter().copied().chain(resting.map(|(step, _)| *step)).collect();
        ensure_whole(repo, catalog, &staying, &after)?;
        let freed = self.frees(repo, &lowered.versions)?;
        let all = marked(catalog, storage, roots, Marks::new(catalog, &after))?;
        let named = marked(catalog, storage, roots, Marks::of_names(catalog, &after))?;
        let bases = all.iter().filter(|n| !named.has(*n));
        Ok((freed, bases.map(|n| catalog.best_record(n).len).sum()))
    }
}

/// Refuses if something of these versions is not in the packs, or was found unreadable by the last check.
fn ensure_whole(repo: &Repo, catalog: &Catalog, staying: &[&Step], gone: &PrunedContents) -> Result<()> {
    let mut all = Marks::new(catalog, gone);
    // Parents first, so that the version that is named is the one that lacks something.
    for step in staying.iter().rev() {
        let start = (step.id, Some(Kind::Commit));
        let marked = all.mark(catalog, repo.storage(), start, OnDamage::Refuse);
        marked.map_err(|e| incomplete(step, e))?;
    }
    if !all.iter().any(|n| catalog.is_unreadable(catalog.best(n))) {
        return Ok(());
    }
    for step in staying.iter().rev() {
        let mut own = Marks::new(catalog, gone);
        own.mark(catalog, repo.storage(), (step.id, None), OnDamage::Refuse)?;
        if let Some(n) = own.iter().find(|n| catalog.is_unreadable(catalog.best(*n))) {
            let record = catalog.best_record(n);
            let what = format!("{} {}", record.kind, record.id.short());
            return Err(incomplete(step, RepoError::corrupt(what, "a check could not read it")));
        }
    }
    Ok(())
}

fn incomplete(step: &Step, e: RepoError) -> RepoError {
    let at = step.commit.step.map_or_else(String::new, |s| format!(" (step {s})"));
    RepoError::corrupt(
        format!("version {}{at}, which is to stay,", step.id.short()),
        format!("{e}; nothing was pruned"),
    )
}
