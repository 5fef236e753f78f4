//! Checkpoint files in memory.

use crate::systems::Tensor;
use mdl_codec::{
    Dtype,
    quant::{Values, moments::moment_of},
};
use mdl_files::{FileSource, Format, ReadAt, scan};
use mdl_store::{Missing, RepoError, Result};
use std::{
    collections::{BTreeMap, BTreeSet},
    path::{Path, PathBuf},
};

/// One version: a file, or all files below a directory.
#[derive(Debug)]
pub struct Checkpoint {
    /// As it was named.
    pub name: String,
    /// The files with tensors in them, and those without.
    pub(super) files: Vec<Part>,
    /// The tensors compared, in the order of files and extents.
    pub(super) tensors: Vec<LoadedTensor>,
    /// Tensors of an optimizer's state, which are left out.
    pub moments: usize,
}

/// A file.
#[derive(Debug)]
pub(super) struct Part {
    pub(super) path: PathBuf,
    /// Below the checkpoint's directory.
    pub(super) rel: PathBuf,
    pub(super) format: Format,
}

/// A tensor in memory.
#[derive(Debug)]
pub(super) struct LoadedTensor {
    /// Index into `files`, and where it is there.
    pub(super) file: usize,
    pub(super) offset: u64,
    pub(super) name: String,
    pub(super) dtype: Dtype,
    pub(super) shape: Vec<usize>,
    pub(super) bytes: Vec<u8>,
    pub(super) gradient: Option<Vec<u8>>,
}

fn failed(path: &Path) -> impl Fn(std::io::Error) -> RepoError {
    let text = format!("cannot read {}", path.display());
    move |e| RepoError::io(text.clone())(e)
}

/// All files below `path`, or itself, in the order of their names. Links are not followed.
fn files(path: &Path) -> Result<Vec<PathBuf>> {
    let kind = match std::fs::metadata(path) {
        Err(e) if e.kind() == std::io::ErrorKind::NotFound => {
            return Err(RepoError::not_found(Missing::Checkpoint, path.display()));
        }
        other => other.map_err(failed(path))?,
    };
    if !kind.is_dir() {
        return Ok(vec![path.to_owned()]);
    }
    let mut found = Vec::new();
    let mut folders = vec![path.to_owned()];
    while let Some(folder) = folders.pop() {
        for entry in std::fs::read_dir(&folder).map_err(failed(&folder))? {
            let entry = entry.map_err(failed(&folder))?;
            match entry.file_type().map_err(failed(&folder))? {
                t if t.is_dir() => folders.push(entry.path()),
                t if t.is_file() => found.push(entry.path()),
                _ => {}
            }
        }
    }
    found.sort();
    Ok(found)
}

impl Checkpoint {
    /// Reads a file or a directory of files. A tensor's name is its name in its file where one file has tensors, else
    /// the file's name goes before it; so versions whose one file is called differently still are each other's parents.
    /// Moments of an optimizer (`moment_of`) are left out: no system here is made for them.
    ///
    /// # Errors
    /// What cannot be read, a damaged checkpoint, no tensors at all.
    pub fn read(path: &Path) -> Result<Checkpoint> {
        let paths = files(path)?;
        let root = if paths.len() == 1 && paths[0] == path { path.parent().unwrap_or(path) } else { path };
        let mut out =
            Checkpoint { name: path.display().to_string(), files: Vec::new(), tensors: Vec::new(), moments: 0 };
        let mut holding = BTreeSet::new();
        for path in &paths {
            let source = FileSource::open(path).map_err(failed(path))?;
            let layout = scan(&source, path)
                .map_err(|e| RepoError::User { message: format!("{}: {e}", path.display()), hint: "".into() })?;
            let file = out.files.len();
            out.files.push(Part {
                path: path.clone(),
                rel: path.strip_prefix(root).unwrap_or(path).to_owned(),
                format: layout.format,
            });
            for e in &layout.extents {
                if moment_of(&e.name).is_some() {
                    out.moments += 1;
                    continue;
                }
                let mut bytes = vec![0; e.byte_len().unwrap_or(0) as usize];
                source.read_at(e.offset, &mut bytes).map_err(failed(path))?;
                holding.insert(file);
                out.tensors.push(LoadedTensor {
                    file,
                    offset: e.offset,
                    name: e.name.clone(),
                    dtype: e.dtype,
                    shape: e.shape.iter().map(|&d| d as usize).collect(),
                    bytes,
                    gradient: None,
                });
            }
        }
        if out.tensors.is_empty() {
            return Err(RepoError::User {
                message: format!("{} holds no tensors", path.display()),
                hint: "compare takes safetensors, .pt, .npz, .npy and GGUF files, or directories of them".into(),
            });
        }
        if holding.len() > 1 {
            for t in &mut out.tensors {
                t.name = format!("{}:{}", out.files[t.file].rel.display(), t.name);
            }
        }
        Ok(out)
    }

    /// Gives tensors the gradients of the same name and size, whatever their float type; returns how many found one.
    pub fn take_gradients(&mut self, gradients: &Checkpoint) -> usize {
        let by_name: BTreeMap<&str, &LoadedTensor> = gradients.tensors.iter().map(|t| (t.name.as_str(), t)).collect();
        let mut found = 0;
        for t in &mut self.tensors {
            let bare = t.name.rsplit(':').next().unwrap_or_default();
            let Some(g) = by_name.get(t.name.as_str()).or_else(|| by_name.get(bare)) else {
                continue;
            };
            let Ok(values) = Values::new(g.dtype, &g.bytes) else {
                continue;
            };
            if g.shape == t.shape {
                t.gradient = Some(values.to_f32().iter().flat_map(|x| x.to_le_bytes()).collect());
                found += 1;
            }
        }
        found
    }

    /// Bytes of all tensors.
    pub fn logical_bytes(&self) -> u64 {
        self.tensors.iter().map(|t| t.bytes.len() as u64).sum()
    }

    /// Number of tensors.
    pub fn len(&self) -> usize {
        self.tensors.len()
    }

    /// Whether there are none; never, once read.
    pub fn is_empty(&self) -> bool {
        self.tensors.is_empty()
    }

    /// The tensors as the systems take them.
    pub(super) fn views(&self) -> Vec<Tensor<'_>> {
        let all = self.tensors.iter().map(|t| Tensor {
            name: &t.name,
            dtype: t.dtype,
            shape: &t.shape,
            bytes: &t.bytes,
            gradient: t.gradient.as_deref(),
        });
        all.collect()
    }
}
