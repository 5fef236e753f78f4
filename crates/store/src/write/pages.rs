//! Makes writes through memory maps show in a file's times. Linux moves the times at the first write to a page that is
//! clean, and at no later one until the page was written out: so pages are written out before a file's state is relied
//! on.

use crate::{RepoError, Result};
use rustix::fs::fstatfs;
use std::{
    fs::{File, OpenOptions},
    io,
    os::unix::fs::OpenOptionsExt,
    path::Path,
};

/// File systems in memory: no write through a map ever moves a file's times there.
const IN_MEMORY: [i64; 3] = [0x0102_1994, 0x8584_58f6, 0x9584_58f6];
/// ext, XFS, Btrfs, F2FS: writing out a file's pages is enough there, without the journal and the disk's own cache.
const BY_PAGES: [i64; 4] = [0xef53, 0x5846_5342, 0x9123_683e, 0xf2f5_2010];

/// How long writing out may take.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum WriteOut {
    /// It is begun, which already protects the pages; a page that is on its way to the disk this very moment may be
    /// missed.
    Begin,
    /// All pages are written out.
    Wait,
}

/// Writes a file's pages out, so that the next write through a map moves its times. False where none ever moves them.
pub fn expose_writes(path: &Path, write_out: WriteOut) -> Result<bool> {
    let failed = || RepoError::io(format!("cannot read {}", path.display()));
    // A pipe or device must not be waited for.
    let opened = OpenOptions::new().read(true).custom_flags(libc::O_NONBLOCK).open(path);
    let file = opened.map_err(failed())?;
    // The type's width depends on the machine.
    #[allow(clippy::unnecessary_cast)]
    let kind = fstatfs(&file).map_err(|e| failed()(e.into()))?.f_type as i64;
    if IN_MEMORY.contains(&kind) {
        return Ok(false);
    }
    let done = match BY_PAGES.contains(&kind) {
        true => write_pages(&file, write_out),
        false => file.sync_data(),
    };
    match done {
        Ok(()) => Ok(true),
        // Read-only file systems cannot be written to; of those without syncing nothing is known.
        Err(e) if matches!(e.kind(), io::ErrorKind::InvalidInput | io::ErrorKind::Unsupported) => Ok(false),
        Err(e) if e.kind() == io::ErrorKind::ReadOnlyFilesystem => Ok(true),
        Err(e) => Err(failed()(e)),
    }
}

#[cfg(target_os = "linux")]
fn write_pages(file: &File, write_out: WriteOut) -> io::Result<()> {
    use std::os::fd::AsRawFd;
    let begin = libc::SYNC_FILE_RANGE_WAIT_BEFORE | libc::SYNC_FILE_RANGE_WRITE;
    let flags = match write_out {
        WriteOut::Begin => begin,
        WriteOut::Wait => begin | libc::SYNC_FILE_RANGE_WAIT_AFTER,
    };
    // SAFETY: the descriptor is open for the length of the call, which touches no memory of ours.
    match unsafe { libc::sync_file_range(file.as_raw_fd(), 0, 0, flags) } {
        0 => Ok(()),
        _ => Err(io::Error::last_os_error()),
    }
}

#[cfg(not(target_os = "linux"))]
fn write_pages(file: &File, _write_out: WriteOut) -> io::Result<()> {
    file.sync_data()
}
