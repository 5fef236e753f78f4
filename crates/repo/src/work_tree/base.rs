//! The work-tree base: the version that the files of the work tree come from. It is HEAD's, unless another user has
//! moved the branch.
//!
//! Without this, a commit made from a work tree after another user's push to its branch would silently put the old
//! contents back on top.

use crate::repo::Repo;
use mdl_objects::Id;
use mdl_store::{
    RepoError, Result,
    refs::{HEADS, Head},
};
use std::{fs, path::Path};

/// The version that the work tree's files were taken from or committed as; none: they come from none.
pub fn work_tree_base(repo: &Repo) -> Result<Option<Id>> {
    let tip = repo.refs().head_commit()?;
    let Some(seen) = repo.refs().work_tree_base().and_then(|seen| seen.read()) else {
        return Ok(tip);
    };
    if seen.contains(&tip) {
        return Ok(tip);
    }
    match seen.first().copied().flatten() {
        // If the base was deleted meanwhile, its files can be compared with nothing.
        Some(base) if repo.odb().has(&base)? => Ok(Some(base)),
        Some(_) => Ok(tip),
        None => Ok(None),
    }
}

/// Notes that the work tree's files were not taken from any version, whatever HEAD's is.
pub fn clear_work_tree_base(repo: &Repo) {
    set_work_tree_base(repo, None);
}

/// Notes that the work tree's files are now those of a version.
pub(crate) fn set_work_tree_base(repo: &Repo, version: Option<Id>) {
    repo.refs().work_tree_base().inspect(|seen| seen.end(version));
}

/// Refuses to go on from HEAD where another user moved its branch.
///
/// # Errors
/// `FilesOfAnother`; damaged refs; an I/O error.
pub fn refuse_moved(repo: &Repo) -> Result<()> {
    let head = repo.refs().head()?;
    let tip = repo.refs().tip(&head)?;
    let seen = repo.refs().work_tree_base().and_then(|seen| seen.read());
    match seen {
        Some(seen) if !seen.contains(&tip) => Err(RepoError::FilesOfAnother {
            name: match head {
                Head::Branch(name) => name,
                Head::Detached(_) => "HEAD".to_owned(),
            },
            base: seen.first().copied().flatten(),
            tip,
        }),
        _ => Ok(()),
    }
}

/// Whether a commit of the files in `source` to `branch` (none: HEAD's) commits the work tree to where HEAD is.
pub(crate) fn is_of_work_tree(repo: &Repo, source: &Path, branch: Option<&str>) -> Result<bool> {
    let of_it = |work: &Path| source == work || fs::canonicalize(source).is_ok_and(|source| source == work);
    Ok(repo.work().is_some_and(of_it)
        && match branch {
            Some(name) => repo.head_branch()? == Some(format!("{HEADS}{name}")),
            None => true,
        })
}
