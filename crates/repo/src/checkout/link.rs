//! Read-only checkouts that share the blocks of their files: a file that an earlier one wrote is cloned where the file
//! system can (the copies part when one is written to), else linked.
//!
//! What is shared is never the store's: links lead from checkout to checkout, and the store only notes where files were
//! written. A note is a guess. Every file is read and hashed before it counts, under a name that nothing else knows, so
//! that one which its owner made writable and changed is written anew.

use crate::{checkout::known::object_of, repo::Repo};
use mdl_objects::Entry;
use mdl_store::{RepoError, Result, read::restore::Temporary};
use std::{
    cell::Cell,
    fs::{self, File, Permissions},
    io::Read,
    os::unix::fs::PermissionsExt,
    path::{Path, PathBuf},
};

/// Directory in the repository's own with a note for each content.
const NOTES: &str = "links";
/// Places that are remembered of a content.
const PLACES: usize = 16;
/// Bytes of a note at most.
const MAX: u64 = 256 << 10;
const WRITABLE: u32 = 0o222;

/// What a read-only checkout shares with earlier ones.
pub(super) struct Links<'r> {
    repo: &'r Repo,
    notes: Option<PathBuf>,
    /// Whether the file system has not said yet that it cannot clone.
    may_clone: Cell<bool>,
}

fn failed(path: &Path) -> impl FnOnce(std::io::Error) -> RepoError + use<> {
    RepoError::io(format!("cannot write {}", path.display()))
}

impl<'r> Links<'r> {
    pub fn new(repo: &'r Repo) -> Links<'r> {
        Links { repo, notes: repo.common_dir().map(|dir| dir.join(NOTES)), may_clone: Cell::new(true) }
    }

    fn note_of(&self, entry: &Entry) -> Option<PathBuf> {
        let suffix = if entry.executable { "-x" } else { "" };
        self.notes.as_ref().map(|dir| dir.join(format!("{}{suffix}", entry.id.to_hex())))
    }

    /// Where files with this content were written, the last one first.
    fn places(&self, entry: &Entry) -> Vec<PathBuf> {
        let mut text = String::new();
        let read =
            self.note_of(entry).and_then(|p| File::open(p).and_then(|f| f.take(MAX).read_to_string(&mut text)).ok());
        read.and_then(|_| serde_json::from_str(&text).ok()).unwrap_or_default()
    }

    /// Notes that a file with this content is at a place. Two notes at once may lose one, which costs room only.
    pub fn note(&self, entry: &Entry, path: &Path) {
        let (Some(note), Ok(path)) = (self.note_of(entry), fs::canonicalize(path)) else { return };
        let mut places = self.places(entry);
        places.retain(|place| *place != path && place.is_file());
        places.insert(0, path);
        places.truncate(PLACES);
        let Ok(text) = serde_json::to_vec(&places) else { return };
        let new = Temporary(Temporary::name_beside(&note));
        let made = self.notes.as_ref().map_or(Ok(()), fs::create_dir_all);
        // Without a note the next checkout writes the file anew.
        let _ = made.and_then(|()| fs::write(&new.0, text)).and_then(|()| fs::rename(&new.0, &note));
    }

    /// The file of an earlier checkout under a temporary name beside `path`, read and hashed; none: it is to be made.
    pub fn reuse(&self, entry: &Entry, path: &Path) -> Result<Option<(Temporary, File)>> {
        for place in self.places(entry) {
            // A link would lead elsewhere.
            let Ok(found) = fs::symlink_metadata(&place) else { continue };
            if !found.is_file() || found.len() != entry.size {
                continue;
            }
            if self.may_clone.get()
                && let Some(cloned) = self.clone_of(&place, entry, path)?
            {
                return Ok(Some(cloned));
            }
            if found.permissions().mode() & WRITABLE == 0
                && let Some(linked) = self.link_to(&place, entry, path)?
            {
                return Ok(Some(linked));
            }
        }
        Ok(None)
    }

    /// No other process has a clone open: what is read of it stays so.
    fn clone_of(&self, place: &Path, entry: &Entry, path: &Path) -> Result<Option<(Temporary, File)>> {
        let Ok(source) = File::open(place) else { return Ok(None) };
        let (new, file) = Temporary::beside(path).map_err(failed(path))?;
        if !shares_blocks(&file, &source) {
            self.may_clone.set(false);
            return Ok(None);
        }
        set_read_only(&file, entry).map_err(failed(path))?;
        Ok(self.is_right(&new.0, entry)?.then_some((new, file)))
    }

    fn link_to(&self, place: &Path, entry: &Entry, path: &Path) -> Result<Option<(Temporary, File)>> {
        let new = Temporary(Temporary::name_beside(path));
        // On another file system, or where there are too many links already.
        if fs::hard_link(place, &new.0).is_err() {
            return Ok(None);
        }
        let is_read_only =
            |at: &Path| fs::symlink_metadata(at).is_ok_and(|m| m.is_file() && m.permissions().mode() & WRITABLE == 0);
        if !is_read_only(&new.0) || !self.is_right(&new.0, entry)? || !is_read_only(&new.0) {
            return Ok(None);
        }
        let file = File::open(&new.0).map_err(failed(path))?;
        Ok(Some((new, file)))
    }

    /// Whether a file has exactly the bytes and the executable bit of an entry.
    fn is_right(&self, path: &Path, entry: &Entry) -> Result<bool> {
        let name = path.file_name().map(|n| n.to_string_lossy().into_owned()).unwrap_or_default();
        let found = object_of(self.repo, path, &name)?;
        Ok(found.is_some_and(|f| f.file == (entry.mode, entry.id) && f.executable == entry.executable))
    }
}

/// Has a new file share the blocks of another, each to be copied when it is written to.
#[cfg(target_os = "linux")]
fn shares_blocks(new: &File, source: &File) -> bool {
    rustix::fs::ioctl_ficlone(new, source).is_ok()
}

/// macOS clones only into a name that is not there yet: hard links do there.
#[cfg(not(target_os = "linux"))]
fn shares_blocks(_new: &File, _source: &File) -> bool {
    false
}

/// Takes the right to write from everybody.
pub(super) fn set_read_only(file: &File, entry: &Entry) -> std::io::Result<()> {
    let executable = if entry.executable { 0o111 } else { 0 };
    let mode = file.metadata()?.permissions().mode() & 0o444 | 0o400;
    file.set_permissions(Permissions::from_mode(mode | executable & (mode >> 2)))
}
