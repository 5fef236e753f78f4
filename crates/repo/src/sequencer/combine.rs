//! Makes a file of tensors that both sides changed: each tensor by identity, and where both changed it by arithmetic.

use crate::{
    commit::is_state,
    in_progress::{FileConflict, Reason, TensorRule},
    repo::Repo,
    sequencer::Draft,
};
use mdl_lossy::Scratch;
use mdl_merge::{MergeError, apply_update};
use mdl_objects::{Entry, Manifest, TensorRef};
use mdl_store::{Progress, RepoError, Result, progress::go_on};
use std::{collections::HashMap, path::PathBuf};

/// Names the operation in `Stopped` errors.
const WHAT: &str = "the replay";

/// What became of it.
#[derive(Debug)]
pub(super) enum Combined {
    /// A file below the scratch directory.
    Made { path: PathBuf, executable: bool },
    /// The user has to decide.
    Conflict(FileConflict),
    /// Both sides changed these tensors, and no bytes of a version are right.
    NotExact(Vec<String>),
}

/// The three files, and their manifests.
struct Layouts<'a> {
    ours: Manifest,
    from: HashMap<&'a str, &'a TensorRef>,
    to: HashMap<&'a str, &'a TensorRef>,
}

fn by_name(manifest: &Manifest) -> HashMap<&str, &TensorRef> {
    manifest.tensors.iter().map(|t| (t.name.as_str(), t)).collect()
}

/// Tensors that not all of the three have with one dtype and shape.
fn differing(ours: &HashMap<&str, &TensorRef>, others: [&HashMap<&str, &TensorRef>; 2]) -> Vec<String> {
    let is_same = |a: &TensorRef, b: &TensorRef| (a.dtype, &a.shape) == (b.dtype, &b.shape);
    let mut names: Vec<String> = Vec::new();
    for (name, tensor) in ours {
        if !others.iter().all(|other| other.get(name).is_some_and(|t| is_same(t, tensor))) {
            names.push((*name).to_owned());
        }
    }
    let more = others.iter().flat_map(|other| other.keys()).filter(|name| !ours.contains_key(*name));
    names.extend(more.map(|name| (*name).to_owned()));
    names.sort();
    names.dedup();
    names
}

/// Applies the change of a file `from` one version `to` another to `ours`.
pub(super) fn combine(
    repo: &Repo,
    scratch: &Scratch,
    rel: &str,
    [ours, from, to]: [&Entry; 3],
    rule: TensorRule,
    progress: &dyn Progress,
) -> Result<Combined> {
    let odb = repo.odb();
    let [mine, old, new] = [odb.manifest(&ours.id)?, odb.manifest(&from.id)?, odb.manifest(&to.id)?];
    let (from_tensors, to_tensors) = (by_name(&old), by_name(&new));
    let conflict = |reason, tensors| FileConflict { path: rel.to_owned(), reason, tensors };
    let different = differing(&by_name(&mine), [&from_tensors, &to_tensors]);
    let are_unique = |m: &Manifest, names: &HashMap<&str, &TensorRef>| m.tensors.len() == names.len();
    let unclear = !are_unique(&old, &from_tensors) || !are_unique(&new, &to_tensors);
    if unclear || mine.tensors.len() != old.tensors.len() || !different.is_empty() || mine.format != new.format {
        return Ok(match rule {
            TensorRule::Exact => Combined::NotExact(different),
            _ => Combined::Conflict(conflict(Reason::Shapes, different)),
        });
    }
    // What this side did not touch besides tensors is as in the new version.
    let (template, template_entry) =
        if mine.skeleton == old.skeleton { (new.clone(), to) } else { (mine.clone(), ours) };
    let layouts = Layouts { ours: mine, from: from_tensors, to: to_tensors };
    if rule == TensorRule::Exact {
        let names = layouts.both_changed();
        if !names.is_empty() {
            return Ok(Combined::NotExact(names));
        }
    }
    let path = scratch.place(rel)?;
    let draft = Draft::new(repo, &path, template_entry, progress)?;
    let not_floats = layouts.write(repo, &template, &draft, progress)?;
    if !not_floats.is_empty() {
        return Ok(Combined::Conflict(conflict(Reason::NotFloats, not_floats)));
    }
    draft.finish(template.format)?;
    let executable = if ours.executable == from.executable { to.executable } else { ours.executable };
    Ok(Combined::Made { path, executable })
}

impl Layouts<'_> {
    fn both_changed(&self) -> Vec<String> {
        let changed = |t: &&TensorRef| {
            let [from, to] = [&self.from, &self.to].map(|side| side.get(t.name.as_str()).map(|t| t.id));
            from != to && Some(t.id) != from && Some(t.id) != to
        };
        self.ours.tensors.iter().filter(changed).map(|t| t.name.clone()).collect()
    }

    /// Writes every tensor that is not the template's. Returns those that cannot be computed with.
    fn write(&self, repo: &Repo, template: &Manifest, draft: &Draft, progress: &dyn Progress) -> Result<Vec<String>> {
        let mine = by_name(&self.ours);
        let mut not_floats = Vec::new();
        for slot in &template.tensors {
            go_on(progress, WHAT)?;
            let name = slot.name.as_str();
            let (Some(ours), Some(from), Some(to)) = (mine.get(name), self.from.get(name), self.to.get(name)) else {
                return Err(RepoError::corrupt("manifest", "two tensors have one name"));
            };
            let bytes = |t: &TensorRef| repo.odb().tensor(&t.id)?.read();
            let whole = if from.id == to.id || ours.id == to.id || (ours.id != from.id && is_state(name)) {
                Some(ours)
            } else if ours.id == from.id {
                Some(to)
            } else {
                None
            };
            match whole {
                Some(t) if t.id == slot.id => {}
                Some(t) => draft.patch(slot.offset, &bytes(t)?)?,
                None => match apply_update(slot.dtype, &bytes(ours)?, &bytes(from)?, &bytes(to)?, 1.0) {
                    Ok(made) => draft.patch(slot.offset, &made)?,
                    Err(MergeError::NotFloat(_)) => not_floats.push(slot.name.clone()),
                    Err(e) => return Err(RepoError::corrupt(format!("tensor {name}"), e)),
                },
            }
        }
        Ok(not_floats)
    }
}
