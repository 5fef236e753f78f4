//! Blame: in which versions each tensor changed, told by ids alone, and by how much, which is computed where asked for.

use crate::{
    history::{
        Change,
        diff::{relative_l2, relative_l2_of},
        touched::Selection,
    },
    pruned::{Pruned, Standing, pruned},
    repo::Repo,
};
use mdl_codec::Dtype;
use mdl_objects::{Commit, Id, Manifest, Mode, TensorRef};
use mdl_store::{Missing, Progress, RepoError, Result, progress::go_on};
use rayon::prelude::*;
use std::{
    collections::{BTreeMap, HashMap},
    sync::Arc,
};

/// Names the operation in `Stopped` errors.
const WHAT: &str = "the blame";
/// Most changes of all tensors together that are held.
const MOST: usize = 4_000_000;

/// Of which changes the amount is computed; each decodes the tensor twice.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Amounts {
    /// Of none: no tensor is decoded.
    None,
    /// Of each tensor's last change.
    #[default]
    Last,
    /// Of all.
    All,
}

/// What is asked.
#[derive(Clone, Debug)]
pub struct BlameQuery {
    /// Which tensors.
    pub selection: Selection,
    /// Of which changes the amount is computed.
    pub amounts: Amounts,
    /// Only what changed this row, counted from 0 along the first axis; of the others' rows nothing is said.
    pub row: Option<u64>,
    /// The newest versions that are looked at.
    pub versions: usize,
}

/// A version of the table.
#[derive(Clone, Debug, PartialEq)]
pub struct BlamedVersion {
    /// The version.
    pub id: Id,
    /// Its training step.
    pub step: Option<u64>,
    /// When it was committed: milliseconds since 1970.
    pub time_ms: i64,
    /// The first line of its message.
    pub subject: String,
    /// Whether its contents are gone: what changed in it counts as changed in the next one that has some.
    pub gone: bool,
}

/// A change of a tensor.
#[derive(Clone, Debug, PartialEq)]
pub struct BlamedChange {
    /// The version, by its place in the table.
    pub version: usize,
    /// What happened.
    pub change: Change,
    /// ||b - a|| / ||a||, where it was asked for and both have one dtype and shape; infinite where only a is zero.
    pub rel_l2: Option<f64>,
    /// The tensor before and after.
    before: Option<Arc<TensorRef>>,
    after: Option<Arc<TensorRef>>,
}

/// A tensor, and the versions in which it changed, oldest first.
#[derive(Clone, Debug, PartialEq)]
pub struct BlamedTensor {
    /// Path of its file.
    pub path: String,
    /// Its name.
    pub name: String,
    /// Element type, as it is last.
    pub dtype: Dtype,
    /// Dimensions, as they are last.
    pub shape: Vec<u64>,
    /// Its changes.
    pub changes: Vec<BlamedChange>,
}

/// In which versions tensors changed.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Blame {
    /// The versions that lead to the one asked for, by first parents, oldest first.
    pub versions: Vec<BlamedVersion>,
    /// The tensors by path and name.
    pub tensors: Vec<BlamedTensor>,
    /// Whether there are older versions: what was there in the first one that is looked at is then from before.
    pub more: bool,
}

/// The layer that a tensor's name tells: up to its first number (`model.layers.3`), else up to its last dot.
pub fn layer_of(name: &str) -> &str {
    let mut at = 0;
    for part in name.split('.') {
        if at > 0 && !part.is_empty() && part.len() <= 6 && part.bytes().all(|b| b.is_ascii_digit()) {
            return &name[..at + part.len()];
        }
        at += part.len() + 1;
    }
    name.rsplit_once('.').map_or(name, |(layer, _)| layer)
}

/// A tensor and its name.
type Named = (String, Arc<TensorRef>);

type Held = BTreeMap<(String, String), Arc<TensorRef>>;

/// The tensors of versions, those that are asked for.
struct Reader<'a> {
    repo: &'a Repo,
    selection: &'a Selection,
    record: Pruned,
    /// By path: the file that was read last, and its tensors.
    known: HashMap<String, (Id, Vec<Named>)>,
}

impl Reader<'_> {
    fn read(&mut self, id: &Id, commit: &Commit) -> Result<Option<Held>> {
        let odb = self.repo.odb();
        let tree = match self.record.standing(odb, id, commit)? {
            Standing::Committed => commit.tree,
            Standing::StandIn(tree, _) => tree,
            Standing::Gone => return Ok(None),
        };
        let mut out = Held::new();
        for (path, entry) in odb.files(&tree)? {
            if entry.mode != Mode::Manifest || !self.selection.some_of(&path) {
                continue;
            }
            if self.known.get(&path).is_none_or(|(known, _)| *known != entry.id) {
                let chosen = self.chosen(&path, odb.manifest(&entry.id)?);
                self.known.insert(path.clone(), (entry.id, chosen));
            }
            let tensors = self.known.get(&path).into_iter().flat_map(|(_, tensors)| tensors);
            out.extend(tensors.map(|(name, t)| ((path.clone(), name.clone()), t.clone())));
        }
        Ok(Some(out))
    }

    fn chosen(&self, path: &str, manifest: Manifest) -> Vec<Named> {
        let names = manifest.listed_names();
        let all = names.into_iter().zip(manifest.tensors);
        all.filter(|(name, _)| self.selection.tensor(path, name)).map(|(name, t)| (name, Arc::new(t))).collect()
    }
}

/// Says in which of the versions that lead to `from`, by first parents, each tensor changed.
///
/// # Errors
/// No tensor that was asked for has such a row; there are more changes than can be held; absent or damaged objects;
/// `Stopped`.
pub fn blame(repo: &Repo, from: &Id, query: &BlameQuery, progress: &dyn Progress) -> Result<Blame> {
    let mut line = Vec::new();
    let mut next = Some(*from);
    while let Some(id) = next.filter(|_| line.len() < query.versions.max(1)) {
        let commit = repo.odb().commit(&id)?;
        next = commit.parents.first().copied();
        line.push((id, commit));
    }
    line.reverse();
    let mut out = Blame { more: next.is_some(), ..Blame::default() };
    let mut reader = Reader { repo, selection: &query.selection, record: pruned(repo)?, known: HashMap::new() };
    let mut tensors: BTreeMap<(String, String), BlamedTensor> = BTreeMap::new();
    let (mut before, mut count): (Option<Held>, usize) = (None, 0);
    progress.begin("looking at versions", line.len() as u64);
    for (place, (id, commit)) in line.iter().enumerate() {
        go_on(progress, WHAT)?;
        progress.advance(1);
        let held = reader.read(id, commit)?;
        out.versions.push(BlamedVersion {
            id: *id,
            step: commit.step,
            time_ms: commit.author.time_ms,
            subject: commit.message.trim_start().lines().next().unwrap_or_default().to_owned(),
            gone: held.is_none(),
        });
        let Some(held) = held else { continue };
        let is_first = place == 0 && !out.more;
        count += compare(&mut tensors, place, before.as_ref(), &held, is_first);
        if count > MOST {
            return Err(RepoError::user(
                format!("there are more than {MOST} changes of tensors"),
                "ask about fewer tensors or versions",
            ));
        }
        before = Some(held);
    }
    progress.end();
    out.tensors = tensors.into_values().collect();
    if let Some(row) = query.row {
        only_row(repo, &mut out, row, progress)?;
    } else {
        out.measure(repo, query.amounts, progress)?;
    }
    Ok(out)
}

/// Notes what differs between two versions; returns how much that is.
fn compare(
    tensors: &mut BTreeMap<(String, String), BlamedTensor>,
    version: usize,
    before: Option<&Held>,
    after: &Held,
    is_first: bool,
) -> usize {
    let mut count = 0;
    for (key, t) in after {
        let slot = tensors.entry(key.clone()).or_insert_with(|| BlamedTensor {
            path: key.0.clone(),
            name: key.1.clone(),
            dtype: t.dtype,
            shape: t.shape.clone(),
            changes: Vec::new(),
        });
        (slot.dtype, slot.shape) = (t.dtype, t.shape.clone());
        let old = before.map(|held| held.get(key));
        let change = match old {
            Some(Some(old)) if old.id == t.id && fits(old, t) => continue,
            Some(Some(_)) => Change::Modified,
            Some(None) => Change::Added,
            None if is_first => Change::Added,
            None => continue,
        };
        count += 1;
        let (before, after) = (old.flatten().cloned(), Some(t.clone()));
        slot.changes.push(BlamedChange { version, change, rel_l2: None, before, after });
    }
    for (key, t) in before.into_iter().flatten().filter(|(key, _)| !after.contains_key(*key)) {
        if let Some(slot) = tensors.get_mut(key) {
            count += 1;
            let (change, before) = (Change::Deleted, Some(t.clone()));
            slot.changes.push(BlamedChange { version, change, rel_l2: None, before, after: None });
        }
    }
    count
}

fn fits(a: &TensorRef, b: &TensorRef) -> bool {
    (a.dtype, &a.shape) == (b.dtype, &b.shape)
}

/// The two tensors of a change that can be compared element by element.
fn pair(change: &BlamedChange) -> Option<(&TensorRef, &TensorRef)> {
    let both = change.before.as_deref().zip(change.after.as_deref());
    both.filter(|(a, b)| fits(a, b) && a.dtype != Dtype::Opaque)
}

impl Blame {
    /// Computes amounts: decodes the tensors before and after each change.
    ///
    /// # Errors
    /// Absent or damaged objects; `Stopped`.
    pub fn measure(&mut self, repo: &Repo, amounts: Amounts, progress: &dyn Progress) -> Result<()> {
        let skipped = |changes: &[BlamedChange]| match amounts {
            Amounts::None => changes.len(),
            Amounts::Last => changes.len().saturating_sub(1),
            Amounts::All => 0,
        };
        let all = self.tensors.iter_mut().flat_map(|t| {
            let from = skipped(&t.changes);
            t.changes.iter_mut().skip(from)
        });
        let jobs: Vec<&mut BlamedChange> = all.filter(|c| pair(c).is_some()).collect();
        let bytes = jobs.iter().filter_map(|c| pair(c)?.1.byte_len()).sum();
        progress.begin("comparing", bytes);
        jobs.into_par_iter().try_for_each(|change| -> Result<()> {
            let Some((a, b)) = pair(change) else { return Ok(()) };
            let bytes = b.byte_len().unwrap_or_default();
            let found = relative_l2(&repo.odb().tensor(&a.id)?, &repo.odb().tensor(&b.id)?, progress)?;
            progress.advance(bytes);
            change.rel_l2 = Some(found);
            Ok(())
        })?;
        progress.end();
        Ok(())
    }
}

/// Bytes of one row along the first axis; none: there is no such row.
fn row_bytes(t: &TensorRef, row: u64) -> Option<(u64, u64)> {
    let rows = t.shape.first().copied().filter(|rows| row < *rows)?;
    let len = t.byte_len()? / rows;
    Some((row.checked_mul(len)?, len))
}

/// Keeps changes of a row, with their amounts, and tensors that have it.
fn only_row(repo: &Repo, out: &mut Blame, row: u64, progress: &dyn Progress) -> Result<()> {
    out.tensors.retain(|t| t.shape.first().is_some_and(|rows| row < *rows));
    if out.tensors.is_empty() {
        return Err(RepoError::not_found(Missing::Tensor, format!("with a row {row}, of those that were asked for")));
    }
    let changes = out.tensors.iter().map(|t| t.changes.len() as u64).sum();
    progress.begin("comparing rows", changes);
    out.tensors.par_iter_mut().try_for_each(|t| -> Result<()> {
        let mut kept = Vec::new();
        for mut change in t.changes.drain(..) {
            go_on(progress, WHAT)?;
            progress.advance(1);
            let Some((a, b)) = change.before.as_deref().zip(change.after.as_deref()).filter(|(a, b)| fits(a, b)) else {
                kept.push(change);
                continue;
            };
            let read = |t: &TensorRef| match row_bytes(t, row) {
                Some((start, len)) => repo.odb().tensor(&t.id)?.range(start, len),
                None => Ok(Vec::new()),
            };
            let (old, new) = (read(a)?, read(b)?);
            if old != new {
                change.rel_l2 = (a.dtype != Dtype::Opaque).then(|| relative_l2_of(a.dtype, &old, &new));
                kept.push(change);
            }
        }
        t.changes = kept;
        Ok(())
    })?;
    progress.end();
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_tell_layers() {
        for (name, layer) in [
            ("model.layers.3.attention.wq.weight", "model.layers.3"),
            ("h.10.mlp.weight", "h.10"),
            ("layer1.0.conv1.weight", "layer1.0"),
            ("lm_head.weight", "lm_head"),
            ("weight", "weight"),
            ("0.weight", "0"),
            ("", ""),
        ] {
            assert_eq!(layer_of(name), layer, "{name}");
        }
    }
}
