//! A file that is being made: a copy of a version's, whose tensors are then written over.

use crate::repo::Repo;
use mdl_files::{FileSource, Format};
use mdl_objects::Entry;
use mdl_store::{Progress, RepoError, Result, read::WriteAt};
use std::{
    fs::{self, File, OpenOptions},
    io,
    os::unix::fs::FileExt,
    path::{Path, PathBuf},
};

/// The copy.
pub(crate) struct Draft {
    file: File,
    path: PathBuf,
}

fn failed(path: &Path) -> impl FnOnce(io::Error) -> RepoError + use<> {
    RepoError::io(format!("cannot write {}", path.display()))
}

impl Draft {
    /// Copies a version's file to `path`, whose directories are made.
    pub fn new(repo: &Repo, path: &Path, entry: &Entry, progress: &dyn Progress) -> Result<Draft> {
        if let Some(dir) = path.parent() {
            fs::create_dir_all(dir).map_err(failed(path))?;
        }
        let file = OpenOptions::new().read(true).write(true).create(true).truncate(true).open(path);
        let draft = Draft { file: file.map_err(failed(path))?, path: path.to_owned() };
        draft.file.set_len(entry.size).map_err(failed(path))?;
        repo.odb().restore(entry, &draft, progress)?;
        Ok(draft)
    }

    /// Writes at an offset.
    pub fn patch(&self, offset: u64, bytes: &[u8]) -> Result<()> {
        self.file.write_all_at(bytes, offset).map_err(failed(&self.path))
    }

    /// Sets the container's own checksums right; `format` is the manifest's.
    pub fn finish(&self, format: u8) -> Result<()> {
        let Some(format) = [Format::TorchZip, Format::Npz].into_iter().find(|f| *f as u8 == format) else {
            return Ok(());
        };
        let source = FileSource::open(&self.path).map_err(failed(&self.path))?;
        let patches = mdl_files::checksums(&source, format)
            .map_err(|source| RepoError::Scan { path: self.path.clone(), source })?;
        patches.iter().try_for_each(|(offset, bytes)| self.patch(*offset, bytes))
    }
}

impl WriteAt for Draft {
    fn write_at(&self, offset: u64, bytes: &[u8]) -> Result<()> {
        self.patch(offset, bytes)
    }
}
