//! Makes a file of the tensors of several versions: one tensor of all of them at a time.

use crate::{
    commit::is_state,
    merge::{
        choose::Rules,
        conflict::{MergeConflict, MergeReason},
        recipe::{Rule, Side, refused},
    },
    repo::Repo,
    sequencer::Draft,
};
use mdl_merge::{Strategy, Tensors, merge};
use mdl_objects::{Entry, Manifest, TensorRef};
use mdl_store::{Progress, Result, progress::go_on};
use std::{
    collections::{HashMap, HashSet},
    path::Path,
};

/// Names the operation in `Stopped` errors.
const WHAT: &str = "the merge";

/// Where a tensor of the result comes from.
enum TensorChoice {
    /// It is that of a version.
    Take(TensorRef),
    /// It is computed of these, and the ancestor's.
    Compute { strategy: Strategy, versions: Vec<TensorRef>, base: Option<TensorRef> },
}

/// A file of the result: ours, with other tensors at their places.
pub(super) struct FilePlan {
    ours: Manifest,
    choices: Vec<TensorChoice>,
}

/// One side's tensors by name.
type Named<'a> = HashMap<&'a str, &'a TensorRef>;

fn by_name(manifest: &Manifest) -> Named<'_> {
    manifest.tensors.iter().map(|t| (t.name.as_str(), t)).collect()
}

fn is_alike(a: &TensorRef, b: &TensorRef) -> bool {
    (a.dtype, &a.shape) == (b.dtype, &b.shape)
}

/// Chooses for every tensor of a file that all versions have; no bytes are read yet.
pub(super) fn plan(
    repo: &Repo,
    rules: &Rules<'_>,
    rel: &str,
    versions: &[Entry],
    base: Option<&Entry>,
) -> Result<(FilePlan, Vec<MergeConflict>)> {
    let manifests = versions.iter().map(|e| repo.odb().manifest(&e.id)).collect::<Result<Vec<_>>>()?;
    let base = base.filter(|e| e.mode == mdl_objects::Mode::Manifest);
    let base = base.map(|e| repo.odb().manifest(&e.id)).transpose()?;
    let sides: Vec<Named<'_>> = manifests.iter().map(by_name).collect();
    let base_tensors = base.as_ref().map(by_name).unwrap_or_default();
    let mut conflicts = Vec::new();
    let mut conflict = |tensor: &str, reason| {
        conflicts.push(MergeConflict { path: rel.to_owned(), tensor: Some(tensor.to_owned()), reason });
    };
    for (manifest, side) in manifests.iter().zip(&sides) {
        if side.len() != manifest.tensors.len() {
            let mut seen = HashSet::new();
            let twice = manifest.tensors.iter().find(|t| !seen.insert(t.name.as_str()));
            conflict(twice.map_or("", |t| &t.name), MergeReason::Names);
        }
    }
    let mut missing: Vec<&str> =
        sides.iter().flat_map(|s| s.keys()).copied().filter(|name| !sides[0].contains_key(name)).collect();
    missing.sort_unstable();
    missing.dedup();
    for name in missing {
        conflict(name, MergeReason::Missing);
    }
    let mut choices = Vec::new();
    for tensor in &manifests[0].tensors {
        let name = tensor.name.as_str();
        let all: Option<Vec<&TensorRef>> = sides.iter().map(|side| side.get(name).copied()).collect();
        let choice = match all {
            None => Err(MergeReason::Missing),
            Some(all) => choose_tensor(rules, rel, &all, base_tensors.get(name).copied()),
        };
        match choice {
            Ok(choice) => choices.push(choice),
            Err(reason) => conflict(name, reason),
        }
    }
    let [ours, ..] = <[Manifest; 1]>::try_from(manifests.into_iter().take(1).collect::<Vec<_>>())
        .unwrap_or_else(|_| unreachable!("a merge has versions"));
    Ok((FilePlan { ours, choices }, conflicts))
}

fn choose_tensor(
    rules: &Rules<'_>,
    rel: &str,
    all: &[&TensorRef],
    base: Option<&TensorRef>,
) -> Result<TensorChoice, MergeReason> {
    let ours = all[0];
    let take = |t: &TensorRef| Ok(TensorChoice::Take(t.clone()));
    let rule = rules.of_tensor(rel, &ours.name);
    let strategy = match rule {
        Rule::Side(Side::Ours) => return take(ours),
        Rule::Side(Side::Theirs) if is_alike(ours, all[1]) => return take(all[1]),
        Rule::Side(Side::Theirs) => return Err(MergeReason::Shapes),
        Rule::Weights(strategy) => strategy,
    };
    if !rules.recipe().with_state && is_state(&ours.name) {
        return take(ours);
    }
    if !all.iter().all(|t| is_alike(t, ours)) {
        return Err(MergeReason::Shapes);
    }
    let is_equal = all.iter().all(|t| t.id == ours.id);
    let base = base.filter(|base| is_alike(base, ours));
    if !ours.dtype.is_float() {
        let mut changed = all.iter().filter(|t| base.is_none_or(|base| base.id != t.id));
        return match changed.next() {
            None => take(ours),
            Some(first) if changed.all(|t| t.id == first.id) => take(first),
            Some(_) => Err(MergeReason::NotFloats),
        };
    }
    let needs_base = strategy.method.needs_base();
    if needs_base && base.is_none() {
        return Err(MergeReason::NoBase);
    }
    let base = base.filter(|_| needs_base);
    if is_equal && strategy.keeps_equal() && base.is_none_or(|base| base.id == ours.id) {
        return take(ours);
    }
    let versions = all.iter().map(|t| (*t).clone()).collect();
    Ok(TensorChoice::Compute { strategy: strategy.clone(), versions, base: base.cloned() })
}

impl FilePlan {
    /// Tensors that are computed.
    pub fn computed(&self) -> usize {
        self.choices.iter().filter(|c| matches!(c, TensorChoice::Compute { .. })).count()
    }

    /// Whether the file is ours as it is.
    pub fn is_ours(&self) -> bool {
        let is_own =
            |(choice, slot): (&TensorChoice, &TensorRef)| matches!(choice, TensorChoice::Take(t) if t.id == slot.id);
        self.choices.iter().zip(&self.ours.tensors).all(is_own)
    }

    /// Writes the file to `path`. Memory: the tensors of all versions of one name.
    pub fn write(&self, repo: &Repo, (rel, ours): (&str, &Entry), path: &Path, progress: &dyn Progress) -> Result<()> {
        let draft = Draft::new(repo, path, ours, &mdl_store::Silent)?;
        let read = |t: &TensorRef| repo.odb().tensor(&t.id)?.read();
        for (choice, slot) in self.choices.iter().zip(&self.ours.tensors) {
            go_on(progress, WHAT)?;
            match choice {
                TensorChoice::Take(t) if t.id == slot.id => {}
                TensorChoice::Take(t) => draft.patch(slot.offset, &read(t)?)?,
                TensorChoice::Compute { strategy, versions, base } => {
                    let base = base.as_ref().map(read).transpose()?;
                    let versions = versions.iter().map(read).collect::<Result<Vec<_>>>()?;
                    let versions: Vec<&[u8]> = versions.iter().map(Vec::as_slice).collect();
                    let name = format!("{rel} {}", slot.name);
                    let tensors =
                        Tensors { name: &name, dtype: slot.dtype, base: base.as_deref(), versions: &versions };
                    draft.patch(slot.offset, &merge(strategy, &tensors).map_err(refused)?)?;
                }
            }
            progress.advance(slot.byte_len().unwrap_or(0));
        }
        draft.finish(self.ours.format)
    }
}
