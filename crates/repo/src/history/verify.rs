//! Compares a file on disk with a version of it, byte for byte.

use crate::{pruned::files, repo::Repo};
use mdl_files::{FileSource, ReadAt};
use mdl_objects::{Entry, Id};
use mdl_store::{Missing, Progress, Remedy, RepoError, Result, object_db::Files, read::WriteAt};
use std::{
    path::Path,
    sync::atomic::{AtomicU64, Ordering},
};

/// Outcome of a comparison.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Verified {
    /// The file's path in the version.
    pub inner: String,
    /// Bytes of the version's file.
    pub size: u64,
    /// What is known of the first difference; none if the bytes are the same.
    pub difference: Option<Difference>,
}

/// Where two files part.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Difference {
    /// The file on disk has this many bytes.
    Size(u64),
    /// The first byte that differs.
    Byte(u64),
}

struct Compare<'a> {
    source: &'a FileSource,
    path: &'a Path,
    first: AtomicU64,
}

impl WriteAt for Compare<'_> {
    fn write_at(&self, offset: u64, bytes: &[u8]) -> Result<()> {
        let mut found = vec![0; bytes.len()];
        let failed = RepoError::io(format!("cannot read {}", self.path.display()));
        self.source.read_at(offset, &mut found).map_err(failed)?;
        if let Some(i) = found.iter().zip(bytes).position(|(a, b)| a != b) {
            self.first.fetch_min(offset + i as u64, Ordering::Relaxed);
        }
        Ok(())
    }
}

/// Compares the file at `path` with file `inner` of a commit; without `inner`, with the one of the same path below
/// the work tree, or else the only one of the same name.
///
/// # Errors
/// No such file in the version, or several; absent or damaged objects; an I/O error.
pub fn verify(repo: &Repo, path: &Path, commit: &Id, inner: Option<&str>, progress: &dyn Progress) -> Result<Verified> {
    let meta = std::fs::metadata(path).map_err(|e| match e.kind() {
        std::io::ErrorKind::NotFound => RepoError::not_found(Missing::Path, path.display()),
        _ => RepoError::io(format!("cannot open {}", path.display()))(e),
    })?;
    if meta.is_dir() {
        return Err(RepoError::user(format!("{} is a directory", path.display()), Remedy::OneFile));
    }
    let files = files(repo, commit)?;
    let name = match inner {
        Some(name) => name.trim_matches('/').to_owned(),
        None => guess(repo, path, &files)?,
    };
    let entry: &Entry = files.get(&name).ok_or_else(|| RepoError::not_found(Missing::File, &name))?;
    let source = FileSource::open(path).map_err(RepoError::io(format!("cannot open {}", path.display())))?;
    let mut verified = Verified { inner: name, size: entry.size, difference: None };
    if source.size() != entry.size {
        verified.difference = Some(Difference::Size(source.size()));
        return Ok(verified);
    }
    progress.begin("comparing", entry.size);
    let compare = Compare { source: &source, path, first: AtomicU64::new(u64::MAX) };
    repo.odb().restore(entry, &compare, progress)?;
    progress.end();
    let first = compare.first.into_inner();
    verified.difference = (first != u64::MAX).then_some(Difference::Byte(first));
    Ok(verified)
}

fn guess(repo: &Repo, path: &Path, files: &Files) -> Result<String> {
    let full = std::fs::canonicalize(path).map_err(RepoError::io(format!("cannot open {}", path.display())))?;
    if let Some(rel) = repo.work().and_then(|w| full.strip_prefix(w).ok()).and_then(Path::to_str)
        && files.contains_key(rel)
    {
        return Ok(rel.to_owned());
    }
    let file_name = full.file_name().and_then(|n| n.to_str()).unwrap_or_default();
    let same = |n: &&String| n.rsplit('/').next() == Some(file_name);
    match files.keys().filter(same).collect::<Vec<_>>().as_slice() {
        [one] => Ok((*one).clone()),
        [] => Err(RepoError::not_found(Missing::File, file_name)),
        _ => Err(RepoError::user(format!("several files are called {file_name}"), "name one as REV:PATH")),
    }
}
