//! Converts versions and differences to Python dictionaries.

use mdl_objects::{Commit, Id, Resume};
use mdl_repo::{FileDiff, PruneReport, Pruned, Quality, Shard, TensorDiff};
use pyo3::{prelude::*, types::PyDict};

/// A commit.
pub fn commit<'py>(py: Python<'py>, id: &Id, c: &Commit, pruned: &Pruned) -> PyResult<Bound<'py, PyDict>> {
    let d = PyDict::new(py);
    d.set_item("id", id.to_hex())?;
    d.set_item("parents", c.parents.iter().map(Id::to_hex).collect::<Vec<_>>())?;
    d.set_item("message", &c.message)?;
    d.set_item("step", c.step)?;
    d.set_item("epoch", c.epoch)?;
    d.set_item("metrics", c.metrics.clone())?;
    d.set_item("meta", c.meta.clone())?;
    d.set_item("author", (&c.author.name, &c.author.email))?;
    d.set_item("time_ms", c.author.time_ms)?;
    d.set_item("utc_offset_min", c.author.utc_offset_min)?;
    let s = c.summary;
    d.set_item("files", s.files)?;
    d.set_item("tensors", s.tensors)?;
    d.set_item("new_tensors", s.new_tensors)?;
    d.set_item("logical_bytes", s.logical_bytes)?;
    d.set_item("stored_bytes", s.stored_bytes)?;
    d.set_item("resumed_from", c.resumed_from.map(|id| id.to_hex()))?;
    d.set_item("pruned", pruned.get(id).map(|mark| mark.rules.clone()))?;
    d.set_item("resume", c.resume.map(Resume::name))?;
    d.set_item("quality", Quality::of(c).ok().flatten().map(|q| quality(py, &q)).transpose()?)?;
    Ok(d)
}

/// What a rank has put.
pub fn shard<'py>(py: Python<'py>, s: &Shard) -> PyResult<Bound<'py, PyDict>> {
    let d = PyDict::new(py);
    d.set_item("session", &s.session)?;
    d.set_item("rank", s.rank)?;
    d.set_item("files", s.files)?;
    d.set_item("tensors", s.tensors)?;
    d.set_item("new_tensors", s.new_tensors)?;
    d.set_item("logical_bytes", s.logical_bytes)?;
    d.set_item("stored_bytes", s.stored_bytes)?;
    Ok(d)
}

/// What a lossy commit measured.
pub fn quality<'py>(py: Python<'py>, q: &Quality) -> PyResult<Bound<'py, PyDict>> {
    let d = PyDict::new(py);
    d.set_item("policy", &q.policy)?;
    d.set_item("family", &q.family)?;
    d.set_item("configuration", &q.configuration)?;
    d.set_item("gate", &q.gate)?;
    d.set_item("direction", &q.direction)?;
    d.set_item("exact", q.exact)?;
    d.set_item("measured", q.measured)?;
    d.set_item("limit", q.limit)?;
    d.set_item("evaluations", q.evaluations)?;
    d.set_item("max_abs", q.max_abs)?;
    d.set_item("rel_l2", q.rel_l2)?;
    d.set_item("sensitivity", &q.sensitivity)?;
    d.set_item("moments", &q.moments)?;
    d.set_item("warnings", q.warnings.clone())?;
    Ok(d)
}

/// What a pruning did, or would do.
pub fn pruning<'py>(py: Python<'py>, r: &PruneReport) -> PyResult<Bound<'py, PyDict>> {
    let d = PyDict::new(py);
    d.set_item("dry_run", r.dry_run)?;
    d.set_item("rules", &r.rules)?;
    d.set_item("branches", r.branches.clone())?;
    let pruned = r.pruned.iter().map(|v| (v.commit.to_hex(), v.step));
    d.set_item("pruned", pruned.collect::<Vec<_>>())?;
    let kept = r.kept.iter().map(|v| (v.commit.to_hex(), v.step, v.why.clone()));
    d.set_item("kept", kept.collect::<Vec<_>>())?;
    d.set_item("undecided", r.undecided.clone())?;
    d.set_item("freed_bytes", r.freed_bytes)?;
    d.set_item("base_bytes", r.base_bytes)?;
    Ok(d)
}

/// How a file differs between two versions.
pub fn file_diff<'py>(py: Python<'py>, f: &FileDiff) -> PyResult<Bound<'py, PyDict>> {
    let d = PyDict::new(py);
    d.set_item("path", &f.path)?;
    d.set_item("change", f.change.name())?;
    d.set_item("size_before", f.size_before)?;
    d.set_item("size_after", f.size_after)?;
    d.set_item("same_tensors", f.same_tensors)?;
    let tensors = f.tensors.iter().map(|t| tensor_diff(py, t));
    d.set_item("tensors", tensors.collect::<PyResult<Vec<_>>>()?)?;
    Ok(d)
}

fn tensor_diff<'py>(py: Python<'py>, t: &TensorDiff) -> PyResult<Bound<'py, PyDict>> {
    let d = PyDict::new(py);
    d.set_item("name", &t.name)?;
    d.set_item("change", t.change.name())?;
    d.set_item("dtype", t.dtype.name())?;
    d.set_item("shape", t.shape.clone())?;
    d.set_item("changed", t.changed)?;
    d.set_item("rel_l2", t.rel_l2)?;
    d.set_item("max_abs", t.max_abs)?;
    d.set_item("cosine", t.cosine)?;
    Ok(d)
}
