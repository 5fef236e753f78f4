//! Converts versions and differences to Python dictionaries.

use mdl_objects::{Commit, Id, Resume};
use mdl_repo::{BoundsRecord, FileDiff, PruneReport, Pruned, Quality, Shard, TensorDiff};
use pyo3::{prelude::*, types::PyDict};

/// A dictionary of these items, and of fields of a value by their names.
macro_rules! dict {
    ($py:expr, $of:expr => [$($field:ident),* $(,)?] $(, $key:literal: $value:expr)* $(,)?) => {{
        let d = PyDict::new($py);
        $(d.set_item(stringify!($field), &$of.$field)?;)*
        $(d.set_item($key, $value)?;)*
        Ok(d)
    }};
}

pub fn commit<'py>(py: Python<'py>, id: &Id, c: &Commit, pruned: &Pruned) -> PyResult<Bound<'py, PyDict>> {
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
        "resumed_from": c.resumed_from.map(|id| id.to_hex()),
        "pruned": pruned.get(id).map(|mark| &mark.rules),
        "resume": c.resume.map(Resume::name),
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
        sensitivity, moments, warnings,
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
    dict!(py, r => [dry_run, rules, branches, undecided, freed_bytes, base_bytes],
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
