//! Chooses, file by file, between two sides that began from one version: by identity, then by rule.

use crate::{
    commit::{FileRole, role_of_file},
    in_progress::{FileConflict, Reason, TensorRule},
    repo::Repo,
};
use globset::GlobSet;
use mdl_objects::{Entry, Mode};
use mdl_store::{Result, object_db::Files};
use std::collections::{BTreeMap, BTreeSet};

/// Files that trainers write beside weights as they go, by their names without what follows the first dot: they belong
/// to the snapshot, as the state of its optimizer does.
const OF_TRAINERS: [&str; 6] =
    ["trainer_state", "scheduler", "scaler", "latest", "latest_checkpointed_iteration", "all_results"];

/// The versions that are compared: the change `from` one `to` another is to be made to `ours`.
#[derive(Debug)]
pub(super) struct Sides {
    pub from: Files,
    pub to: Files,
    pub ours: Files,
}

/// What the user has said about files that both sides changed.
#[derive(Debug, Default)]
pub(super) struct Preferences {
    pub ours: Option<GlobSet>,
    pub theirs: Option<GlobSet>,
}

/// Where a file of the result comes from.
#[derive(Debug)]
pub(super) enum FileChoice {
    /// It is that of a version.
    Take(Entry),
    /// Both sides changed its tensors.
    Combine { ours: Entry, from: Entry, to: Entry },
}

/// The result, as far as it can be told.
#[derive(Debug, Default)]
pub(super) struct Choices {
    pub files: BTreeMap<String, FileChoice>,
    pub conflicts: Vec<FileConflict>,
}

fn same(a: Option<&Entry>, b: Option<&Entry>) -> bool {
    let what = |e: Option<&Entry>| e.map(|e| (e.mode, e.id, e.executable));
    what(a) == what(b)
}

/// Chooses for every file.
pub(super) fn choose(repo: &Repo, sides: &Sides, rule: TensorRule, preferred: &Preferences) -> Result<Choices> {
    let all = [&sides.from, &sides.to, &sides.ours];
    let names: BTreeSet<&String> = all.iter().flat_map(|files| files.keys()).collect();
    let mut done = Choices::default();
    for rel in names {
        let [from, to, ours] = all.map(|files| files.get(rel));
        let choice = if same(from, to) {
            ours.cloned().map(FileChoice::Take)
        } else if same(ours, from) || same(ours, to) {
            to.cloned().map(FileChoice::Take)
        } else {
            match both_changed(repo, rel, [from, to, ours], rule, preferred)? {
                Ok(choice) => choice,
                Err(reason) => {
                    done.conflicts.push(FileConflict { path: rel.clone(), reason, tensors: Vec::new() });
                    ours.cloned().map(FileChoice::Take)
                }
            }
        };
        done.files.extend(choice.map(|choice| (rel.clone(), choice)));
    }
    refuse_files_above(sides, &mut done);
    Ok(done)
}

fn both_changed(
    repo: &Repo,
    rel: &str,
    [from, to, ours]: [Option<&Entry>; 3],
    rule: TensorRule,
    preferred: &Preferences,
) -> Result<Result<Option<FileChoice>, Reason>> {
    let take = |entry: Option<&Entry>| Ok(Ok(entry.cloned().map(FileChoice::Take)));
    let is_match = |globs: &Option<GlobSet>| globs.as_ref().is_some_and(|globs| globs.is_match(rel));
    if is_match(&preferred.theirs) {
        return take(to);
    }
    if is_match(&preferred.ours) {
        return take(ours);
    }
    let has_tensors = [from, to, ours].iter().flatten().any(|e| e.mode == Mode::Manifest);
    let of_run = is_of_run(repo, rel, [from, to, ours])?;
    match (rule, from, to, ours) {
        (TensorRule::Snapshot, ..) if has_tensors || of_run => take(to),
        // The run goes on with its own state: that of another was not made by its steps.
        (TensorRule::Update, ..) if of_run => take(ours),
        (TensorRule::Update | TensorRule::Exact, Some(from), Some(to), Some(ours))
            if [from, to, ours].iter().all(|e| e.mode == Mode::Manifest) =>
        {
            let [ours, from, to] = [ours, from, to].map(Clone::clone);
            Ok(Ok(Some(FileChoice::Combine { ours, from, to })))
        }
        (_, _, None, _) | (_, _, _, None) => Ok(Err(Reason::Deleted)),
        _ => Ok(Err(Reason::BothChanged)),
    }
}

/// Whether a file is state of a training run, without weights.
fn is_of_run(repo: &Repo, rel: &str, sides: [Option<&Entry>; 3]) -> Result<bool> {
    let name = rel.rsplit('/').next().unwrap_or_default();
    let stem = name.split('.').next().unwrap_or_default();
    if OF_TRAINERS.contains(&stem) {
        return Ok(true);
    }
    for entry in sides.into_iter().flatten() {
        if role_of_file(repo.odb(), rel, entry)? != FileRole::State {
            return Ok(false);
        }
    }
    Ok(true)
}

/// Where one side has a file and the other files below that name, this side's stay.
fn refuse_files_above(sides: &Sides, done: &mut Choices) {
    let is_file = |above: &str| done.files.contains_key(above);
    let below = |rel: &&String| rel.match_indices('/').any(|(i, _)| is_file(&rel[..i]));
    let clash: Vec<String> = done.files.keys().filter(below).cloned().collect();
    for rel in clash {
        let above: Vec<String> = rel.match_indices('/').map(|(i, _)| rel[..i].to_owned()).collect();
        let loser = match sides.ours.contains_key(&rel) {
            true => above.into_iter().find(|above| done.files.contains_key(above)),
            false => Some(rel),
        };
        if let Some(path) = loser
            && done.files.remove(&path).is_some()
        {
            done.conflicts.push(FileConflict { path, reason: Reason::Names, tensors: Vec::new() });
        }
    }
}
