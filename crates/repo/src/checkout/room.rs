//! Disk space for a checkout: looked for before the first file is replaced, so that a full disk does not leave the work
//! tree between two versions.

use crate::checkout::{Expected, Job, write::batches};
use mdl_store::{RepoError, Result};
use std::{
    fs,
    os::unix::fs::MetadataExt,
    path::{Path, PathBuf},
};

/// Bytes of a file's own block counts.
const BLOCK: u64 = 512;

/// Looks whether each batch of new files fits beside the old ones that it replaces, once the files that are `gone` are.
///
/// # Errors
/// `NoRoom`: nothing was changed.
pub(super) fn need_room(jobs: &[Job<'_>], gone: &[(&str, PathBuf, Expected)], dir: &Path) -> Result<()> {
    let there = dir.ancestors().find(|path| path.is_dir()).unwrap_or(Path::new("/"));
    let Ok(disk) = rustix::fs::statvfs(there) else {
        // Where the disk does not say, it is tried.
        return Ok(());
    };
    let free = disk.f_bavail.saturating_mul(disk.f_frsize);
    let whole = |bytes: u64| bytes.div_ceil(disk.f_frsize.max(1)).saturating_mul(disk.f_frsize);
    let freed = gone.iter().map(|(_, path, _)| taken(path)).fold(0, u64::saturating_add);
    let (mut left, mut short) = (i128::from(free) + i128::from(freed), 0);
    for batch in batches(jobs) {
        left -= batch.iter().map(|job| i128::from(whole(job.entry.size))).sum::<i128>();
        short = short.max(-left);
        left += batch.iter().map(|job| i128::from(taken(&job.path))).sum::<i128>();
    }
    match u64::try_from(short) {
        Ok(short) if short > 0 => Err(RepoError::NoRoom { wanted: free.saturating_add(short), free }),
        _ => Ok(()),
    }
}

/// Bytes on the disk that are freed with a name.
fn taken(path: &Path) -> u64 {
    let found = fs::symlink_metadata(path).ok().filter(|found| found.nlink() == 1);
    found.map_or(0, |found| found.blocks().saturating_mul(BLOCK))
}
