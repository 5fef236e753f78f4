//! Checkout: a version's files on disk, without losing what nobody committed. Neighbours: `restore` writes files, `status`
//! tells what is changed, refs move HEAD. It must not know how a file is stored.

mod disk;
mod known;

use crate::{RepoError, Result, guard::WriteGuard, progress::Progress, refs::Head, repo::Repo, tree::Files};
pub use disk::check_path;
use disk::{empties, make_dirs, on_disk, remove, safe_path};
use globset::{GlobBuilder, GlobSet, GlobSetBuilder};
use mdl_objects::{Entry, Id};
use std::{
    collections::HashMap,
    fs,
    path::{Path, PathBuf},
};

/// What a checkout may do.
#[derive(Clone, Debug, Default)]
pub struct CheckoutOptions {
    /// Only files whose path matches one of these globs (`*` stops at `/`, `**` does not); empty means all.
    pub only: Vec<String>,
    /// Overwrite and remove files with changes that are in no version.
    pub force: bool,
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
}

fn matcher(only: &[String]) -> Result<Option<GlobSet>> {
    if only.is_empty() {
        return Ok(None);
    }
    let bad = |e: globset::Error| RepoError::user(format!("{e}"), "quote globs such as '*.safetensors'");
    let mut set = GlobSetBuilder::new();
    for glob in only {
        set.add(GlobBuilder::new(glob).literal_separator(true).build().map_err(bad)?);
        // `*.json` means files in any directory, as in .mdlignore.
        if !glob.contains('/') {
            set.add(
                GlobBuilder::new(&format!("**/{glob}"))
                    .literal_separator(true)
                    .build()
                    .map_err(bad)?,
            );
        }
    }
    set.build().map(Some).map_err(bad)
}

impl Repo {
    /// The files of a commit that match one of the globs (none: all), as a checkout of these globs would write them.
    ///
    /// # Errors
    /// A bad glob; nothing matches; absent or damaged objects; the medium failed.
    pub fn files_matching(&self, commit: &Id, only: &[String]) -> Result<Files> {
        let globs = matcher(only)?;
        let mut files = self.files(commit)?;
        if let Some(globs) = globs {
            files.retain(|rel, _| globs.is_match(rel));
            if files.is_empty() {
                return Err(RepoError::not_found("file", format!("matching {}", only.join(", "))));
            }
        }
        Ok(files)
    }
}

/// One file to be written.
struct Job<'a> {
    entry: &'a Entry,
    path: PathBuf,
}

impl Repo {
    /// Writes a version's files below `dir`, which is made if need be. Other files there stay. A file in the way whose bytes
    /// are in no version that a ref or HEAD reaches is not overwritten unless forced.
    ///
    /// # Errors
    /// Files in the way; absent or damaged objects; the medium failed.
    pub fn checkout_to(
        &self,
        commit: &Id,
        dir: &Path,
        options: &CheckoutOptions,
        progress: &dyn Progress,
    ) -> Result<CheckedOut> {
        let files = self.files(commit)?;
        let only = matcher(&options.only)?;
        let mut done = CheckedOut::default();
        let mut jobs = Vec::new();
        let mut others = HashMap::new();
        for (rel, entry) in selected(&files, only.as_ref()) {
            let path = safe_path(dir, rel)?;
            match on_disk(&path, rel)? {
                Some(f) if !self.differs(&f, entry, &crate::Silent)? => {
                    done.kept += 1;
                    continue;
                }
                Some(f) if !options.force => {
                    others.insert(rel.to_owned(), self.object_of(&f)?);
                }
                _ => {}
            }
            jobs.push(Job { entry, path });
        }
        if matches!((jobs.is_empty(), done.kept, &only), (true, 0, Some(_))) {
            return Err(RepoError::not_found(
                "file",
                format!("matching {}", options.only.join(", ")),
            ));
        }
        refuse(&self.in_no_version(others)?)?;
        fs::create_dir_all(dir).map_err(RepoError::io(format!("cannot create {}", dir.display())))?;
        self.write(&jobs, dir, &mut done, progress)?;
        Ok(done)
    }

    /// Makes the work tree the version `commit` and points HEAD at `head`. Files that neither version has stay; a file with
    /// changes that HEAD's version does not hold stops the checkout unless forced. With `only`, those files alone are
    /// written and HEAD stays.
    ///
    /// # Errors
    /// A bare repository; uncommitted changes; absent or damaged objects; `Conflict` where HEAD moved meanwhile; the medium failed.
    pub fn checkout(
        &self,
        commit: &Id,
        head: &Head,
        options: &CheckoutOptions,
        progress: &dyn Progress,
    ) -> Result<CheckedOut> {
        let work = self.need_work()?.to_owned();
        let held = self.hold(commit)?;
        let target = self.files(commit)?;
        let from = self.refs.head()?;
        let current = match self.files_of()? {
            Some(id) => self.files(&id)?,
            None => Files::new(),
        };
        let only = matcher(&options.only)?;
        let mut done = CheckedOut::default();
        let (mut jobs, mut gone, mut in_the_way) = (Vec::new(), Vec::new(), Vec::new());
        for (rel, entry) in selected(&target, only.as_ref()) {
            let path = safe_path(&work, rel)?;
            // A directory whose files all go makes room by itself; with `only`, none of them goes.
            let there = if only.is_none() && empties(&path, rel, &current)? {
                None
            } else {
                on_disk(&path, rel)?
            };
            if let Some(f) = there {
                // Most files of most switches are the same in both versions: ask the cheap question first.
                if !self.differs(&f, entry, &crate::Silent)? {
                    done.kept += 1;
                    continue;
                }
                let clean = match current.get(rel) {
                    Some(old) => !self.differs(&f, old, &crate::Silent)?,
                    None => false,
                };
                if !clean && !options.force {
                    in_the_way.push(rel.to_owned());
                }
            }
            jobs.push(Job { entry, path });
        }
        if only.is_none() {
            // What no checkout wrote, none removes.
            let ours = |rel: &str| !target.contains_key(rel) && check_path(rel).is_ok();
            for (rel, old) in current.iter().filter(|(rel, _)| ours(rel)) {
                let path = safe_path(&work, rel)?;
                let Some(f) = on_disk(&path, rel)? else { continue };
                if !options.force && self.differs(&f, old, &crate::Silent)? {
                    in_the_way.push(rel.clone());
                }
                gone.push(path);
            }
        } else if jobs.is_empty() && done.kept == 0 {
            return Err(RepoError::not_found(
                "file",
                format!("matching {}", options.only.join(", ")),
            ));
        }
        refuse(&in_the_way)?;
        for path in &gone {
            remove(path, &work)?;
            done.removed += 1;
        }
        self.write(&jobs, &work, &mut done, progress)?;
        if only.is_none() {
            self.move_head(&held, commit, &from, head)?;
        }
        Ok(done)
    }

    fn move_head(&self, held: &WriteGuard, commit: &Id, from: &Head, head: &Head) -> Result<()> {
        if from == head {
            self.files_are_of(Some(*commit));
            return Ok(());
        }
        let to = match head {
            Head::Branch(name) => name.clone(),
            Head::Detached(_) => commit.short(),
        };
        self.refs.move_head(
            held,
            from,
            head,
            &self.config.signature(),
            &format!("checkout: moving to {to}"),
        )
    }

    fn write(&self, jobs: &[Job<'_>], root: &Path, done: &mut CheckedOut, progress: &dyn Progress) -> Result<()> {
        self.odb.prefetch_files(jobs.iter().map(|j| j.entry))?;
        progress.begin(
            "checking out",
            jobs.iter().map(|j| j.entry.size).fold(0, u64::saturating_add),
        );
        for job in jobs {
            if let Some(dir) = job.path.parent() {
                make_dirs(dir, root)?;
            }
            self.odb.restore_to(job.entry, &job.path, progress)?;
            done.written += 1;
            done.bytes = done.bytes.saturating_add(job.entry.size);
        }
        progress.end();
        Ok(())
    }
}

fn selected<'a>(files: &'a Files, only: Option<&GlobSet>) -> Vec<(&'a str, &'a Entry)> {
    let wanted = |rel: &str| only.is_none_or(|set| set.is_match(rel));
    files
        .iter()
        .map(|(rel, e)| (rel.as_str(), e))
        .filter(|(rel, _)| wanted(rel))
        .collect()
}

/// What to do about files in the way, where the verb can be forced.
const FORCE: &str = "commit them first, or pass --force to lose the changes";
/// The same, where it cannot.
const NO_FORCE: &str = "commit them first, or drop the changes with `mdl checkout HEAD --only FILE --force`";

/// An error of a checkout that is part of something without `--force`.
pub(crate) fn unforced(error: RepoError) -> RepoError {
    match error {
        RepoError::User { message, hint } if hint == FORCE => RepoError::user(message, NO_FORCE),
        other => other,
    }
}

fn refuse(in_the_way: &[String]) -> Result<()> {
    if in_the_way.is_empty() {
        return Ok(());
    }
    let mut list = in_the_way
        .iter()
        .take(10)
        .map(|p| format!("\n  {p}"))
        .collect::<String>();
    if in_the_way.len() > 10 {
        list.push_str(&format!("\n  and {} more", in_the_way.len() - 10));
    }
    Err(RepoError::user(
        format!("these files have changes that are not committed:{list}"),
        FORCE,
    ))
}
