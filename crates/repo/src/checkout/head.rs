//! Moves HEAD, after a checkout or without one.

use crate::repo::Repo;
use mdl_objects::Id;
use mdl_store::{
    Progress, RepoError, Result,
    lock::WriteGuard,
    refs::{HEADS, Head},
};

fn place(head: &Head) -> String {
    match head {
        Head::Branch(name) => name.clone(),
        Head::Detached(id) => id.short(),
    }
}

impl Repo {
    /// Points HEAD elsewhere without touching files. A branch must stand at `seen`.
    ///
    /// # Errors
    /// `Conflict` where the branch moved or went meanwhile; an I/O error.
    pub fn attach(&self, head: &Head, seen: Option<Id>, progress: &dyn Progress) -> Result<()> {
        let _lock = self.lock_work_tree(progress)?;
        let held = match head {
            Head::Branch(_) => self.write_lock()?,
            Head::Detached(id) => self.hold(id)?,
        };
        if self.refs().head()? == *head {
            return Ok(());
        }
        self.refuse_another_tip(head, seen)?;
        let message = format!("checkout: moving to {}", place(head));
        self.refs().set_head(&held, head, &self.config.signature(), &message)
    }

    pub(super) fn move_head(&self, held: &WriteGuard, commit: &Id, from: &Head, head: &Head) -> Result<()> {
        if from == head {
            self.set_work_tree_base(Some(*commit));
            return Ok(());
        }
        self.refuse_another_tip(head, Some(*commit))?;
        let message = format!("checkout: moving to {}", place(head));
        self.refs().move_head(held, from, head, &self.config.signature(), &message)?;
        self.set_work_tree_base(Some(*commit));
        Ok(())
    }

    /// HEAD must not get onto a branch that was deleted, or whose files are not in the work tree.
    fn refuse_another_tip(&self, head: &Head, expected: Option<Id>) -> Result<()> {
        let found = self.refs().tip(head)?;
        match head {
            Head::Branch(name) if found != expected => {
                Err(RepoError::Conflict { name: format!("{HEADS}{name}"), expected, found })
            }
            _ => Ok(()),
        }
    }
}
