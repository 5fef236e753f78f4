//! Chooses, file by file, what a merge takes from which version: weights by rule, other files by identity.

use crate::{
    checkout::matcher,
    commit::{FileRole, role_of_file},
    merge::{
        conflict::{MergeConflict, MergeReason},
        recipe::{Recipe, Rule, Side},
    },
    pruned::files,
    repo::Repo,
};
use globset::GlobSet;
use mdl_objects::{Entry, Id, Mode};
use mdl_store::{Result, object_db::Files};
use std::collections::{BTreeMap, BTreeSet};

/// Files that trainers write as they go: they belong to the run that goes on, as the optimizer's state does.
const OF_TRAINERS: [&str; 6] =
    ["trainer_state", "scheduler", "scaler", "latest", "latest_checkpointed_iteration", "all_results"];

/// The versions of a merge, ours first, and their common ancestor.
pub(super) struct Inputs {
    pub versions: Vec<Files>,
    pub base: Option<Files>,
}

impl Inputs {
    pub fn read(repo: &Repo, recipe: &Recipe, parents: &[Id]) -> Result<Inputs> {
        let versions = recipe.inputs.iter().map(|i| files(repo, &parents[*i])).collect::<Result<_>>()?;
        let base = recipe.base.as_ref().and_then(|id| id.parse::<Id>().ok());
        Ok(Inputs { versions, base: base.map(|id| files(repo, &id)).transpose()? })
    }
}

/// Where a file of the result comes from.
pub(super) enum FileChoice {
    /// It is that of a version.
    Take(Entry),
    /// Its tensors are computed.
    Combine { versions: Vec<Entry>, base: Option<Entry> },
}

/// Globs with their rules.
pub(super) struct Rules<'a> {
    recipe: &'a Recipe,
    globs: Vec<GlobSet>,
}

impl<'a> Rules<'a> {
    pub fn new(recipe: &'a Recipe) -> Result<Rules<'a>> {
        let set = |glob: &String| Ok(matcher(std::slice::from_ref(glob))?.unwrap_or_default());
        let globs = recipe.overrides.iter().map(|o| set(&o.glob)).collect::<Result<_>>()?;
        Ok(Rules { recipe, globs })
    }

    /// The override for a file, or for a tensor, of this name.
    pub fn override_of(&self, name: &str) -> Option<&'a Rule> {
        let place = self.globs.iter().position(|glob| glob.is_match(name))?;
        Some(&self.recipe.overrides[place].rule)
    }

    /// What holds for a file's tensor.
    pub fn of_tensor(&self, path: &str, tensor: &str) -> &'a Rule {
        self.override_of(tensor).or_else(|| self.override_of(path)).unwrap_or(&self.recipe.strategy)
    }

    pub fn recipe(&self) -> &'a Recipe {
        self.recipe
    }
}

/// The result, as far as it can be told.
pub(super) struct Choices {
    pub files: BTreeMap<String, FileChoice>,
    pub conflicts: Vec<MergeConflict>,
}

fn same(a: Option<&Entry>, b: Option<&Entry>) -> bool {
    let what = |e: Option<&Entry>| e.map(|e| (e.mode, e.id, e.executable));
    what(a) == what(b)
}

/// Chooses for every file. Tensors are not looked at yet.
pub(super) fn choose(repo: &Repo, rules: &Rules<'_>, inputs: &Inputs) -> Result<Choices> {
    let names: BTreeSet<&String> = inputs.versions.iter().chain(&inputs.base).flat_map(Files::keys).collect();
    let mut done = Choices { files: BTreeMap::new(), conflicts: Vec::new() };
    for rel in names {
        let sides: Vec<Option<&Entry>> = inputs.versions.iter().map(|files| files.get(rel)).collect();
        let base = inputs.base.as_ref().and_then(|files| files.get(rel));
        match choose_file(repo, rules, rel, &sides, base)? {
            Ok(choice) => done.files.extend(choice.map(|choice| (rel.clone(), choice))),
            Err(reason) => done.conflicts.push(MergeConflict { path: rel.clone(), tensor: None, reason }),
        }
    }
    for rel in done.files.keys() {
        if rel.match_indices('/').any(|(i, _)| done.files.contains_key(&rel[..i])) {
            done.conflicts.push(MergeConflict { path: rel.clone(), tensor: None, reason: MergeReason::Directory });
        }
    }
    Ok(done)
}

fn choose_file(
    repo: &Repo,
    rules: &Rules<'_>,
    rel: &str,
    sides: &[Option<&Entry>],
    base: Option<&Entry>,
) -> Result<Result<Option<FileChoice>, MergeReason>> {
    let take = |entry: Option<&Entry>| Ok(Ok(entry.cloned().map(FileChoice::Take)));
    let ours = sides[0];
    if sides.iter().all(|side| same(*side, ours)) {
        return take(ours);
    }
    match rules.override_of(rel).unwrap_or(&rules.recipe.strategy) {
        Rule::Side(Side::Ours) => return take(ours),
        Rule::Side(Side::Theirs) => return take(sides[1]),
        Rule::Weights(_) => {}
    }
    let is_state = is_of_run(repo, rel, sides)?;
    if is_state && !rules.recipe.with_state {
        return take(ours);
    }
    let all: Vec<&Entry> = sides.iter().flatten().copied().filter(|e| e.mode == Mode::Manifest).collect();
    if all.len() == sides.len() {
        let versions = all.into_iter().cloned().collect();
        return Ok(Ok(Some(FileChoice::Combine { versions, base: base.cloned() })));
    }
    if rules.recipe.soup.is_some() {
        return take(ours);
    }
    let mut changed = sides.iter().filter(|side| !same(**side, base));
    match changed.next() {
        Some(first) if changed.all(|other| same(*other, *first)) => take(*first),
        _ if sides.iter().any(Option::is_none) => Ok(Err(MergeReason::Deleted)),
        _ => Ok(Err(MergeReason::BothChanged)),
    }
}

/// Whether a file is state of a training run, without weights.
fn is_of_run(repo: &Repo, rel: &str, sides: &[Option<&Entry>]) -> Result<bool> {
    let name = rel.rsplit('/').next().unwrap_or_default();
    if OF_TRAINERS.contains(&name.split('.').next().unwrap_or_default()) {
        return Ok(true);
    }
    for entry in sides.iter().flatten() {
        if role_of_file(repo.odb(), rel, entry)? != FileRole::State {
            return Ok(false);
        }
    }
    Ok(true)
}
