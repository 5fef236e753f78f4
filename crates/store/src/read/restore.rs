//! Restores one file of a version to disk: pastes tensors into the skeleton, verified, at once or not at all.

use crate::{
    Progress, RepoError, Result,
    object_db::Odb,
    read::{
        TensorReader,
        parts::{FileContents, FileParts, PartOf, SkeletonReader},
    },
    storage::nonce,
};
use mdl_objects::{Entry, TensorRef};
use rayon::prelude::*;
use std::{
    ffi::OsString,
    fs::{self, File, OpenOptions, Permissions},
    io,
    os::unix::fs::{FileExt, PermissionsExt},
    path::{Path, PathBuf},
    sync::atomic::{AtomicU64, Ordering},
};

/// Receives a file's bytes, in any order.
pub trait WriteAt: Sync {
    /// Writes at an offset.
    fn write_at(&self, offset: u64, bytes: &[u8]) -> Result<()>;
}

struct OnDisk<'a> {
    file: File,
    path: &'a Path,
}

impl WriteAt for OnDisk<'_> {
    fn write_at(&self, offset: u64, bytes: &[u8]) -> Result<()> {
        self.file.write_all_at(bytes, offset).map_err(RepoError::io(format!("cannot write {}", self.path.display())))
    }
}

impl Odb {
    /// Writes the bytes of a file of a version, every object verified by its id.
    pub fn restore(&self, entry: &Entry, out: &dyn WriteAt, progress: &dyn Progress) -> Result<()> {
        let manifest = match self.contents(entry)? {
            FileContents::Bytes(bytes) => {
                progress.advance(entry.size);
                return out.write_at(0, &bytes);
            }
            FileContents::Parts(manifest) => manifest,
        };
        let mut skeleton = SkeletonReader::new(self);
        for part in FileParts::new(&manifest) {
            if let PartOf::Skeleton(chunk) = part.object {
                out.write_at(part.offset, skeleton.read(chunk, &part)?)?;
                progress.advance(part.len);
            }
        }
        let done = manifest.tensors.par_iter().try_for_each(|t| {
            let mut at = t.offset;
            self.tensor_in(t)?.stream_cached(|bytes| {
                out.write_at(at, bytes)?;
                at += bytes.len() as u64;
                progress.advance(bytes.len() as u64);
                Ok(())
            })
        });
        self.spare.clear();
        done
    }

    /// Opens a tensor of a file, which must be what the file's manifest says.
    pub(crate) fn tensor_in(&self, t: &TensorRef) -> Result<TensorReader<'_>> {
        let reader = self.tensor(&t.id)?;
        match reader.header().dtype == t.dtype && reader.header().shape == t.shape {
            true => Ok(reader),
            false => Err(RepoError::corrupt(format!("tensor {}", t.name), "its dtype or shape is not the manifest's")),
        }
    }

    /// Writes a file of a version under a temporary name beside `path`, not yet synced. The directory must exist.
    pub fn restore_beside(&self, entry: &Entry, path: &Path, progress: &dyn Progress) -> Result<(Temporary, File)> {
        let failed = |e| RepoError::io(format!("cannot write {}", path.display()))(e);
        let (temporary, file) = Temporary::beside(path).map_err(failed)?;
        file.set_len(entry.size).map_err(failed)?;
        if entry.executable {
            let mode = file.metadata().map_err(failed)?.permissions().mode();
            file.set_permissions(Permissions::from_mode(mode | (mode & 0o444) >> 2)).map_err(failed)?;
        }
        let out = OnDisk { file, path };
        self.restore(entry, &out, progress)?;
        Ok((temporary, out.file))
    }
}

/// A file that is removed unless it is renamed.
#[derive(Debug)]
pub struct Temporary(pub PathBuf);

impl Temporary {
    /// Makes one beside `path`.
    pub fn beside(path: &Path) -> io::Result<(Temporary, File)> {
        loop {
            let at = Temporary::name_beside(path);
            match OpenOptions::new().write(true).create_new(true).open(&at) {
                // Another process's: with one pid in two containers, it may be in use.
                Err(e) if e.kind() == io::ErrorKind::AlreadyExists => continue,
                Err(e) => return Err(e),
                Ok(file) => return Ok((Temporary(at), file)),
            }
        }
    }

    /// A new name beside `path` that `work::walk` passes over.
    pub fn name_beside(path: &Path) -> PathBuf {
        static NEXT: AtomicU64 = AtomicU64::new(0);
        let n = NEXT.fetch_add(1, Ordering::Relaxed);
        let stem = format!(".mdl-{}-{n}-{:08x}", std::process::id(), nonce());
        let mut name = OsString::from(format!("{stem}-"));
        name.push(path.file_name().unwrap_or_default());
        // A long name must not grow past what the file system takes.
        let short = if name.len() > 200 { stem.into() } else { name };
        path.with_file_name(short)
    }
}

impl Drop for Temporary {
    fn drop(&mut self) {
        let _ = fs::remove_file(&self.0);
    }
}
