//! Puts the files of a version back where an operation that was cut off may have left those of others. What is in none
//! of these versions is a user's: it stays, under another name if its own is wanted.

use crate::{
    checkout::{
        CheckedOut, CheckoutOptions, Expected, check_path, checkout_locked,
        disk::{on_disk, safe_path},
        known::object_of,
        replace::visible,
        write::{Touched, remove_all},
    },
    pruned::files,
    repo::Repo,
    work_tree::{WorkTreeLock, differs, set_work_tree_base},
};
use mdl_objects::Id;
use mdl_store::{Progress, Result, object_db::Files, refs::Head};
use std::{
    collections::BTreeSet,
    fs,
    path::{Path, PathBuf},
};

/// Makes the work tree the version `commit` again. Files of the versions `others` go. Also returned are the new names
/// of files that were in the way and in no version of these.
///
/// # Errors
/// Absent or damaged objects; `FileKept` where a file was written to meanwhile; an I/O error. It can be called again.
pub(crate) fn restore(
    repo: &Repo,
    lock: &WorkTreeLock,
    commit: &Id,
    head: &Head,
    others: &[Files],
    progress: &dyn Progress,
) -> Result<(CheckedOut, Vec<PathBuf>)> {
    let work = repo.need_work()?.to_owned();
    let target = files(repo, commit)?;
    let mut names: BTreeSet<&str> = target.keys().map(String::as_str).collect();
    names.extend(others.iter().flat_map(Files::keys).map(String::as_str));
    let (mut gone, mut in_the_way) = (Vec::new(), Vec::new());
    for rel in names.into_iter().filter(|rel| check_path(rel).is_ok()) {
        let path = safe_path(&work, rel)?;
        if !fs::symlink_metadata(&path).is_ok_and(|m| m.is_file()) {
            continue;
        }
        let Some(file) = on_disk(&path, rel)? else { continue };
        match target.get(rel) {
            Some(entry) if !differs(repo, &file, entry, &mdl_store::Silent)? => continue,
            _ => {}
        }
        let read = object_of(repo, &path, rel)?;
        let is_of = |files: &Files| {
            let entry = files.get(rel).map(|e| ((e.mode, e.id), e.executable));
            entry.is_some() && entry == read.map(|r| (r.file, r.executable))
        };
        match read {
            // Of an executable bit alone nothing is lost.
            Some(read) if others.iter().any(is_of) || target.get(rel).is_some_and(|e| (e.mode, e.id) == read.file) => {
                gone.push((rel, path, Expected::Held(read)));
            }
            _ if target.contains_key(rel) => in_the_way.push(path),
            _ => {}
        }
    }
    let (mut touched, mut done) = (Touched::default(), CheckedOut::default());
    let removed = remove_all(repo, &gone, &work, &mut touched, &mut done);
    touched.sync()?;
    removed?;
    for rel in target.keys().filter(|rel| check_path(rel).is_ok()) {
        in_the_way.extend(obstacle(&work, rel));
    }
    in_the_way.sort();
    in_the_way.dedup();
    let aside = in_the_way.iter().map(|path| set_aside(path, &work)).collect::<Result<Vec<_>>>()?;
    set_work_tree_base(repo, Some(*commit));
    let checked_out = checkout_locked(repo, lock, commit, head, &CheckoutOptions::default(), progress)?;
    done = CheckedOut { removed: done.removed + checked_out.removed, ..checked_out };
    Ok((done, aside))
}

/// What is no file at a file's place, or no directory above it.
fn obstacle(work: &Path, rel: &str) -> Option<PathBuf> {
    let above = rel.match_indices('/').map(|(i, _)| work.join(&rel[..i]));
    let is_obstacle = |path: &PathBuf| fs::symlink_metadata(path).is_ok_and(|m| !m.is_dir());
    let path = work.join(rel);
    let wrong = fs::symlink_metadata(&path).is_ok_and(|m| !m.is_file());
    above.into_iter().find(is_obstacle).or_else(|| wrong.then_some(path))
}

fn set_aside(path: &Path, work: &Path) -> Result<PathBuf> {
    let to = visible(path, path)?;
    let mut touched = Touched::default();
    touched.add(path, work);
    touched.sync()?;
    Ok(to)
}
