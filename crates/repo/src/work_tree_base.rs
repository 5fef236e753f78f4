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

impl Repo {
    /// The version that the work tree's files were taken from or committed as; none: they come from none.
    ///
    /// # Errors
    /// Damaged refs; an I/O error.
    pub fn work_tree_base(&self) -> Result<Option<Id>> {
        let tip = self.refs().head_commit()?;
        let Some(seen) = self.refs().work_tree_base().and_then(|seen| seen.read()) else {
            return Ok(tip);
        };
        if seen.contains(&tip) {
            return Ok(tip);
        }
        match seen.first().copied().flatten() {
            // If the base was deleted meanwhile, its files can be compared with nothing.
            Some(base) if self.odb().has(&base)? => Ok(Some(base)),
            Some(_) => Ok(tip),
            None => Ok(None),
        }
    }

    /// Notes that the work tree's files were not taken from any version, whatever HEAD's is.
    pub fn clear_work_tree_base(&self) {
        self.set_work_tree_base(None);
    }

    /// Notes that the work tree's files are now those of a version.
    pub(crate) fn set_work_tree_base(&self, version: Option<Id>) {
        self.refs().work_tree_base().inspect(|seen| seen.end(version));
    }

    /// Refuses to go on from HEAD where another user moved its branch.
    ///
    /// # Errors
    /// `FilesOfAnother`; damaged refs; an I/O error.
    pub fn refuse_moved(&self) -> Result<()> {
        let head = self.refs().head()?;
        let tip = self.refs().tip(&head)?;
        let seen = self.refs().work_tree_base().and_then(|seen| seen.read());
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
    pub(crate) fn is_of_work_tree(&self, source: &Path, branch: Option<&str>) -> Result<bool> {
        let of_it = |work: &Path| source == work || fs::canonicalize(source).is_ok_and(|source| source == work);
        Ok(self.work().is_some_and(of_it)
            && match branch {
                Some(name) => self.head_branch()? == Some(format!("{HEADS}{name}")),
                None => true,
            })
    }
}
