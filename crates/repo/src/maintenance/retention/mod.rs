//! Retention: `prune` drops the contents of versions that no rule keeps; a prune can be undone.
//!
//! Before a version is pruned everything that stays is looked for in the packs, by their footers: what cannot be shown
//! to be there does not count as kept, and then nothing is pruned.

mod rules;
mod survey;

pub use rules::{BestMode, Choice, Facts, Retention};

use crate::{
    config::is_partial,
    history::Step,
    maintenance::{
        fsck::hex,
        gc::{DAY_MS, HOUR_MS, ago, freed_by},
        marked, undamaged,
    },
    pruned,
    pruned::{Pruned, PrunedMark, lacks_contents, pruned_contents},
    repo::Repo,
};
use mdl_objects::{Id, Kind};
use mdl_store::{
    Remedy, RepoError, Result,
    lock::now_ms,
    reachability::{Catalog, Left, Marks, OnDamage, PrunedContents, roots},
    transaction::WriteTransaction,
};
use serde::Serialize;
use std::collections::HashSet;
use survey::{Survey, survey_versions};

/// What a pruning may do.
#[derive(Clone, Copy, Debug, Default)]
pub struct PruneOptions {
    /// Only say what would be done.
    pub dry_run: bool,
}

/// What a pruning did, or would do.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct PruneReport {
    /// Whether nothing was changed.
    pub dry_run: bool,
    /// The rules, in words.
    pub rules: String,
    /// Branches that were pruned.
    pub branches: Vec<String>,
    /// Versions that were pruned, newest first.
    pub pruned: Vec<PrunedVersion>,
    /// Versions of these branches that stay, newest first.
    pub kept: Vec<KeptVersion>,
    /// Rules that could tell nothing of a branch (no version has a step, or that metric), and so kept all of it.
    pub undecided: Vec<String>,
    /// Bytes that `gc` frees for the pruned versions once `gc.grace_hours` have passed, by the packs as they are.
    pub freed_bytes: u64,
    /// Bytes of tensors that are in no version that stays, but are delta bases of tensors that are: `compact` encodes
    /// those anew, and then `gc` frees these too.
    pub base_bytes: u64,
}

/// A version whose contents were dropped.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct PrunedVersion {
    /// Its commit.
    #[serde(serialize_with = "hex")]
    pub commit: Id,
    /// Its training step.
    pub step: Option<u64>,
}

/// A version that stays.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct KeptVersion {
    /// Its commit.
    #[serde(serialize_with = "hex")]
    pub commit: Id,
    /// Its training step.
    pub step: Option<u64>,
    /// What keeps it, in words: rules, names, other branches.
    pub why: Vec<String>,
}

/// Prunes versions that no rule keeps: of one branch, or of all. Tips of branches, targets of tags and HEAD,
/// versions that a run resumed from within `gc.grace_hours`, and those on a branch that is not pruned stay. A
/// version on several branches goes only if no branch keeps it.
///
/// # Errors
/// No such branch; rules that make no sense; a version that stays is damaged or not all there (then nothing is
/// pruned); damaged refs or packs; an I/O error.
pub fn prune(repo: &Repo, branch: Option<&str>, rules: &Retention, options: &PruneOptions) -> Result<PruneReport> {
    // Collectors stay out, so that what is looked for now is there when the record says what may go. A dry run does
    // without a lock where there is none to be had.
    let (_look, transaction) = match options.dry_run {
        true => (repo.storage().lock_shared().ok(), None),
        false => (None, Some(WriteTransaction::begin(repo)?)),
    };
    repo.odb().refresh();
    let pruned = pruned::pruned(repo)?;
    let survey = survey_versions(repo, branch, rules, &pruned, ago(repo.config.grace_hours(), HOUR_MS))?;
    let (kept, go): (Vec<&Step>, Vec<&Step>) = survey.versions.iter().partition(|s| survey.why.contains_key(&s.id));
    let mut report = report(&survey, &kept, &go, rules, options);
    if go.is_empty() {
        return Ok(report);
    }
    (report.freed_bytes, report.base_bytes) = weigh(repo, &kept, &go, &pruned)?;
    if let Some(transaction) = transaction {
        let mark = PrunedMark { time_ms: now_ms(), rules: report.rules.clone(), stand_in: None };
        pruned::change(&transaction, repo.storage(), |p| p.add(go.iter().map(|s| s.id), &mark))?;
    }
    Ok(report)
}

/// Makes sure that what stays is there, and adds up what goes, and what stays only as a delta base.
fn weigh(repo: &Repo, kept: &[&Step], go: &[&Step], pruned: &Pruned) -> Result<(u64, u64)> {
    let storage = repo.storage();
    let roots = roots(repo.refs(), Some(ago(repo.config.reflog_days(), DAY_MS)))?.complete()?;
    let catalog = Catalog::read(storage, is_partial(storage), |s| s.size)?;
    let catalog = undamaged(catalog, "nothing was pruned, since it may hold what is to stay")?;
    let before = pruned_contents(&catalog, storage, &roots, pruned, i64::MAX)?;
    let after = before.with(go.iter().map(|s| (s.id, Left::Nothing)));
    ensure_whole(repo, &catalog, kept, &after)?;
    let freed = freed_by(&catalog, storage, &roots, &before, &after)?;
    let all = marked(&catalog, storage, &roots, Marks::new(&catalog, &after))?;
    let named = marked(&catalog, storage, &roots, Marks::of_names(&catalog, &after))?;
    let bases = all.iter().filter(|n| !named.has(*n));
    Ok((freed, bases.map(|n| catalog.best_record(n).len).sum()))
}

/// Refuses if something of these versions is not in the packs, or was found unreadable by the last check.
fn ensure_whole(repo: &Repo, catalog: &Catalog, kept: &[&Step], gone: &PrunedContents) -> Result<()> {
    let mut all = Marks::new(catalog, gone);
    // Parents first, so that the version that is named is the one that lacks something.
    for step in kept.iter().rev() {
        let start = (step.id, Some(Kind::Commit));
        let marked = all.mark(catalog, repo.storage(), start, OnDamage::Refuse);
        marked.map_err(|e| incomplete(step, e))?;
    }
    if !all.iter().any(|n| catalog.is_unreadable(catalog.best(n))) {
        return Ok(());
    }
    for step in kept.iter().rev() {
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

/// Undoes prunings: of these versions, or (with none) of all that were pruned last. A named version that aged, and
/// whose exact contents are still there, keeps them again; the next commit ages it once more unless a name points at
/// it. Returns which.
///
/// # Errors
/// A version that was neither pruned nor aged; one whose contents a collection has taken; an I/O error.
pub fn undo_prune(repo: &Repo, versions: Option<&[Id]>) -> Result<Vec<PrunedVersion>> {
    // Collectors stay out: what is there now is there when it is held on to again.
    let transaction = WriteTransaction::begin(repo)?;
    let pruned = pruned::pruned(repo)?;
    let wanted = match versions {
        Some(ids) => ids.to_vec(),
        None => pruned.last(),
    };
    let mut back = Vec::new();
    for id in wanted {
        let mark = pruned.get(&id).or_else(|| pruned.aged(&id)).ok_or_else(|| {
            RepoError::user(format!("version {} was not pruned", id.short()), "the log marks those that were")
        })?;
        let held = if mark.stand_in.is_some() {
            repo.odb().has(&repo.odb().commit(&id)?.tree)?
        } else {
            !lacks_contents(repo, &id)?
        };
        if held {
            back.push(id);
        } else if mark.stand_in.is_some() {
            let message = format!("the exact contents of version {} are gone", id.short());
            return Err(RepoError::user(message, "a collection has taken them; its approximation stands for them"));
        } else if versions.is_some() {
            return Err(mark.error(&id));
        }
    }
    if back.is_empty() {
        return Err(RepoError::user("there is no pruning to take back", Remedy::PruneGrace));
    }
    let mut lacks_exact = HashSet::new();
    for id in &back {
        let c = repo.odb().commit(id)?;
        if !repo.odb().has(&c.tree)? {
            lacks_exact.insert(*id);
        }
        transaction.pin(c.contents().map(|(id, _)| id))?;
    }
    pruned::change(&transaction, repo.storage(), |p| {
        p.keep(|id| !back.contains(id));
        p.keep_aged(|id| versions.is_none() || !back.contains(id) || lacks_exact.contains(id));
    })?;
    let version = |id: Id| Ok(PrunedVersion { commit: id, step: repo.odb().commit(&id)?.step });
    back.into_iter().map(version).collect()
}

fn incomplete(step: &Step, e: RepoError) -> RepoError {
    let at = step.commit.step.map_or_else(String::new, |s| format!(" (step {s})"));
    RepoError::corrupt(
        format!("version {}{at}, which is to stay,", step.id.short()),
        format!("{e}; nothing was pruned"),
    )
}

fn report(survey: &Survey, kept: &[&Step], go: &[&Step], rules: &Retention, options: &PruneOptions) -> PruneReport {
    let kept = kept.iter().map(|s| KeptVersion {
        commit: s.id,
        step: s.commit.step,
        why: survey.why.get(&s.id).cloned().unwrap_or_default(),
    });
    let pruned = go.iter().map(|s| PrunedVersion { commit: s.id, step: s.commit.step });
    PruneReport {
        dry_run: options.dry_run,
        rules: rules.to_string(),
        branches: survey.branches.clone(),
        pruned: pruned.collect(),
        kept: kept.collect(),
        undecided: survey.undecided.clone(),
        freed_bytes: 0,
        base_bytes: 0,
    }
}
