//! What imports that were cut off, and never went on, have left in the repository's directory.

use crate::repo::Repo;
use std::{
    fs, io,
    path::{Path, PathBuf},
    time::SystemTime,
};

/// Directory for the files of imports under way, one below it for each.
pub const IMPORT_DIR: &str = "import";

/// Removes what no import has written to since `horizon`; returns how many bytes. `dry_run` only counts. What cannot be
/// looked at or removed stays: it only takes room.
pub(super) fn sweep(repo: &Repo, horizon: SystemTime, dry_run: bool) -> u64 {
    let Some(all) = repo.dir().map(|dir| dir.join(IMPORT_DIR)) else { return 0 };
    let mut freed = 0;
    for dir in entries(&all) {
        let Some((bytes, _)) = look(&dir).ok().filter(|(_, changed)| *changed <= horizon) else { continue };
        if dry_run || fs::remove_dir_all(&dir).is_ok() {
            freed += bytes;
        }
    }
    if !dry_run {
        // It stays if another import has its own there.
        let _ = fs::remove_dir(&all);
    }
    freed
}

fn entries(dir: &Path) -> Vec<PathBuf> {
    fs::read_dir(dir).into_iter().flatten().flatten().map(|e| e.path()).collect()
}

/// Bytes of a directory's files, and when the last of them, or the directory, was changed.
fn look(dir: &Path) -> io::Result<(u64, SystemTime)> {
    let mut out = (0, fs::symlink_metadata(dir)?.modified()?);
    for file in fs::read_dir(dir)? {
        let meta = file?.metadata()?;
        out = (out.0 + meta.len(), out.1.max(meta.modified()?));
    }
    Ok(out)
}
