//! New files of a version: on disk, in memory, or stored before the commit.

use crate::{pruned::files, repo::Repo};
use mdl_files::ReadAt;
use mdl_lossy::Scratch;
use mdl_objects::{Entry, Id, Mode, check_new_name};
use mdl_store::{
    Missing, RepoError, Result,
    object_db::Odb,
    write::{DiskFile, Ingest, Ingested, Source, TensorReport},
};
use serde::{Deserialize, Serialize};
use std::{
    collections::BTreeSet,
    fmt, fs,
    io::Write,
    path::{Path, PathBuf},
    sync::Arc,
};

/// Bytes of a file in memory that are written to disk at once, where a lossy commit needs it there.
const SPILL: u64 = 8 << 20;

/// A file of a new version.
#[derive(Clone, Debug)]
pub struct NewFile {
    /// Name in the tree: `/`-separated, relative.
    pub rel: String,
    /// Whether it is executable.
    pub executable: bool,
    /// Where its bytes are.
    pub content: Content,
}

/// Where the bytes of a file are.
#[derive(Clone)]
pub enum Content {
    /// In a file on disk.
    Disk(PathBuf),
    /// In memory, laid out as the file is to be. They must not change until the commit is made.
    Memory(Arc<dyn Source>),
    /// In the repository, stored by [`stage`](crate::commit::stage).
    Stored(StoredFile),
}

impl fmt::Debug for Content {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Content::Disk(path) => f.debug_tuple("Disk").field(path).finish(),
            Content::Memory(source) => f.debug_tuple("Memory").field(&source.size()).finish(),
            Content::Stored(stored) => f.debug_tuple("Stored").field(&stored.id).finish(),
        }
    }
}

/// A file whose objects the repository has, though no version holds it yet. It can be sent to the process that commits.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct StoredFile {
    /// Whether `id` is that of a manifest; else of a blob.
    manifest: bool,
    /// The object, in hexadecimal digits.
    id: String,
    /// Length of the file in bytes.
    pub(crate) size: u64,
    /// Whether it is executable.
    #[serde(default)]
    executable: bool,
    /// Tensors in it.
    pub(crate) tensors: u64,
    /// Encoded bytes that storing it added.
    pub(crate) stored_bytes: u64,
    /// Tensors that storing it added.
    pub(crate) report: Vec<TensorReport>,
}

impl StoredFile {
    pub(crate) fn new(
        (done, executable): (&Ingested, bool),
        stored_bytes: u64,
        tensors: u64,
        report: Vec<TensorReport>,
    ) -> StoredFile {
        StoredFile {
            manifest: done.mode == Mode::Manifest,
            id: done.id.to_hex(),
            size: done.size,
            executable,
            tensors,
            stored_bytes,
            report,
        }
    }

    /// Whether it is executable.
    pub fn executable(&self) -> bool {
        self.executable
    }

    /// The object.
    pub(crate) fn id(&self) -> Option<Id> {
        self.id.parse().ok()
    }

    /// Whether it is the same file, whatever storing it took.
    pub(crate) fn is_same(&self, other: &StoredFile) -> bool {
        let what = |s: &StoredFile| (s.manifest, s.executable, s.size, s.id.clone());
        what(self) == what(other)
    }

    fn mode(&self) -> Mode {
        if self.manifest { Mode::Manifest } else { Mode::Blob }
    }

    /// Finds its object, with all that it refers to.
    pub(crate) fn find(&self, odb: &Odb) -> Result<Option<(Mode, Id)>> {
        let mode = self.mode();
        match self.id.parse::<Id>() {
            Ok(id) if odb.contains_file(mode, &id)? => Ok(Some((mode, id))),
            _ => Ok(None),
        }
    }

    /// As `find`. In a partial repository missing objects are fetched first: a version must not promise what the
    /// repository does not have.
    fn find_or_fetch(&self, odb: &Odb) -> Result<Option<(Mode, Id)>> {
        let found = self.find(odb)?;
        let (true, None, Ok(id)) = (odb.is_partial(), &found, self.id.parse::<Id>()) else {
            return Ok(found);
        };
        let entry = Entry { name: String::new(), mode: self.mode(), executable: self.executable, size: self.size, id };
        odb.prefetch_files([&entry].into_iter())?;
        self.find(odb)
    }

    /// Turns it into a tree entry, if its objects are there.
    pub(crate) fn join(&self, ingest: &mut Ingest<'_>, rel: &str) -> Result<Ingested> {
        let Some((mode, found)) = self.find_or_fetch(ingest.odb)? else {
            return Err(RepoError::not_found(Missing::StagedFile, rel));
        };
        ingest.report.tensors.extend(self.report.iter().cloned());
        ingest.report.total += self.tensors;
        ingest.progress.advance(self.size);
        Ok(Ingested { mode, id: found, size: self.size })
    }
}

impl From<DiskFile> for NewFile {
    fn from(file: DiskFile) -> NewFile {
        NewFile { rel: file.rel, executable: file.executable, content: Content::Disk(file.path) }
    }
}

impl NewFile {
    /// Length in bytes.
    pub fn size(&self) -> Result<u64> {
        match &self.content {
            Content::Disk(path) => {
                let meta = fs::metadata(path).map_err(RepoError::io(format!("cannot read {}", path.display())))?;
                Ok(meta.len())
            }
            Content::Memory(source) => Ok(source.size()),
            Content::Stored(stored) => Ok(stored.size),
        }
    }

    /// The object that was stored ahead of the commit, if this is such a file.
    pub(crate) fn stored_id(&self) -> Option<Id> {
        match &self.content {
            Content::Stored(stored) => stored.id(),
            _ => None,
        }
    }

    /// Encoded bytes that storing it ahead of the commit added.
    pub(crate) fn stored_bytes(&self) -> u64 {
        match &self.content {
            Content::Stored(stored) => stored.stored_bytes,
            _ => 0,
        }
    }
}

/// Refuses names that no tree takes, and names given twice or as a file and a directory at once.
pub(crate) fn check_names(files: &[NewFile]) -> Result<()> {
    let refuse =
        |rel: &str, why: &str| RepoError::user(format!("{rel:?} cannot name a file: {why}"), "name it otherwise");
    let mut names = BTreeSet::new();
    for file in files {
        for part in file.rel.split('/') {
            check_new_name(part).map_err(|e| refuse(&file.rel, &e.to_string()))?;
        }
        if !names.insert(file.rel.as_str()) {
            return Err(refuse(&file.rel, "there are two of it"));
        }
    }
    for name in &names {
        let mut above = *name;
        while let Some((dir, _)) = above.rsplit_once('/') {
            if names.contains(dir) {
                return Err(refuse(name, "what is above it is a file"));
            }
            above = dir;
        }
    }
    Ok(())
}

/// The files of a version as they are stored, by their names: to be taken into another version without being read.
pub fn stored(repo: &Repo, commit: &Id) -> Result<Vec<(String, StoredFile)>> {
    let stored = |(rel, entry): (String, Entry)| Ok((rel, stored_file(repo, &entry)?));
    files(repo, commit)?.into_iter().map(stored).collect()
}

/// A file that the repository has, to be taken into another version without being read.
pub fn stored_file(repo: &Repo, entry: &Entry) -> Result<StoredFile> {
    let tensors = match entry.mode {
        Mode::Manifest => repo.odb().manifest(&entry.id)?.tensors.len() as u64,
        _ => 0,
    };
    let (mode, id, size) = (entry.mode, entry.id, entry.size);
    let done = Ingested { mode, id, size };
    Ok(StoredFile::new((&done, entry.executable), 0, tensors, Vec::new()))
}

/// All of the files on disk, as candidates of a lossy commit are made from them. What is in memory is written below
/// the scratch directory, which is to live as long as the files are wanted.
pub(crate) fn spilled(repo: &Repo, files: Vec<NewFile>) -> Result<(Vec<DiskFile>, Option<Scratch>)> {
    let mut scratch = None;
    let mut list = Vec::with_capacity(files.len());
    for file in files {
        let size = file.size()?;
        let path = match file.content {
            Content::Disk(path) => path,
            Content::Memory(source) => {
                let scratch = match &mut scratch {
                    Some(scratch) => scratch,
                    none => none.insert(Scratch::new(repo)?),
                };
                let path = scratch.place(&file.rel)?;
                spill(&*source, &path)?;
                path
            }
            Content::Stored(_) => {
                return Err(RepoError::usage(
                    format!("{} is stored already", file.rel),
                    "files that were staged are committed without a policy",
                ));
            }
        };
        list.push(DiskFile { rel: file.rel, path, size, executable: file.executable });
    }
    Ok((list, scratch))
}

fn spill(source: &dyn ReadAt, path: &Path) -> Result<()> {
    let failed = |e| RepoError::io(format!("cannot write {}", path.display()))(e);
    let mut out = fs::File::create_new(path).map_err(failed)?;
    let mut buffer = vec![0; source.size().min(SPILL) as usize];
    let mut at = 0;
    while at < source.size() {
        let part = (source.size() - at).min(SPILL) as usize;
        let part = &mut buffer[..part];
        source.read_at(at, part).map_err(failed)?;
        out.write_all(part).map_err(failed)?;
        at += part.len() as u64;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn named(names: &[&str]) -> Vec<NewFile> {
        let file = |rel: &&str| NewFile {
            rel: (*rel).to_owned(),
            executable: false,
            content: Content::Memory(Arc::new(Vec::new())),
        };
        names.iter().map(file).collect()
    }

    #[test]
    fn names_that_no_tree_takes_are_refused() {
        assert!(check_names(&named(&["a", "b/c", "b/d", "bc"])).is_ok());
        for bad in [
            &["a", "a"][..],
            &["a", "a/b"],
            &["../x"],
            &["/x"],
            &["a//b"],
            &[""],
            &[".mdl/x"],
            &["a/.git/config"],
            &[".GIT./hooks/x"],
            &["git~1"],
            &["a/b/c", "a"],
        ] {
            assert!(check_names(&named(bad)).is_err(), "{bad:?}");
        }
    }
}
