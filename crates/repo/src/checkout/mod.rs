//! Checkout: writes a version's files into the work tree, and never over changes that no version holds.

mod disk;
mod head;
mod known;
mod link;
mod replace;
mod restore;
mod room;
mod write;

pub use head::attach;
use head::{move_head, refuse_checked_out};

use crate::{
    history::close_names::did_you_mean,
    in_progress::refuse_in_progress,
    pruned::files,
    repo::Repo,
    work_tree::{WorkTreeLock, differs, lock_work_tree, work_tree_base},
};
pub use disk::check_path;
use disk::{empties, ignores_case, on_disk, refuse_file_above, safe_path, same_but_for_case};
use globset::{GlobBuilder, GlobSet, GlobSetBuilder};
use known::{Read, clean, in_no_version, object_of};
use link::Links;
use mdl_objects::{Entry, Id};
use mdl_store::{Missing, Progress, RepoError, Result, object_db::Files, refs::Head, transaction::WriteTransaction};
pub(crate) use restore::restore;
use room::need_room;
use std::{
    collections::HashMap,
    fs,
    path::{Path, PathBuf},
};
use write::{Touched, remove_all, write_files};

/// What a checkout may do.
#[derive(Clone, Debug, Default)]
pub struct CheckoutOptions {
    /// Only files whose path matches one of these globs (`*` stops at `/`, `**` does not); empty means all.
    pub only: Vec<String>,
    /// Overwrite and remove files with changes that are in no version.
    pub force: bool,
    /// Files that are written are read-only, and share their blocks with those of earlier checkouts of this kind. Only
    /// for `checkout_to`.
    pub link: bool,
}

/// What a checkout did.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct CheckedOut {
    /// Files written.
    pub written: u64,
    /// Files that were already right.
    pub kept: u64,
    /// Files removed.
    pub removed: u64,
    /// Bytes written.
    pub bytes: u64,
    /// Of the files written, those that share their blocks with an earlier checkout.
    pub shared: u64,
}

pub(crate) fn matcher(only: &[String]) -> Result<Option<GlobSet>> {
    if only.is_empty() {
        return Ok(None);
    }
    let bad = |e: globset::Error| RepoError::user(format!("{e}"), "quote globs such as '*.safetensors'");
    let mut set = GlobSetBuilder::new();
    for glob in only {
        set.add(GlobBuilder::new(glob).literal_separator(true).build().map_err(bad)?);
        // `*.json` means files in any directory, as in .mdlignore.
        if !glob.contains('/') {
            set.add(GlobBuilder::new(&format!("**/{glob}")).literal_separator(true).build().map_err(bad)?);
        }
    }
    set.build().map(Some).map_err(bad)
}

/// The files of a commit that match one of the globs (none: all), as a checkout of these globs would write them.
///
/// # Errors
/// A bad glob; nothing matches; absent or damaged objects; an I/O error.
pub fn files_matching(repo: &Repo, commit: &Id, only: &[String]) -> Result<Files> {
    let globs = matcher(only)?;
    let mut files = files(repo, commit)?;
    if let Some(globs) = globs {
        if !files.keys().any(|rel| globs.is_match(rel)) {
            return Err(nothing_matches(only, &files));
        }
        files.retain(|rel, _| globs.is_match(rel));
    }
    Ok(files)
}

/// No file of a version matches: names the files that are most like it.
fn nothing_matches(only: &[String], files: &Files) -> RepoError {
    let close = only.iter().map(|glob| {
        // What a glob leaves open says nothing.
        let wanted = glob.replace(['*', '?'], "");
        let last = |rel: &str| rel.rsplit('/').next().unwrap_or_default().to_owned();
        let names: Vec<String> = files.keys().map(|rel| last(rel)).collect();
        match did_you_mean(" (", &wanted, files.keys().map(String::as_str)) {
            none if none.is_empty() => did_you_mean(" (", &last(&wanted), names.iter().map(String::as_str)),
            close => close,
        }
    });
    let close = close.into_iter().find(|close| !close.is_empty()).map_or_else(String::new, |close| close + ")");
    RepoError::not_found(Missing::File, format!("matching {}{close}", only.join(", ")))
}

/// When a file on disk may be replaced or removed.
#[derive(Debug)]
enum Expected {
    /// Always: it was given up.
    Anything,
    /// If no file is there.
    Absent,
    /// If it is still the file that was looked at, whose bytes some version holds.
    Held(Read),
}

/// One file to be written.
struct Job<'a> {
    rel: &'a str,
    entry: &'a Entry,
    path: PathBuf,
    expected: Expected,
}

/// Writes a version's files below `dir`, which is made if need be. Other files there stay. A file in the way whose
/// bytes are in no version that a ref or HEAD reaches is not overwritten unless forced.
///
/// # Errors
/// Files in the way; absent or damaged objects; an I/O error.
pub fn checkout_to(
    repo: &Repo,
    commit: &Id,
    dir: &Path,
    options: &CheckoutOptions,
    progress: &dyn Progress,
) -> Result<CheckedOut> {
    let files = files(repo, commit)?;
    let only = matcher(&options.only)?;
    let mut done = CheckedOut::default();
    let mut jobs = Vec::new();
    let mut others = HashMap::new();
    for (rel, entry) in selected(&files, only.as_ref()) {
        let path = safe_path(dir, rel)?;
        refuse_file_above(dir, rel, |_| false)?;
        let expected = match on_disk(&path, rel)? {
            None => Expected::Absent,
            Some(f) if !differs(repo, &f, entry, &mdl_store::Silent)? => {
                done.kept += 1;
                continue;
            }
            Some(_) if options.force => Expected::Anything,
            Some(f) => match object_of(repo, &f.path, rel)? {
                Some(found) => {
                    others.insert(rel.to_owned(), found.file);
                    Expected::Held(found)
                }
                None => return refuse(vec![rel.to_owned()]).map(|()| done),
            },
        };
        jobs.push(Job { rel, entry, path, expected });
    }
    if matches!((jobs.is_empty(), done.kept, &only), (true, 0, Some(_))) {
        return Err(nothing_matches(&options.only, &files));
    }
    refuse(in_no_version(repo, others)?)?;
    fs::create_dir_all(dir).map_err(RepoError::io(format!("cannot create {}", dir.display())))?;
    refuse_one_name(&jobs, dir)?;
    need_room(&jobs, &[], dir)?;
    let mut touched = Touched::default();
    let links = options.link.then(|| Links::new(repo));
    let written = write_files(repo, &jobs, dir, links.as_ref(), &mut touched, &mut done, progress);
    touched.sync()?;
    written.map(|()| done)
}

/// Makes the work tree the version `commit` and points HEAD at `head`. Files that neither version has stay; a file
/// with changes that HEAD's version does not hold stops the checkout unless forced. With `only`, those files alone
/// are written and HEAD stays.
///
/// # Errors
/// A bare repository; uncommitted changes; absent or damaged objects; `FileKept` where a file was written to
/// meanwhile; `Conflict` where HEAD moved meanwhile; an I/O error.
pub fn checkout(
    repo: &Repo,
    commit: &Id,
    head: &Head,
    options: &CheckoutOptions,
    progress: &dyn Progress,
) -> Result<CheckedOut> {
    repo.need_work()?;
    let lock = lock_work_tree(repo, progress)?;
    if options.only.is_empty() {
        refuse_in_progress(repo)?;
    }
    checkout_locked(repo, &lock, commit, head, options, progress)
}

/// The same for a caller that holds the lock.
pub(crate) fn checkout_locked(
    repo: &Repo,
    _lock: &WorkTreeLock,
    commit: &Id,
    head: &Head,
    options: &CheckoutOptions,
    progress: &dyn Progress,
) -> Result<CheckedOut> {
    let work = repo.need_work()?.to_owned();
    let transaction = WriteTransaction::begin_at(repo, commit)?;
    let target = files(repo, commit)?;
    let from = repo.refs().head()?;
    if from != *head {
        // Before a file is touched; the move itself looks again.
        refuse_checked_out(repo, head)?;
    }
    let current = match work_tree_base(repo)? {
        Some(id) => files(repo, &id)?,
        None => Files::new(),
    };
    let only = matcher(&options.only)?;
    let mut done = CheckedOut::default();
    let (mut jobs, mut gone, mut in_the_way) = (Vec::new(), Vec::new(), Vec::new());
    for (rel, entry) in selected(&target, only.as_ref()) {
        let path = safe_path(&work, rel)?;
        let goes = |above: &str| only.is_none() && current.contains_key(above);
        refuse_file_above(&work, rel, goes)?;
        // A directory whose files all go makes room by itself; with `only`, none of them goes.
        let there = if only.is_none() && empties(&path, rel, &current)? { None } else { on_disk(&path, rel)? };
        let mut expected = if options.force { Expected::Anything } else { Expected::Absent };
        if let Some(f) = there {
            // Most files of most switches are the same in both versions: ask the cheap question first.
            if !differs(repo, &f, entry, &mdl_store::Silent)? {
                done.kept += 1;
                continue;
            }
            if !options.force {
                match clean(repo, &f, current.get(rel))? {
                    Some(seen) => expected = Expected::Held(seen),
                    None => in_the_way.push(rel.to_owned()),
                }
            }
        }
        jobs.push(Job { rel, entry, path, expected });
    }
    if only.is_none() {
        // Files that no checkout writes, none removes.
        let ours = |rel: &str| !target.contains_key(rel) && check_path(rel).is_ok();
        for (rel, old) in current.iter().filter(|(rel, _)| ours(rel)) {
            let path = safe_path(&work, rel)?;
            let Some(f) = on_disk(&path, rel)? else { continue };
            let expected = match options.force {
                true => Expected::Anything,
                false => match clean(repo, &f, Some(old))? {
                    Some(seen) => Expected::Held(seen),
                    None => {
                        in_the_way.push(rel.clone());
                        continue;
                    }
                },
            };
            gone.push((rel.as_str(), path, expected));
        }
    } else if jobs.is_empty() && done.kept == 0 {
        return Err(nothing_matches(&options.only, &target));
    }
    refuse(in_the_way)?;
    refuse_one_name(&jobs, &work)?;
    need_room(&jobs, &gone, &work)?;
    let mut touched = Touched::default();
    let removed = remove_all(repo, &gone, &work, &mut touched, &mut done);
    let written = removed.and_then(|()| write_files(repo, &jobs, &work, None, &mut touched, &mut done, progress));
    touched.sync()?;
    written?;
    if only.is_none() {
        move_head(repo, &transaction, commit, &from, head)?;
    }
    Ok(done)
}

fn selected<'a>(files: &'a Files, only: Option<&GlobSet>) -> Vec<(&'a str, &'a Entry)> {
    let wanted = |rel: &str| only.is_none_or(|set| set.is_match(rel));
    files.iter().map(|(rel, e)| (rel.as_str(), e)).filter(|(rel, _)| wanted(rel)).collect()
}

fn refuse(files: Vec<String>) -> Result<()> {
    match files.is_empty() {
        true => Ok(()),
        false => Err(RepoError::FilesInTheWay { files }),
    }
}

/// Of two files whose names the file system takes for one, the second would replace the first.
fn refuse_one_name(jobs: &[Job<'_>], dir: &Path) -> Result<()> {
    match same_but_for_case(jobs.iter().map(|job| job.rel)) {
        Some((one, other)) if ignores_case(dir)? => {
            Err(RepoError::OneName { one: one.to_owned(), other: other.to_owned() })
        }
        _ => Ok(()),
    }
}
