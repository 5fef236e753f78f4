//! Paths of a version's files on disk, and what is there now.

use mdl_store::{Remedy, RepoError, Result, object_db::Files, read::restore::Temporary, write::DiskFile};
use std::{
    collections::HashMap,
    fs, io,
    os::unix::fs::PermissionsExt,
    path::{Path, PathBuf},
};

/// Whether a version's path may get onto a disk: none of its parts is, to any file system, a repository's directory.
///
/// # Errors
/// `UnsafePath`.
pub fn check_path(rel: &str) -> Result<()> {
    let checked = rel.split('/').try_for_each(mdl_objects::check_new_name);
    checked.map_err(|reason| RepoError::UnsafePath { path: rel.to_owned(), reason })
}

/// Where a tree's path lies below `root`. Trees of older programs may hold unsafe names, which are refused here, and so
/// is a symbolic link on the way, which would lead the write out of `root`.
pub(super) fn safe_path(root: &Path, rel: &str) -> Result<PathBuf> {
    check_path(rel)?;
    let mut path = root.to_owned();
    let mut parts = rel.split('/').peekable();
    while let Some(part) = parts.next() {
        path.push(part);
        let is_link = fs::symlink_metadata(&path).is_ok_and(|m| m.is_symlink());
        if is_link && parts.peek().is_some() {
            return Err(RepoError::user(
                format!("{} is a symbolic link; nothing is written through it", path.display()),
                Remedy::CheckOutElsewhere("remove the link"),
            ));
        }
    }
    Ok(path)
}

/// Refuses a file where a version's path wants a directory, unless it goes itself: once others have been written it is
/// too late.
pub(super) fn refuse_file_above(root: &Path, rel: &str, goes: impl Fn(&str) -> bool) -> Result<()> {
    for (i, _) in rel.match_indices('/') {
        let (above, path) = (&rel[..i], root.join(&rel[..i]));
        if fs::symlink_metadata(&path).is_ok_and(|m| !m.is_dir()) && !goes(above) {
            return Err(RepoError::user(
                format!("{} is a file, where a directory must go", path.display()),
                Remedy::CheckOutElsewhere("move it away"),
            ));
        }
    }
    Ok(())
}

/// The file at `path`, if there is one. A directory or a link in the way is an error or is replaced, in this order.
pub(super) fn on_disk(path: &Path, rel: &str) -> Result<Option<DiskFile>> {
    match fs::symlink_metadata(path) {
        Err(e) if matches!(e.kind(), io::ErrorKind::NotFound | io::ErrorKind::NotADirectory) => Ok(None),
        Err(e) => Err(RepoError::io(format!("cannot look at {}", path.display()))(e)),
        Ok(m) if m.is_file() => Ok(Some(DiskFile {
            rel: rel.to_owned(),
            path: path.to_owned(),
            size: m.len(),
            executable: m.permissions().mode() & 0o100 != 0,
        })),
        Ok(m) => Err(RepoError::user(
            format!(
                "{} is {}, where a file must go",
                path.display(),
                if m.is_dir() { "a directory" } else { "no regular file" }
            ),
            Remedy::CheckOutElsewhere("move it away"),
        )),
    }
}

pub(super) fn make_dirs(dir: &Path, root: &Path) -> Result<()> {
    let failed = |e| RepoError::io(format!("cannot create {}", dir.display()))(e);
    if dir.is_dir() || !dir.starts_with(root) { Ok(()) } else { fs::create_dir_all(dir).map_err(failed) }
}

/// Removes directories that are empty once a file was removed.
pub(super) fn remove_empty(path: &Path, root: &Path) {
    let mut dir = path.parent();
    while let Some(d) = dir.filter(|d| d.starts_with(root) && *d != root) {
        if fs::remove_dir(d).is_err() {
            break;
        }
        dir = d.parent();
    }
}

/// Two names that are one where upper and lower case are not told apart, if there are such.
pub(super) fn same_but_for_case<'a>(names: impl Iterator<Item = &'a str>) -> Option<(&'a str, &'a str)> {
    let mut seen = HashMap::new();
    names.into_iter().find_map(|name| Some((seen.insert(name.to_lowercase(), name)?, name)))
}

/// Whether the file system takes names that differ in case only for one.
pub(super) fn ignores_case(dir: &Path) -> Result<bool> {
    let failed = |e| RepoError::io(format!("cannot write in {}", dir.display()))(e);
    let probe = Temporary::name_beside(&dir.join("case"));
    fs::File::create_new(&probe).map_err(failed)?;
    let upper = probe.file_name().map(|name| name.to_ascii_uppercase()).unwrap_or_default();
    let found = fs::symlink_metadata(probe.with_file_name(upper)).is_ok();
    fs::remove_file(&probe).map_err(failed)?;
    Ok(found)
}

/// Whether `path` is a directory of which nothing is left once these files are removed.
pub(super) fn empties(path: &Path, rel: &str, files: &Files) -> Result<bool> {
    let failed = |e| RepoError::io(format!("cannot list {}", path.display()))(e);
    if !fs::symlink_metadata(path).is_ok_and(|m| m.is_dir()) {
        return Ok(false);
    }
    // A directory that is empty already is not removed with any file.
    let mut any = false;
    for entry in fs::read_dir(path).map_err(failed)? {
        let entry = entry.map_err(failed)?;
        let Ok(name) = entry.file_name().into_string() else {
            return Ok(false);
        };
        let rel = format!("{rel}/{name}");
        let kind = entry.file_type().map_err(failed)?;
        let goes = if kind.is_dir() {
            empties(&entry.path(), &rel, files)?
        } else {
            kind.is_file() && files.contains_key(&rel)
        };
        if !goes {
            return Ok(false);
        }
        any = true;
    }
    Ok(any)
}
