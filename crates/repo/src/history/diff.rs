//! Differences between two versions: per file, and per tensor how much moved and how far.

use crate::{pruned::files, repo::Repo};
use mdl_codec::Dtype;
use mdl_objects::{Entry, Id, Manifest, Mode, TensorRef, ViewRef};
use mdl_store::{Progress, RepoError, Result, object_db::Odb, progress::go_on, read::TensorReader, values::to_f64};
use std::collections::BTreeMap;

/// How a file differs.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Change {
    /// In the work tree only.
    Added,
    /// In both, with other bytes or another executable bit.
    Modified,
    /// In the version only.
    Deleted,
}

impl Change {
    /// Lower-case name.
    pub const fn name(self) -> &'static str {
        match self {
            Change::Added => "added",
            Change::Modified => "modified",
            Change::Deleted => "deleted",
        }
    }
}

/// Names the operation in `Stopped` errors.
const WHAT: &str = "the comparison";

/// How a file differs.
#[derive(Clone, Debug)]
pub struct FileDiff {
    /// Path in the tree.
    pub path: String,
    /// What happened to it.
    pub change: Change,
    /// Bytes before; none if it was added.
    pub size_before: Option<u64>,
    /// Bytes after; none if it was deleted.
    pub size_after: Option<u64>,
    /// Whether only the executable bit differs.
    pub mode_only: bool,
    /// Tensors that differ, in the order of their names.
    pub tensors: Vec<TensorDiff>,
    /// Tensors that are the same in both.
    pub same_tensors: u64,
}

/// How a tensor differs. The numbers are there where both versions have the tensor with one dtype and shape.
#[derive(Clone, Debug)]
pub struct TensorDiff {
    /// Name in the file.
    pub name: String,
    /// What happened to it.
    pub change: Change,
    /// Element type after (before, if deleted).
    pub dtype: Dtype,
    /// Dimensions after (before, if deleted).
    pub shape: Vec<u64>,
    /// Fraction of elements whose bytes differ, 0 to 1.
    pub changed: Option<f64>,
    /// ||b - a|| / ||a||; infinite where only a is zero.
    pub rel_l2: Option<f64>,
    /// Largest |b - a|.
    pub max_abs: Option<f64>,
    /// a.b / (||a|| ||b||).
    pub cosine: Option<f64>,
}

/// Differences of commit `b` to commit `a`, by path.
pub fn diff(repo: &Repo, a: &Id, b: &Id, progress: &dyn Progress) -> Result<Vec<FileDiff>> {
    let (before, after) = (files(repo, a)?, files(repo, b)?);
    let differs = |(path, e): &(&String, &Entry)| {
        before.get(*path).is_none_or(|o| (o.mode, o.id, o.executable) != (e.mode, e.id, e.executable))
    };
    let changed: Vec<(&String, &Entry)> = after.iter().filter(differs).collect();
    progress.begin("comparing", changed.iter().map(|(_, e)| e.size).sum());
    let mut out = Vec::new();
    for (path, e) in changed {
        out.push(file_diff(repo, path, before.get(path), Some(e), progress)?);
    }
    for (path, e) in before.iter().filter(|(path, _)| !after.contains_key(*path)) {
        out.push(file_diff(repo, path, Some(e), None, progress)?);
    }
    progress.end();
    out.sort_by(|x, y| x.path.cmp(&y.path));
    Ok(out)
}

fn file_diff(
    repo: &Repo,
    path: &str,
    before: Option<&Entry>,
    after: Option<&Entry>,
    progress: &dyn Progress,
) -> Result<FileDiff> {
    let change = change_of(before.is_some(), after.is_some());
    let mut diff = FileDiff {
        path: path.to_owned(),
        change,
        size_before: before.map(|e| e.size),
        size_after: after.map(|e| e.size),
        mode_only: before.zip(after).is_some_and(|(x, y)| (x.mode, x.id) == (y.mode, y.id)),
        tensors: Vec::new(),
        same_tensors: 0,
    };
    let tensors = |e: Option<&Entry>| -> Result<BTreeMap<String, Side>> {
        Ok(manifest_of(repo.odb(), e)?.map_or_else(BTreeMap::new, |m| sides(&m)))
    };
    let (old, new) = (tensors(before)?, tensors(after)?);
    let mut names: Vec<&String> = old.keys().chain(new.keys()).collect();
    names.sort();
    names.dedup();
    for name in names {
        go_on(progress, WHAT)?;
        let (a, b) = (old.get(name), new.get(name));
        if a.zip(b).is_some_and(|(a, b)| a.tensor.id == b.tensor.id && a.fits(b)) {
            diff.same_tensors += 1;
        } else if let Some(t) = tensor_diff(repo, a, b, progress)? {
            diff.tensors.push(t);
        }
        progress.advance(b.and_then(|b| b.tensor.byte_len()).unwrap_or(0));
    }
    Ok(diff)
}

fn tensor_diff(repo: &Repo, a: Option<&Side>, b: Option<&Side>, progress: &dyn Progress) -> Result<Option<TensorDiff>> {
    let Some(shown) = b.or(a) else { return Ok(None) };
    let dtype = shown.tensor.dtype;
    let mut diff = TensorDiff {
        name: shown.name.clone(),
        change: change_of(a.is_some(), b.is_some()),
        dtype,
        shape: shown.shape.clone(),
        changed: None,
        rel_l2: None,
        max_abs: None,
        cosine: None,
    };
    if let (Some(a), Some(b)) = (a, b)
        && a.fits(b)
    {
        let (a, b) = (repo.odb().tensor(&a.tensor.id)?, repo.odb().tensor(&b.tensor.id)?);
        let sums = Sums::between(&a, &b, progress)?;
        diff.changed = Some(sums.changed as f64 / (sums.count.max(1)) as f64);
        if dtype != Dtype::Opaque {
            diff.rel_l2 = Some(sums.relative_l2());
            diff.max_abs = Some(sums.max_abs);
            let norm = (sums.aa * sums.bb).sqrt();
            diff.cosine = (norm > 0.0).then(|| (sums.ab / norm).clamp(-1.0, 1.0));
        }
    }
    Ok(Some(diff))
}

/// A stored tensor, and what the user knows it as.
struct Side {
    tensor: TensorRef,
    name: String,
    shape: Vec<u64>,
    /// Where a view stands for the tensor: its strides.
    strides: Option<Vec<u64>>,
}

impl Side {
    /// Whether the elements of both can be compared one by one.
    fn fits(&self, other: &Side) -> bool {
        let kind = |s: &Side| (s.tensor.dtype, s.tensor.shape.clone(), s.shape.clone(), s.strides.clone());
        kind(self) == kind(other)
    }
}

/// The stored tensors of a file, by the names they are stored under. One that a single view covers in another order (a
/// transposed tensor) is shown as that view; a storage that is viewed otherwise goes by its own name, as in listings.
fn sides(m: &Manifest) -> BTreeMap<String, Side> {
    let mut own: BTreeMap<u32, &ViewRef> = BTreeMap::new();
    for v in &m.views {
        if m.tensors.get(v.tensor as usize).is_some_and(|t| permutes(v, t)) {
            own.entry(v.tensor).or_insert(v);
        }
    }
    let side = |(i, (t, name)): (usize, (&TensorRef, String))| {
        let view = u32::try_from(i).ok().and_then(|i| own.get(&i));
        let side = Side {
            tensor: t.clone(),
            name: view.map_or(name, |v| v.name.clone()),
            shape: view.map_or(&t.shape, |v| &v.shape).clone(),
            strides: view.map(|v| v.strides.clone()),
        };
        (t.name.clone(), side)
    };
    m.tensors.iter().zip(m.listed_names()).enumerate().map(side).collect()
}

/// Whether a view that goes by the tensor's name shows each of its elements once.
fn permutes(v: &ViewRef, t: &TensorRef) -> bool {
    let mut axes: Vec<(u64, u64)> = v.strides.iter().copied().zip(v.shape.iter().copied()).collect();
    axes.retain(|a| a.1 != 1);
    axes.sort_unstable();
    let mut dense = 1u64;
    let in_steps = axes.iter().all(|&(stride, n)| {
        let fits = stride == dense;
        dense = dense.saturating_mul(n);
        fits
    });
    let bytes = dense.checked_mul(v.dtype.size() as u64);
    v.name == t.name && v.dtype == t.dtype && v.offset == 0 && in_steps && bytes == t.byte_len()
}

fn change_of(before: bool, after: bool) -> Change {
    match (before, after) {
        (false, _) => Change::Added,
        (true, true) => Change::Modified,
        (true, false) => Change::Deleted,
    }
}

/// The manifest of an entry that has one.
pub(crate) fn manifest_of(odb: &Odb, entry: Option<&Entry>) -> Result<Option<Manifest>> {
    entry.filter(|e| e.mode == Mode::Manifest).map(|e| odb.manifest(&e.id)).transpose()
}

/// ||b - a|| / ||a|| of two tensors of one dtype and length.
pub(super) fn relative_l2(a: &TensorReader<'_>, b: &TensorReader<'_>, progress: &dyn Progress) -> Result<f64> {
    Ok(Sums::between(a, b, progress)?.relative_l2())
}

/// The same of their elements' bytes.
pub(super) fn relative_l2_of(dtype: Dtype, a: &[u8], b: &[u8]) -> f64 {
    let (mut sums, mut x, mut y) = (Sums::default(), Vec::new(), Vec::new());
    to_f64(dtype, a, &mut x);
    to_f64(dtype, b, &mut y);
    x.iter().zip(&y).for_each(|(&p, &q)| sums.add(p, q));
    sums.relative_l2()
}

/// Sums over two tensors of one dtype and length.
#[derive(Default)]
struct Sums {
    count: u64,
    changed: u64,
    aa: f64,
    bb: f64,
    ab: f64,
    dd: f64,
    max_abs: f64,
}

impl Sums {
    fn between(a: &TensorReader<'_>, b: &TensorReader<'_>, progress: &dyn Progress) -> Result<Sums> {
        let dtype = a.header().dtype;
        let mut sums = Sums::default();
        let (mut x, mut y) = (Vec::new(), Vec::new());
        for i in 0..a.segments().min(b.segments()) {
            go_on(progress, WHAT)?;
            let (a, b) = (a.segment(i)?, b.segment(i)?);
            if a.len() != b.len() {
                return Err(RepoError::corrupt("tensor", "two tensors of one shape have different lengths"));
            }
            let size = dtype.size();
            sums.count += (a.len() / size) as u64;
            sums.changed += a.chunks_exact(size).zip(b.chunks_exact(size)).filter(|(p, q)| p != q).count() as u64;
            to_f64(dtype, &a, &mut x);
            to_f64(dtype, &b, &mut y);
            x.iter().zip(&y).for_each(|(&p, &q)| sums.add(p, q));
        }
        Ok(sums)
    }

    fn relative_l2(&self) -> f64 {
        if self.dd == 0.0 { 0.0 } else { (self.dd / self.aa).sqrt() }
    }

    fn add(&mut self, p: f64, q: f64) {
        let d = q - p;
        self.aa += p * p;
        self.bb += q * q;
        self.ab += p * q;
        self.dd += d * d;
        // NaN compares false and would vanish; a changed NaN shall be seen.
        if d.abs() > self.max_abs || d.is_nan() && p.to_bits() != q.to_bits() {
            self.max_abs = d.abs();
        }
    }
}
