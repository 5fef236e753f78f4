//! Replaces or removes a file, only if it is still the one that was looked at. A file is exchanged first and looked at
//! then, when no name leads to it any more; what was written to meanwhile comes back under its name.

use crate::{
    checkout::{Expected, known::Read},
    work_tree::remove::cannot,
};
use mdl_store::{Result, read::restore::Temporary, write::FileState};
use rustix::{
    fs::{CWD, RenameFlags, renameat_with},
    io::Errno,
};
use std::{
    fs, io,
    os::unix::fs::PermissionsExt,
    path::{Path, PathBuf},
};

/// What happened to the file.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Outcome {
    Done,
    /// What is there is another file than was expected, and stays; if its name was taken meanwhile, under this one.
    Kept(Option<PathBuf>),
}

/// Whether a file under a name that no other process knows is the one that was looked at.
pub(super) type StillHeld<'a> = &'a dyn Fn(&Path) -> Result<bool>;

/// Renames; `None` where the file system cannot do it in this way.
fn rename(from: &Path, to: &Path, how: RenameFlags) -> Result<Option<io::Result<()>>> {
    match renameat_with(CWD, from, CWD, to, how) {
        Ok(()) => Ok(Some(Ok(()))),
        Err(Errno::INVAL | Errno::NOSYS | Errno::NOTSUP) => Ok(None),
        Err(e @ (Errno::EXIST | Errno::NOENT | Errno::NOTDIR)) => Ok(Some(Err(e.into()))),
        Err(e) => Err(cannot("rename", from)(e.into())),
    }
}

fn is_there(path: &Path) -> bool {
    fs::symlink_metadata(path).is_ok()
}

/// Gives a file that was written under a temporary name its own.
pub(super) fn place(new: Temporary, path: &Path, expected: &Expected, held: StillHeld<'_>) -> Result<Outcome> {
    match expected {
        Expected::Anything => {}
        Expected::Held(_) if is_there(path) => return exchange(new, path, held),
        // Deleted meanwhile, it is no longer in the way.
        Expected::Absent | Expected::Held(_) => match rename(&new.0, path, RenameFlags::NOREPLACE)? {
            Some(Ok(())) => {
                std::mem::forget(new);
                return Ok(Outcome::Done);
            }
            Some(Err(e)) if e.kind() == io::ErrorKind::AlreadyExists => return Ok(Outcome::Kept(None)),
            Some(Err(e)) => return Err(cannot("write", path)(e)),
            None if is_there(path) => return Ok(Outcome::Kept(None)),
            None => {}
        },
    }
    fs::rename(&new.0, path).map_err(cannot("write", path))?;
    std::mem::forget(new);
    Ok(Outcome::Done)
}

fn exchange(new: Temporary, path: &Path, held: StillHeld<'_>) -> Result<Outcome> {
    // It costs a look to see most of what was written without the new file showing up for a moment.
    if !held(path)? {
        return Ok(Outcome::Kept(None));
    }
    match rename(&new.0, path, RenameFlags::EXCHANGE)? {
        None => {
            fs::rename(&new.0, path).map_err(cannot("write", path))?;
            std::mem::forget(new);
            return Ok(Outcome::Done);
        }
        Some(done) => done.map_err(cannot("write", path))?,
    }
    let aside = new.0.clone();
    // From here on the temporary name has the old file, which must not be deleted by accident.
    std::mem::forget(new);
    if held(&aside).unwrap_or(false) {
        return fs::remove_file(&aside).map(|()| Outcome::Done).map_err(cannot("remove", &aside));
    }
    match rename(&aside, path, RenameFlags::EXCHANGE)? {
        Some(Ok(())) => {
            let _ = fs::remove_file(&aside);
            Ok(Outcome::Kept(None))
        }
        _ => Ok(Outcome::Kept(Some(visible(&aside, path)?))),
    }
}

/// Removes a file.
pub(super) fn take_away(path: &Path, expected: &Expected, held: StillHeld<'_>) -> Result<Outcome> {
    let gone = |done: io::Result<()>| match done {
        Err(e) if e.kind() != io::ErrorKind::NotFound => Err(cannot("remove", path)(e)),
        _ => Ok(Outcome::Done),
    };
    if matches!(expected, Expected::Anything) {
        return gone(fs::remove_file(path));
    }
    if !is_there(path) {
        return Ok(Outcome::Done);
    }
    if !held(path)? {
        return Ok(Outcome::Kept(None));
    }
    let aside = Temporary::name_beside(path);
    match rename(path, &aside, RenameFlags::NOREPLACE)? {
        None => return gone(fs::remove_file(path)),
        Some(Err(e)) => return gone(Err(e)),
        Some(Ok(())) => {}
    }
    if held(&aside).unwrap_or(false) {
        return gone(fs::remove_file(&aside));
    }
    match rename(&aside, path, RenameFlags::NOREPLACE)? {
        Some(Ok(())) => Ok(Outcome::Kept(None)),
        _ => Ok(Outcome::Kept(Some(visible(&aside, path)?))),
    }
}

/// Renames what lies under a temporary name, which listings skip, or is in the way, to a visible and free one.
pub(super) fn visible(aside: &Path, path: &Path) -> Result<PathBuf> {
    for n in 1..=u32::MAX {
        let mut name = path.file_name().unwrap_or_default().to_owned();
        name.push(format!(".kept-{n}"));
        let to = path.with_file_name(name);
        match rename(aside, &to, RenameFlags::NOREPLACE)? {
            Some(Ok(())) => return Ok(to),
            Some(Err(e)) if e.kind() == io::ErrorKind::AlreadyExists => {}
            _ => break,
        }
    }
    Ok(aside.to_owned())
}

/// Whether a file is what it was, as its state and its executable bit tell. A rename moves the inode's own time and no
/// byte.
pub(super) fn is_same(path: &Path, seen: &Read) -> Result<bool> {
    match fs::symlink_metadata(path) {
        Ok(m) if (m.permissions().mode() & 0o100 != 0) != seen.executable => Ok(false),
        Ok(m) => Ok(m.is_file() && !FileState::from(&m).written_since(&seen.state)),
        Err(e) if e.kind() == io::ErrorKind::NotFound => Ok(false),
        Err(e) => Err(cannot("look at", path)(e)),
    }
}
