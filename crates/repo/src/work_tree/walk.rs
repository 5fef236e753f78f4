//! Lists the files below a directory that a commit takes.

use crate::{repo::DIR, work_tree::remove::REMOVING};
use ignore::WalkBuilder;
use mdl_objects::check_new_name;
use mdl_store::{Missing, Remedy, RepoError, Result, write::DiskFile};
use std::{
    ffi::OsStr,
    fs,
    os::unix::{ffi::OsStrExt, fs::PermissionsExt},
    path::{Path, PathBuf},
};

/// Files below `root` in the byte order of their names, without what `.mdlignore` files name, `.mdl`, `.git` and the
/// temporary files of a checkout or removal that was cut off. A root that is a file is itself the only one.
///
/// # Errors
/// Symbolic links (unless followed), special files, names that no tree takes; an I/O error.
pub fn walk(root: &Path, follow_symlinks: bool) -> Result<Vec<DiskFile>> {
    list(root, follow_symlinks, &mut Err)
}

/// As [`walk`], but what cannot be committed is told beside the files that can.
///
/// # Errors
/// An I/O error; a pattern of .mdlignore that cannot be read.
pub fn survey_work_tree(root: &Path, follow_symlinks: bool) -> Result<(Vec<DiskFile>, Vec<RepoError>)> {
    let mut problems = Vec::new();
    let files = list(root, follow_symlinks, &mut |problem| {
        problems.push(problem);
        Ok(())
    })?;
    Ok((files, problems))
}

fn list(root: &Path, follow_symlinks: bool, refuse: &mut dyn FnMut(RepoError) -> Result<()>) -> Result<Vec<DiskFile>> {
    let meta = match fs::metadata(root) {
        Err(e) if e.kind() == std::io::ErrorKind::NotFound => {
            return Err(RepoError::not_found(Missing::Path, root.display()));
        }
        other => other.map_err(RepoError::io(format!("cannot read {}", root.display())))?,
    };
    if meta.is_file() {
        let name = root.file_name().map(PathBuf::from).unwrap_or_default();
        return Ok(vec![file(root, &name, &meta)?]);
    }
    let mut files = Vec::new();
    let walker = WalkBuilder::new(root)
        .standard_filters(false)
        .add_custom_ignore_filename(".mdlignore")
        .follow_links(follow_symlinks)
        .filter_entry(|e| e.depth() == 0 || !is_ours(e.file_name()))
        .build();
    for entry in walker {
        let entry = entry.map_err(|e| RepoError::io(format!("cannot list {}", root.display()))(into_io(e)))?;
        if let Some(broken) = entry.error() {
            return Err(RepoError::user(
                format!("a pattern of .mdlignore cannot be read: {broken}"),
                "repair the line; patterns are as in .gitignore",
            ));
        }
        let Some(kind) = entry.file_type() else { continue };
        if kind.is_dir() {
            continue;
        }
        let path = entry.path();
        if kind.is_file() && is_temporary(entry.file_name()) {
            continue;
        }
        if kind.is_symlink() {
            refuse(RepoError::user(format!("{} is a symbolic link", path.display()), Remedy::FollowLinks))?;
            continue;
        }
        let meta = fs::metadata(path).map_err(RepoError::io(format!("cannot read {}", path.display())))?;
        let rel = path.strip_prefix(root).unwrap_or(path);
        match file(path, rel, &meta) {
            Ok(file) => files.push(file),
            Err(problem) => refuse(problem)?,
        }
    }
    files.sort_by(|a, b| a.rel.cmp(&b.rel));
    Ok(files)
}

/// Repositories, and originals that are being removed: a version has their bytes.
fn is_ours(name: &OsStr) -> bool {
    matches!(name.to_str(), Some(DIR | ".git")) || name.as_bytes().starts_with(REMOVING.as_bytes())
}

/// Whether a file has the name of one that a checkout is writing: `.mdl-`, a process id, `-`, a number, and perhaps `-`
/// and more. Nothing looser: a file of the user's that is passed over is not committed.
fn is_temporary(name: &OsStr) -> bool {
    let number = |text: Option<&[u8]>| text.is_some_and(|t| !t.is_empty() && t.iter().all(u8::is_ascii_digit));
    name.as_bytes().strip_prefix(b".mdl-").is_some_and(|rest| {
        let mut parts = rest.split(|b| *b == b'-');
        number(parts.next()) && number(parts.next())
    })
}

fn into_io(e: ignore::Error) -> std::io::Error {
    let text = e.to_string();
    e.into_io_error().unwrap_or_else(|| std::io::Error::other(text))
}

fn file(path: &Path, rel: &Path, meta: &fs::Metadata) -> Result<DiskFile> {
    if !meta.is_file() {
        return Err(RepoError::user(
            format!("{} is no regular file", path.display()),
            "devices, pipes and sockets cannot be committed: name it in .mdlignore",
        ));
    }
    Ok(DiskFile {
        rel: relative_name(rel)?,
        path: path.to_owned(),
        size: meta.len(),
        executable: meta.permissions().mode() & 0o100 != 0,
    })
}

/// A relative path as a tree names it. Refuses names that are not UTF-8, leave the directory, or that no tree takes.
fn relative_name(rel: &Path) -> Result<String> {
    let refuse = |why: String| RepoError::user(why, "rename the file, or name it in .mdlignore");
    let mut parts = Vec::new();
    for part in rel.components() {
        let name = part.as_os_str();
        let text = name.to_str().ok_or_else(|| refuse(format!("the name {name:?} is not UTF-8")))?;
        check_new_name(text).map_err(|e| refuse(e.to_string()))?;
        parts.push(text);
    }
    if parts.is_empty() {
        return Err(refuse("an empty path".to_owned()));
    }
    Ok(parts.join("/"))
}
