//! Retention: `prune` drops contents of versions that no rule keeps, down to a level; a prune can be undone.
//!
//! Before a version is pruned everything that stays is looked for in the packs, by their footers: what cannot be shown
//! to be there does not count as kept, and then nothing is pruned.

mod rest;
mod rules;
mod survey;
mod undo;
mod weigh;

pub use rules::{BestMode, Choice, Facts, Retention};
pub use undo::undo_prune;

use crate::{
    history::Step,
    maintenance::{
        fsck::hex,
        gc::{HOUR_MS, ago},
    },
    pruned,
    pruned::{Level, Pruned, PrunedMark},
    repo::Repo,
};
use mdl_objects::Id;
use mdl_store::{Result, lock::now_ms, transaction::WriteTransaction};
use rest::{Lowered, Rest};
use serde::Serialize;
use std::collections::BTreeSet;
use survey::{Survey, survey_versions};
use weigh::Scales;

/// What a pruning may do.
#[derive(Clone, Copy, Debug, Default)]
pub struct PruneOptions {
    /// Only say what would be done.
    pub dry_run: bool,
    /// What is left of the versions that no rule keeps.
    pub to: Level,
}

/// What a pruning did, or would do.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct PruneReport {
    /// Whether nothing was changed.
    pub dry_run: bool,
    /// What is left of the versions that were pruned.
    pub to: Level,
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
    /// Versions that no rule keeps, and that stay as they are for want of an approximation.
    pub no_approximation: u64,
    /// Versions that no rule keeps, and that stay as they are for want of files that hold nothing but state of the
    /// optimizer beside such with weights.
    pub no_state: u64,
    /// Versions that no rule keeps with files that hold weights and state of the optimizer: these files stay whole.
    pub mixed: u64,
    /// Of a dry run: what each level would free.
    pub levels: Vec<LevelReport>,
}

/// What pruning to a level would free.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct LevelReport {
    /// The level.
    pub to: Level,
    /// Versions that would be pruned.
    pub versions: u64,
    /// As of a pruning.
    pub freed_bytes: u64,
    /// As of a pruning.
    pub base_bytes: u64,
}

/// A version that gave up contents, or that has them again.
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
/// version on several branches goes only if no branch keeps it. A version that has no more than the level asks for
/// stays as it is.
///
/// # Errors
/// No such branch; rules that make no sense; a version that stays is damaged or not all there (then nothing is
/// pruned); damaged refs or packs; an I/O error.
pub fn prune(repo: &Repo, branch: Option<&str>, rules: &Retention, options: &PruneOptions) -> Result<PruneReport> {
    prune_until(repo, branch, rules, options, None)
}

/// How much a pruning is to free.
pub(crate) struct Enough<'a> {
    /// Bytes that a collection without grace is to free: the oldest versions go, as few as free so many.
    pub bytes: u64,
    /// Versions that may go; none for all that no rule keeps.
    pub among: Option<&'a BTreeSet<Id>>,
}

/// As `prune`, and no further than to free enough.
pub(crate) fn prune_until(
    repo: &Repo,
    branch: Option<&str>,
    rules: &Retention,
    options: &PruneOptions,
    enough: Option<&Enough<'_>>,
) -> Result<PruneReport> {
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
    let mut lowered = Lowered::new(repo, &go, &pruned, options.to)?;
    if let Some(among) = enough.and_then(|enough| enough.among) {
        lowered.versions.retain(|(step, _)| among.contains(&step.id));
    }
    let any = !lowered.versions.is_empty();
    let scales = any.then(|| Scales::new(repo, &pruned, enough.is_some())).transpose()?;
    if let (Some(scales), Some(enough)) = (&scales, enough) {
        leave_newer(repo, scales, &mut lowered, enough.bytes)?;
    }
    let mut report = report(&survey, &kept, &lowered, rules, options);
    if options.dry_run && enough.is_none() && !go.is_empty() {
        report.levels = levels(repo, &kept, &go, &pruned)?;
    }
    let Some(scales) = scales.filter(|_| !lowered.versions.is_empty()) else {
        return Ok(report);
    };
    (report.freed_bytes, report.base_bytes) = scales.weigh(repo, &kept, &lowered)?;
    if let Some(transaction) = transaction {
        note(repo, &transaction, &lowered, &report.rules)?;
    }
    Ok(report)
}

/// Leaves all but the oldest versions as they are, of which it takes as few as free so many bytes.
fn leave_newer(repo: &Repo, scales: &Scales, lowered: &mut Lowered<'_>, bytes: u64) -> Result<()> {
    let newest_first = &lowered.versions;
    let (mut few, mut many) = (0, newest_first.len());
    while few < many {
        let half = few + (many - few) / 2;
        match scales.frees(repo, &newest_first[newest_first.len() - half..])? >= bytes {
            true => many = half,
            false => few = half + 1,
        }
    }
    let staying = lowered.versions.len() - few;
    lowered.versions.drain(..staying);
    Ok(())
}

/// Stores the trees of what is left of versions, durably, and then notes them in the record.
fn note(repo: &Repo, transaction: &WriteTransaction<'_>, lowered: &Lowered<'_>, rules: &str) -> Result<()> {
    let mark = PrunedMark { time_ms: now_ms(), rules: rules.to_owned(), ..PrunedMark::default() };
    let trees = lowered.store(repo, transaction)?;
    let mut marks = Vec::new();
    for ((step, rest), stand_in) in lowered.versions.iter().zip(trees) {
        let without = if let Rest::Part { without, .. } = rest { without.clone() } else { Default::default() };
        marks.push((step.id, PrunedMark { stand_in, without, ..mark.clone() }));
    }
    pruned::change(transaction, repo.storage(), |record| marks.iter().for_each(|(id, mark)| record.note(*id, mark)))
}

/// What each level would free. A level at which something that is to stay is not there is left out.
fn levels(repo: &Repo, kept: &[&Step], go: &[&Step], pruned: &Pruned) -> Result<Vec<LevelReport>> {
    let (scales, mut out) = (Scales::new(repo, pruned, false)?, Vec::new());
    for to in Level::ALL {
        let weighed = Lowered::new(repo, go, pruned, to).and_then(|l| Ok((scales.weigh(repo, kept, &l)?, l)));
        if let Ok(((freed_bytes, base_bytes), lowered)) = weighed {
            out.push(LevelReport { to, versions: lowered.versions.len() as u64, freed_bytes, base_bytes });
        }
    }
    Ok(out)
}

fn report(
    survey: &Survey,
    kept: &[&Step],
    lowered: &Lowered<'_>,
    rules: &Retention,
    options: &PruneOptions,
) -> PruneReport {
    let kept = kept.iter().map(|s| KeptVersion {
        commit: s.id,
        step: s.commit.step,
        why: survey.why.get(&s.id).cloned().unwrap_or_default(),
    });
    let pruned = lowered.versions.iter().map(|(s, _)| PrunedVersion { commit: s.id, step: s.commit.step });
    PruneReport {
        dry_run: options.dry_run,
        to: options.to,
        rules: rules.to_string(),
        branches: survey.branches.clone(),
        pruned: pruned.collect(),
        kept: kept.collect(),
        undecided: survey.undecided.clone(),
        no_approximation: lowered.no_approximation,
        no_state: lowered.no_state,
        mixed: lowered.mixed,
        ..PruneReport::default()
    }
}
