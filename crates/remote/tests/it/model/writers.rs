//! The ways in which programs write to the files of a work tree.

use crate::model::files::{NAMES, Rng, content};
use std::{
    fs::{self, File as Open, OpenOptions},
    io::Write,
    os::{fd::AsRawFd, unix::fs::PermissionsExt},
    path::Path,
    time::{Duration, SystemTime},
};

/// How a program writes to a file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum How {
    /// New contents in a new file that is renamed.
    Replace,
    /// New contents, truncating the file.
    Overwrite,
    /// A few values, in place.
    Train,
    Append,
    /// Through a memory map that is closed again.
    Map,
    Remove,
    ToggleExec,
    /// The contents of another file of the list.
    Copy,
}

/// One write.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Write1 {
    pub name: usize,
    pub how: How,
    pub seed: u64,
}

/// Changes the low bits of some values behind the header.
fn train(bytes: &mut [u8], seed: u64) {
    let mut rng = Rng(seed);
    let start = bytes.len() / 3;
    if let Some(n) = (bytes.len() - start).checked_sub(1).filter(|n| *n > 0) {
        (0..1 + n / 40).for_each(|_| bytes[start + rng.below(n as u64) as usize] ^= 1 << rng.below(8));
    }
}

/// Writes as a program would; false where it could not, since there is no such file or a directory has its name.
pub fn write(work: &Path, w: &Write1) -> bool {
    attempt(work, w).is_some()
}

fn attempt(work: &Path, w: &Write1) -> Option<()> {
    let name = NAMES[w.name];
    let path = work.join(name);
    let fresh = || content(name, w.seed);
    match w.how {
        How::Replace => {
            fs::create_dir_all(path.parent()?).ok()?;
            let temporary = path.with_file_name("written.tmp");
            fs::write(&temporary, fresh()).ok()?;
            fs::rename(&temporary, &path).or_else(|_| fs::remove_file(&temporary)).ok()?;
        }
        How::Overwrite => {
            fs::create_dir_all(path.parent()?).ok()?;
            fs::write(&path, fresh()).ok()?;
        }
        How::Train => {
            let mut bytes = fs::read(&path).ok()?;
            train(&mut bytes, w.seed);
            // In place and of the same length: only times tell.
            OpenOptions::new().write(true).open(&path).ok()?.write_all(&bytes).ok()?;
        }
        How::Append => {
            let mut file = OpenOptions::new().append(true).open(&path).ok()?;
            file.write_all(&w.seed.to_le_bytes()).ok()?;
        }
        How::Map => Map::open(&path)?.write(w.seed),
        How::Remove => fs::remove_file(&path).ok()?,
        How::ToggleExec => {
            let mode = fs::metadata(&path).ok().filter(fs::Metadata::is_file)?.permissions().mode();
            fs::set_permissions(&path, fs::Permissions::from_mode(mode ^ 0o111)).ok()?;
        }
        How::Copy => {
            let bytes = fs::read(work.join(NAMES[w.seed as usize % NAMES.len()])).ok()?;
            fs::create_dir_all(path.parent()?).ok()?;
            fs::write(&path, bytes).ok()?;
        }
    }
    Some(())
}

/// Sets a file's times back, as of one that was left alone.
pub fn age(path: &Path) {
    let file = OpenOptions::new().write(true).open(path);
    let _ = file.and_then(|f| f.set_modified(SystemTime::now() - Duration::from_secs(3600)));
}

/// A shared memory map of a whole file, as `np.memmap` makes it.
pub struct Map {
    at: *mut u8,
    len: usize,
    file: Open,
}

impl Map {
    /// None for an empty file, or none.
    pub fn open(path: &Path) -> Option<Map> {
        let file: Open = OpenOptions::new().read(true).write(true).open(path).ok()?;
        let len = usize::try_from(file.metadata().ok()?.len()).ok().filter(|n| *n > 0)?;
        let (access, shared) = (libc::PROT_READ | libc::PROT_WRITE, libc::MAP_SHARED);
        // SAFETY: a new mapping of a file that is open; nothing else is at its address.
        let at = unsafe { libc::mmap(std::ptr::null_mut(), len, access, shared, file.as_raw_fd(), 0) };
        (at != libc::MAP_FAILED).then(|| Map { at: at.cast(), len, file })
    }

    /// Changes one byte, unless the file has been cut.
    pub fn write(&mut self, seed: u64) {
        if !self.file.metadata().is_ok_and(|m| m.len() >= self.len as u64) {
            return;
        }
        let i = self.len - 1 - (seed as usize % self.len.min(64));
        // SAFETY: within the mapping, and the file has these bytes: only this thread cuts files here.
        unsafe { *self.at.add(i) ^= 1 << (seed % 8) };
    }
}

impl Drop for Map {
    fn drop(&mut self) {
        // SAFETY: what `open` mapped, and no reference into it is left.
        unsafe { libc::munmap(self.at.cast(), self.len) };
    }
}
