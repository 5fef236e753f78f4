//! Candidates that need no files: the tensors that take the place of the checkpoint's own.

use crate::{
    candidate::{Draft, Scratch, link_rest},
    make::{Made, Setting},
    model::{Container, Part, Treatment},
};
use mdl_codec::Dtype;
use mdl_files::{FileSource, ReadAt};
use mdl_store::{RepoError, Result};
use std::{path::Path, sync::Arc};

/// A tensor of a candidate that is not the checkpoint's. A clone shares its bytes.
#[derive(Clone, Debug)]
pub struct ReplacedTensor {
    /// Name of its file in the tree.
    pub file: Arc<str>,
    /// Its name in the file; a PyTorch storage has that of a tensor that spans it, if there is one.
    pub name: String,
    /// Type of its elements.
    pub dtype: Dtype,
    /// Shape of what is named.
    pub shape: Vec<usize>,
    /// Its elements, little-endian, in row-major order.
    pub bytes: Arc<Vec<u8>>,
}

/// Where the reconstructions of a candidate are kept.
#[derive(Clone, Copy)]
pub(crate) enum Keep<'a> {
    /// Nowhere: only sizes and errors are wanted.
    Nowhere,
    /// In memory.
    Memory,
    /// In the files of a directory inside, made anew.
    Files(&'a Scratch, &'a str),
}

impl Made {
    /// The weights of a candidate that was kept in memory, and these further tensors.
    pub fn replaced(&self, others: &[ReplacedTensor]) -> Vec<ReplacedTensor> {
        self.tensors.iter().map(|(_, tensor)| tensor).chain(others).cloned().collect()
    }
}

impl Setting<'_> {
    /// What candidates replace whatever is chosen: moments in the files that have weights. Those of other files are an
    /// optimizer's, and stay on disk.
    pub fn replaced_moments(&self) -> Result<Vec<ReplacedTensor>> {
        let mut all = Vec::new();
        for (index, container) in self.model.files.iter().enumerate() {
            let Some(path) = self.before.files.get(&container.file.rel) else { continue };
            if self.weights_in(index).next().is_none() {
                continue;
            }
            let failed = |e| RepoError::io(format!("cannot read {}", path.display()))(e);
            let source = FileSource::open(path).map_err(failed)?;
            let mine = self.model.parts.iter().filter(|p| p.file == index);
            for part in mine.filter(|p| matches!(p.treatment, Treatment::Moment(_))) {
                let mut bytes = vec![0; part.extent.byte_len().unwrap_or(0) as usize];
                source.read_at(part.extent.offset, &mut bytes).map_err(failed)?;
                all.push(self.replaced(part, bytes));
            }
        }
        Ok(all)
    }

    /// A part with these bytes.
    pub fn replaced(&self, part: &Part, bytes: Vec<u8>) -> ReplacedTensor {
        ReplacedTensor {
            file: self.model.files[part.file].file.rel.as_str().into(),
            name: part.name.clone(),
            dtype: part.extent.dtype,
            shape: part.shape.clone(),
            bytes: Arc::new(bytes),
        }
    }

    /// The weights of a file, with their places in the model.
    fn weights_in(&self, file: usize) -> impl Iterator<Item = (usize, &Part)> {
        self.model.weights().filter(move |(_, p, _)| p.file == file).map(|(i, p, _)| (i, p))
    }

    /// A copy of a file in a candidate's directory, its moments replaced, its weights to be.
    pub fn draft(&self, container: &Container, dir: &Path) -> Result<Draft> {
        let rel = &container.file.rel;
        Draft::copy(self.before.files.get(rel).unwrap_or(&container.file.path), dir, rel)
    }

    /// Fills a candidate's directory with the files that have no weights.
    pub fn link_others(&self, made: &mut Made, dir: &Path) -> Result<()> {
        for (rel, path) in &self.before.files {
            made.files.entry(rel.clone()).or_insert_with(|| path.clone());
        }
        link_rest(dir, self.list, &self.before.files)
    }

    /// Writes the files of a candidate that was kept in memory.
    pub fn write(&self, made: &mut Made, scratch: &Scratch, name: &str) -> Result<()> {
        let dir = scratch.fresh(name)?;
        for (index, container) in self.model.files.iter().enumerate() {
            if self.weights_in(index).next().is_none() {
                continue;
            }
            let draft = self.draft(container, &dir)?;
            for (i, tensor) in &made.tensors {
                let part = &self.model.parts[*i];
                if part.file == index {
                    draft.patch(part.extent.offset, &tensor.bytes)?;
                }
            }
            made.files.insert(container.file.rel.clone(), draft.finish(container)?);
        }
        made.tensors.clear();
        self.link_others(made, &dir)?;
        made.dir = dir;
        Ok(())
    }
}
