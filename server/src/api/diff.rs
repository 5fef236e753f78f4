//! Route `GET .../diff`: changed files and tensors between two versions.

use crate::{api::entry::Number, request::prelude::*};
use mdl_repo::{Change, FileDiff, Files, TensorDiff};
use std::collections::BTreeSet;

/// Most files and tensors in an answer.
const MAX_FILES: usize = 10_000;
const MAX_TENSORS: usize = 100_000;

#[derive(Debug, Deserialize, IntoParams)]
#[into_params(parameter_in = Query)]
pub(super) struct DiffQuery {
    /// The version before.
    a: String,
    /// The version after. Default: HEAD.
    b: Option<String>,
    /// Files only: no tensor is looked at.
    #[serde(default)]
    files: bool,
}

/// How two versions differ.
#[derive(Debug, Serialize, ToSchema)]
pub(super) struct DiffInfo {
    /// The commit before.
    a: String,
    /// The commit after.
    b: String,
    /// Files that differ, by path.
    files: Vec<FileInfo>,
    /// Files and tensors that differ and are left out, because the answer is long enough.
    left_out: u64,
}

/// How a file differs.
#[derive(Debug, Serialize, ToSchema)]
#[schema(as = FileDifference)]
struct FileInfo {
    path: String,
    /// `added`, `modified` or `deleted`.
    change: &'static str,
    size_before: Option<u64>,
    size_after: Option<u64>,
    /// Whether only the executable bit differs.
    mode_only: bool,
    /// Tensors that are the same in both; none: not compared.
    same_tensors: Option<u64>,
    /// Tensors that differ; none: not compared.
    tensors: Option<Vec<TensorInfo>>,
}

/// How a tensor differs. The numbers are there where both versions have it with one type and shape.
#[derive(Debug, Serialize, ToSchema)]
struct TensorInfo {
    name: String,
    /// `added`, `modified` or `deleted`.
    change: &'static str,
    dtype: &'static str,
    shape: Vec<u64>,
    /// Share of elements whose bytes differ, 0 to 1.
    changed: Option<Number>,
    /// ||b - a|| / ||a||.
    rel_l2: Option<Number>,
    /// Largest |b - a|.
    max_abs: Option<Number>,
    cosine: Option<Number>,
}

/// Compare two versions, file by file and tensor by tensor
///
/// Tensors that differ are decoded: this can take long. It ends when the client goes away.
#[utoipa::path(get, path = "/diff", tag = "versions", params(DiffQuery), responses((status = 200, body = DiffInfo)))]
pub(super) async fn diff(Read(access): Read, Query(query): Query<DiffQuery>) -> Result<Json<DiffInfo>> {
    let diff = access.heavy(move |access, watch| {
        let repo = &*access.repo;
        let a = revision::resolve(repo, &query.a)?;
        let b = revision::resolve(repo, query.b.as_deref().unwrap_or("HEAD"))?;
        let files = match query.files {
            true => by_file(repo, &a, &b)?,
            false => mdl_repo::diff(repo, &a, &b, watch)?.into_iter().map(file_info).collect(),
        };
        let (files, left_out) = bounded(files);
        Ok(Json(DiffInfo { a: a.to_hex(), b: b.to_hex(), files, left_out }))
    });
    diff.await
}

/// The files that differ, by path.
fn by_file(repo: &Repo, a: &Id, b: &Id) -> Result<Vec<FileInfo>> {
    let (before, after) = (mdl_repo::files(repo, a)?, mdl_repo::files(repo, b)?);
    let info = |(path, change, old, new): FileChange<'_>| FileInfo {
        path: path.clone(),
        change: change.name(),
        size_before: old.map(|e| e.size),
        size_after: new.map(|e| e.size),
        mode_only: old.zip(new).is_some_and(|(x, y)| same(x, y)),
        same_tensors: None,
        tensors: None,
    };
    Ok(changed_files(&before, &after).map(info).collect())
}

/// A path, how the file differs, and its entries before and after.
pub type FileChange<'a> = (&'a String, Change, Option<&'a Entry>, Option<&'a Entry>);

/// The files that differ, by path.
pub fn changed_files<'a>(before: &'a Files, after: &'a Files) -> impl Iterator<Item = FileChange<'a>> {
    let paths: BTreeSet<&String> = before.keys().chain(after.keys()).collect();
    paths.into_iter().filter_map(|path| match (before.get(path), after.get(path)) {
        (Some(x), Some(y)) if same(x, y) && x.executable == y.executable => None,
        (old @ Some(_), new @ Some(_)) => Some((path, Change::Modified, old, new)),
        (None, new) => Some((path, Change::Added, None, new)),
        (old, None) => Some((path, Change::Deleted, old, None)),
    })
}

/// Whether two files are the same but for the executable bit.
pub fn same(x: &Entry, y: &Entry) -> bool {
    (x.mode, x.id) == (y.mode, y.id)
}

/// Leaves out what is too much, and counts it.
fn bounded(mut files: Vec<FileInfo>) -> (Vec<FileInfo>, u64) {
    let mut left_out = files.len().saturating_sub(MAX_FILES) as u64;
    files.truncate(MAX_FILES);
    let mut room = MAX_TENSORS;
    for tensors in files.iter_mut().filter_map(|f| f.tensors.as_mut()) {
        left_out += tensors.len().saturating_sub(room) as u64;
        tensors.truncate(room);
        room -= tensors.len();
    }
    (files, left_out)
}

fn file_info(f: FileDiff) -> FileInfo {
    FileInfo {
        path: f.path,
        change: f.change.name(),
        size_before: f.size_before,
        size_after: f.size_after,
        mode_only: f.mode_only,
        same_tensors: Some(f.same_tensors),
        tensors: Some(f.tensors.into_iter().map(tensor_info).collect()),
    }
}

fn tensor_info(t: TensorDiff) -> TensorInfo {
    TensorInfo {
        name: t.name,
        change: t.change.name(),
        dtype: t.dtype.name(),
        shape: t.shape,
        changed: t.changed.map(Number::from),
        rel_l2: t.rel_l2.map(Number::from),
        max_abs: t.max_abs.map(Number::from),
        cosine: t.cosine.map(Number::from),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn answers_are_bounded_and_say_so() {
        let tensor = |i: usize| TensorInfo {
            name: i.to_string(),
            change: "modified",
            dtype: "F32",
            shape: Vec::new(),
            changed: None,
            rel_l2: None,
            max_abs: None,
            cosine: None,
        };
        let file = |tensors: usize| FileInfo {
            path: String::new(),
            change: "modified",
            size_before: None,
            size_after: None,
            mode_only: false,
            same_tensors: Some(0),
            tensors: Some((0..tensors).map(tensor).collect()),
        };
        let (files, left_out) = bounded(vec![file(MAX_TENSORS - 1), file(3), file(5)]);
        let sizes: Vec<usize> = files.iter().filter_map(|f| f.tensors.as_ref().map(Vec::len)).collect();
        assert_eq!((sizes, left_out), (vec![MAX_TENSORS - 1, 1, 0], 7));
        let (files, left_out) = bounded((0..MAX_FILES + 2).map(|_| file(0)).collect());
        assert_eq!((files.len(), left_out), (MAX_FILES, 2));
    }
}
