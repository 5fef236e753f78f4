//! Converts versions and differences to Python dictionaries.

use crate::errors::Outcome;
use mdl_objects::{Commit, Id, Resume};
use mdl_repo::{
    BoundsRecord, Fidelity, FileDiff, LevelReport, PruneReport, Pruned, Quality, Shard, Standing, TensorDiff,
};
use pyo3::{prelude::*, types::PyDict};
use std::collections::BTreeMap;

/// A dictionary of these items, and of fields of a value by their names.
macro_rules! dict {
    ($py:expr, $of:expr => [$($field:ident),* $(,)?] $(, $key:literal: $value:expr)* $(,)?) => {{
        let d = PyDict::new($py);
        $(d.set_item(stringify!($field), &$of.$field)?;)*
        $(d.set_item($key, $value)?;)*
        Ok(d)
    }};
}

/// A version and what it gives today.
pub struct Version {
    id: Id,
    commit: Commit,
    /// None: it cannot be told, since a newer program made the record of quality.
    fidelity: Option<Fidelity>,
    /// What a run that goes on from it gets back.
    resume: Option<Resume>,
    /// The rules by which it aged, lost its optimizer state, and was pruned.
    aged: Option<String>,
    weights: Option<String>,
    pruned: Option<String>,
}

impl Version {
    /// By the record of versions that gave up contents.
    pub fn read(repo: &mdl_repo::Repo, id: Id, commit: Commit, record: &Pruned) -> Outcome<Version> {
        let tree = match record.standing(repo.odb(), &id, &commit)? {
            Standing::StandIn(tree, _) => tree,
            Standing::Committed | Standing::Gone => commit.tree,
        };
        Ok(Version {
            fidelity: record.fidelity(repo.odb(), &id, &commit).ok(),
            resume: mdl_repo::pruned::resume(&commit, &tree),
            aged: record.aged(&id).map(|mark| mark.rules.clone()),
            weights: record.weights(&id).map(|mark| mark.rules.clone()),
            pruned: record.get(&id).map(|mark| mark.rules.clone()),
            id,
            commit,
        })
    }
}

/// A version, as `Commit.told` takes it.
pub fn commit<'py>(py: Python<'py>, version: &Version) -> PyResult<Bound<'py, PyDict>> {
    let Version { id, commit: c, .. } = version;
    let s = &c.summary;
    dict!(py, c => [message, step, epoch, metrics, meta],
        "id": id.to_hex(),
        "parents": c.parents.iter().map(Id::to_hex).collect::<Vec<_>>(),
        "author": (&c.author.name, &c.author.email),
        "time_ms": c.author.time_ms,
        "utc_offset_min": c.author.utc_offset_min,
        "files": s.files,
        "tensors": s.tensors,
        "new_tensors": s.new_tensors,
        "logical_bytes": s.logical_bytes,
        "stored_bytes": s.stored_bytes,
        "signed": c.signature.is_some(),
        "provenance": &c.provenance,
        "resumed_from": c.resumed_from.map(|id| id.to_hex()),
        "aged": &version.aged,
        "weights": &version.weights,
        "pruned": &version.pruned,
        "fidelity": version.fidelity.map(Fidelity::name),
        "resume": version.resume.map(Resume::name),
        "quality": Quality::from_commit(c).ok().flatten().map(|q| quality(py, &q)).transpose()?,
    )
}

/// What a rank has put.
pub fn shard<'py>(py: Python<'py>, s: &Shard) -> PyResult<Bound<'py, PyDict>> {
    dict!(py, s => [session, rank, files, tensors, new_tensors, logical_bytes, stored_bytes])
}

/// What a lossy commit measured.
fn quality<'py>(py: Python<'py>, q: &Quality) -> PyResult<Bound<'py, PyDict>> {
    dict!(py, q => [
        policy, family, configuration, gate, direction, exact, measured, limit, evaluations, max_abs, rel_l2,
        sensitivity, moments, exact_bytes, warnings,
    ],
        "bounds": q.bounds.as_ref().map(|b| bounds(py, b)).transpose()?,
    )
}

/// What bounds the error of each row, and how much of it was used.
fn bounds<'py>(py: Python<'py>, b: &BoundsRecord) -> PyResult<Bound<'py, PyDict>> {
    dict!(py, b => [
        weight, update, first, loosened, worst_row, update_error, worst_row_update, exact_rows, exact_tensors,
        hidden_rows,
    ])
}

/// What a pruning did, or would do.
pub fn pruning<'py>(py: Python<'py>, r: &PruneReport) -> PyResult<Bound<'py, PyDict>> {
    let level = |l: &LevelReport| (l.to.name(), (l.versions, l.freed_bytes, l.base_bytes));
    dict!(py, r => [
        dry_run, rules, branches, undecided, freed_bytes, base_bytes, no_approximation, no_state, mixed,
    ],
        "to": r.to.name(),
        "levels": r.levels.iter().map(level).collect::<BTreeMap<_, _>>(),
        "pruned": r.pruned.iter().map(|v| (v.commit.to_hex(), v.step)).collect::<Vec<_>>(),
        "kept": r.kept.iter().map(|v| (v.commit.to_hex(), v.step, v.why.clone())).collect::<Vec<_>>(),
    )
}

/// How a file differs between two versions.
pub fn file_diff<'py>(py: Python<'py>, f: &FileDiff) -> PyResult<Bound<'py, PyDict>> {
    dict!(py, f => [path, size_before, size_after, same_tensors],
        "change": f.change.name(),
        "tensors": f.tensors.iter().map(|t| tensor_diff(py, t)).collect::<PyResult<Vec<_>>>()?,
    )
}

fn tensor_diff<'py>(py: Python<'py>, t: &TensorDiff) -> PyResult<Bound<'py, PyDict>> {
    dict!(py, t => [name, shape, changed, rel_l2, max_abs, cosine],
        "change": t.change.name(),
        "dtype": t.dtype.name(),
    )
}
