//! Files and tensors as JSON: the fields and names of `mdl ls --json`.

use crate::{api::entry::Number, request::prelude::*};
use mdl_objects::{Kind, Manifest, ViewRef};
use mdl_repo::{Report, StoredTensor, TensorReport, format_name};
use std::{collections::HashMap, ops::Range};

/// A file of a version.
#[derive(Debug, Serialize, ToSchema)]
pub struct FileInfo {
    path: String,
    logical_bytes: u64,
    executable: bool,
    /// Id of its contents.
    id: String,
    /// `safetensors`, `torch`, `npz`, `npy`, `gguf` or `plain`.
    format: &'static str,
    /// Tensors, if they were asked for; none although they were: there are too many for this answer (`/tensors` has
    /// them).
    tensors: Option<Vec<TensorInfo>>,
    /// Views, likewise.
    views: Option<Vec<ViewInfo>>,
}

/// A stored tensor.
#[derive(Debug, Serialize, ToSchema)]
pub(super) struct TensorInfo {
    name: String,
    /// Whether a view goes by the tensor's own name, which is therefore listed as `NAME#storage`.
    storage: bool,
    dtype: &'static str,
    shape: Vec<u64>,
    logical_bytes: u64,
    id: String,
    stored_bytes: u64,
    /// How its segments are encoded; `mixed` where they are not all alike.
    scheme: &'static str,
    /// Differences to follow down to a tensor that is stored whole.
    depth: u8,
    /// The tensor it is a difference to.
    base: Option<String>,
    /// How far it is from what was to be committed, where the commit is lossy and brought it.
    error: Option<ErrorInfo>,
}

/// How far a tensor is from what was to be committed.
#[derive(Debug, Serialize, ToSchema)]
struct ErrorInfo {
    /// Largest deviation of an element.
    max_abs: Option<Number>,
    /// The deviation's Euclidean norm relative to the tensor's.
    rel_l2: Option<Number>,
    /// The same of the row that is furthest off, relative to the row.
    worst_row: Option<Number>,
    /// The deviation relative to the tensor's change since the parent; none where that was unknown.
    update_error: Option<Number>,
    /// The largest of a row, relative to the row's change.
    worst_row_update: Option<Number>,
}

/// A further name: elements inside a stored tensor.
#[derive(Debug, Serialize, ToSchema)]
pub struct ViewInfo {
    name: String,
    /// The tensor it lies in.
    tensor: Option<String>,
    /// Bytes before its first element.
    offset: u64,
    dtype: &'static str,
    shape: Vec<u64>,
    /// In elements.
    strides: Vec<u64>,
}

/// What a commit says of the tensors that it brought, by file and name.
pub(super) struct Errors(HashMap<(String, String), TensorReport>);

impl Errors {
    /// Reads a version's report; one without has none, nor one that gives its exact contents: the report is about the
    /// approximation beside them.
    pub(super) fn from_version(repo: &Repo, version: &Version) -> Result<Errors> {
        let is_exact = version.commit.approximation.is_some() && !version.is_stand_in();
        let Some(id) = version.commit.report.as_ref().filter(|_| !is_exact) else {
            return Ok(Errors(HashMap::new()));
        };
        let bytes = repo.odb().read(id, Kind::Blob)?;
        let wrong = |e: serde_json::Error| RepoError::corrupt(format!("report {}", id.short()), e.to_string());
        let report: Report = serde_json::from_slice(&bytes).map_err(wrong)?;
        let lossy = report.tensors.into_iter().filter(|t| t.max_abs.is_some() || t.rel_l2.is_some());
        Ok(Errors(lossy.map(|t| ((t.path.clone(), t.name.clone()), t)).collect()))
    }

    fn get(&self, path: &str, name: &str) -> Option<ErrorInfo> {
        let found = self.0.get(&(path.to_owned(), name.to_owned()))?;
        Some(ErrorInfo {
            max_abs: found.max_abs.map(Number::from),
            rel_l2: found.rel_l2.map(Number::from),
            worst_row: found.worst_row.map(Number::from),
            update_error: found.update_error.map(Number::from),
            worst_row_update: found.worst_row_update.map(Number::from),
        })
    }
}

/// A file's manifest, if it has one.
pub fn manifest(repo: &Repo, entry: &Entry) -> mdl_repo::Result<Option<Manifest>> {
    let has = entry.mode == Mode::Manifest;
    has.then(|| repo.odb().manifest(&entry.id)).transpose()
}

/// A file's format by its manifest: `safetensors`, or `plain` without one.
pub fn format(manifest: Option<&Manifest>) -> &'static str {
    manifest.map_or("plain", |m| format_name(m.format))
}

/// Describes a file; a caller that wants its tensors adds them.
pub fn file(path: &str, entry: &Entry, manifest: Option<&Manifest>) -> FileInfo {
    FileInfo {
        path: path.to_owned(),
        logical_bytes: entry.size,
        executable: entry.executable,
        id: entry.id.to_hex(),
        format: format(manifest),
        tensors: None,
        views: None,
    }
}

impl FileInfo {
    pub(super) fn with(mut self, tensors: Vec<TensorInfo>, views: Vec<ViewInfo>) -> FileInfo {
        (self.tensors, self.views) = (Some(tensors), Some(views));
        self
    }
}

/// Some of a file's tensors, by their place.
pub(super) fn tensors(
    repo: &Repo,
    path: &str,
    manifest: &Manifest,
    places: Range<usize>,
    errors: &Errors,
) -> Result<Vec<TensorInfo>> {
    let stored = mdl_repo::tensors_in(repo, manifest, places.clone())?;
    let own = manifest.tensors.iter().skip(places.start);
    let info = |(t, own): (StoredTensor, &mdl_objects::TensorRef)| TensorInfo {
        error: errors.get(path, &own.name),
        name: t.name,
        storage: t.storage,
        dtype: t.dtype,
        shape: t.shape,
        logical_bytes: t.logical_bytes,
        id: t.id,
        stored_bytes: t.stored_bytes,
        scheme: t.scheme,
        depth: t.depth,
        base: t.base,
    };
    Ok(stored.into_iter().zip(own).map(info).collect())
}

/// Some of a file's views, by their place.
pub fn views(manifest: &Manifest, places: Range<usize>) -> Vec<ViewInfo> {
    if places.is_empty() {
        return Vec::new();
    }
    let names = manifest.listed_names();
    let info = |v: &ViewRef| ViewInfo {
        name: v.name.clone(),
        tensor: names.get(v.tensor as usize).cloned(),
        offset: v.offset,
        dtype: v.dtype.name(),
        shape: v.shape.clone(),
        strides: v.strides.clone(),
    };
    manifest.views.iter().skip(places.start).take(places.len()).map(info).collect()
}
