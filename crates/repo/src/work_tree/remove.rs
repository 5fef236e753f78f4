//! Removes a directory or file that was compared with a version: file by file, and only what was compared. Whatever
//! else turns up stays, and comes back under its name.

use mdl_store::{RepoError, Result, write::stat_cache::FileState};
use rustix::{
    fs::{CWD, RenameFlags, renameat_with},
    io::Errno,
};
use std::{
    collections::BTreeMap,
    fs, io,
    path::{Path, PathBuf},
};

/// Before the name of an original that is being removed. Commits pass over it.
pub const REMOVING: &str = ".mdl-removing-";
/// Directories inside directories that are looked into.
const DEPTH: usize = 64;

/// Files below a directory, hidden ones and other repositories' included, with their states; a file is the only one,
/// with an empty name.
pub type Compared = BTreeMap<String, FileState>;

/// The outcome of a removal.
#[derive(Debug, PartialEq, Eq)]
pub enum Removal {
    /// It is gone.
    Done,
    /// Something in it is not what was compared: all that was left is where this says.
    Kept(PathBuf),
}

pub(crate) fn cannot(what: &str, path: &Path) -> impl FnOnce(io::Error) -> RepoError + use<> {
    RepoError::io(format!("cannot {what} {}", path.display()))
}

/// All files of a directory (or the file), in states that any later write changes. Links count as what they point at.
///
/// # Errors
/// Names that are not text, links that point nowhere, directories too deep; an I/O error.
pub fn states_below(path: &Path) -> Result<Compared> {
    let mut found = Compared::new();
    each_below(path, String::new(), DEPTH, &mut |rel, path| {
        found.insert(rel, FileState::exposed(path)?.0);
        Ok(())
    })?;
    Ok(found)
}

fn each_below(path: &Path, rel: String, depth: usize, see: &mut dyn FnMut(String, &Path) -> Result<()>) -> Result<()> {
    let meta = fs::symlink_metadata(path).map_err(cannot("look at", path))?;
    if !meta.is_dir() {
        return see(rel, path);
    }
    if depth == 0 {
        return Err(cannot("look into", path)(io::Error::other("it is too deep")));
    }
    for entry in fs::read_dir(path).map_err(cannot("list", path))? {
        let entry = entry.map_err(cannot("list", path))?;
        let Ok(name) = entry.file_name().into_string() else {
            return Err(cannot("read", &entry.path())(io::Error::other("its name is not UTF-8")));
        };
        let rel = if rel.is_empty() { name } else { format!("{rel}/{name}") };
        each_below(&entry.path(), rel, depth - 1, see)?;
    }
    Ok(())
}

/// Renames where the new name is free; false where it is taken.
pub fn rename_to_free(from: &Path, to: &Path) -> Result<bool> {
    match renameat_with(CWD, from, CWD, to, RenameFlags::NOREPLACE) {
        Ok(()) => Ok(true),
        Err(Errno::EXIST) => Ok(false),
        // The file system cannot do it at once.
        Err(Errno::INVAL | Errno::NOSYS | Errno::NOTSUP) => match fs::symlink_metadata(to) {
            Ok(_) => Ok(false),
            Err(_) => fs::rename(from, to).map(|()| true).map_err(cannot("rename", from)),
        },
        Err(e) => Err(cannot("rename", from)(e.into())),
    }
}

/// Where an original is while it is removed.
pub fn removing(path: &Path) -> PathBuf {
    let mut name = std::ffi::OsString::from(REMOVING);
    name.push(path.file_name().unwrap_or_default());
    path.with_file_name(name)
}

/// Removes what was compared. It is moved aside first, so that a listing of its directory never shows half of it.
///
/// # Errors
/// An earlier removal's rest is in the way; an I/O error. What is left is at its place or aside.
pub fn remove_compared(path: &Path, compared: &Compared) -> Result<Removal> {
    let aside = removing(path);
    if !rename_to_free(path, &aside)? {
        let rest = format!("{} was left by a removal that was cut off", aside.display());
        return Err(RepoError::user(rest, "look at what is in it and move it away"));
    }
    match same(&aside, compared) {
        Ok(true) => delete_compared(&aside, path, compared),
        Ok(false) => put_back(aside, path),
        Err(e) => put_back(aside, path).and(Err(e)),
    }
}

/// Deletes the files aside that are what was compared, and the directories that this leaves empty; the rest goes back
/// to `path`.
pub fn delete_compared(aside: &Path, path: &Path, compared: &Compared) -> Result<Removal> {
    for (rel, state) in compared {
        let file = if rel.is_empty() { aside.to_owned() } else { aside.join(rel) };
        match FileState::from_path(&file) {
            Ok(now) if !now.written_since(state) => fs::remove_file(&file).map_err(cannot("remove", &file))?,
            _ => return put_back(aside.to_owned(), path),
        }
    }
    remove_dirs(aside);
    match fs::symlink_metadata(aside) {
        Err(e) if e.kind() == io::ErrorKind::NotFound => Ok(Removal::Done),
        _ => put_back(aside.to_owned(), path),
    }
}

/// Whether there is what was compared, all of it and nothing else.
fn same(aside: &Path, compared: &Compared) -> Result<bool> {
    let (mut same, mut seen) = (true, 0);
    each_below(aside, String::new(), DEPTH, &mut |rel, path| {
        seen += 1;
        let state = compared.get(&rel);
        same &= state.is_some_and(|state| FileState::from_path(path).is_ok_and(|now| !now.written_since(state)));
        Ok(())
    })?;
    Ok(same && seen == compared.len())
}

/// Removes empty directories, from below; others stay.
fn remove_dirs(path: &Path) {
    if !fs::symlink_metadata(path).is_ok_and(|m| m.is_dir()) {
        return;
    }
    for entry in fs::read_dir(path).into_iter().flatten().flatten() {
        remove_dirs(&entry.path());
    }
    let _ = fs::remove_dir(path);
}

/// Gives what is aside its name again; where that is taken it stays aside.
pub fn put_back(aside: PathBuf, path: &Path) -> Result<Removal> {
    match rename_to_free(&aside, path)? {
        true => Ok(Removal::Kept(path.to_owned())),
        false => Ok(Removal::Kept(aside)),
    }
}
