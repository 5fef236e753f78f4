//! Finds out which checkpoints a branch holds already, from its commits alone: `mdl watch` keeps no state of its own.

use crate::checkpoints::{SOURCE, SOURCE_TREE};
use mdl_objects::{Commit, Id};
use mdl_repo::{RefName, Repo, Result, Step};
use std::collections::HashMap;

/// Commits of a branch by checkpoint name, each with the id of its originals' tree, in hex.
#[derive(Debug, Default)]
pub struct KnownCheckpoints {
    tip: Option<Id>,
    by_name: HashMap<String, Vec<(String, Id)>>,
}

impl KnownCheckpoints {
    /// Reads the history of the branch if it moved.
    pub fn refresh(&mut self, repo: &Repo, branch: &str) -> Result<()> {
        let tip = repo.refs().get(&RefName::branch(branch)?)?;
        if tip == self.tip {
            return Ok(());
        }
        self.by_name.clear();
        for step in mdl_repo::history(repo, tip.as_slice())? {
            let Step { id, commit } = step?;
            self.add(id, &commit);
        }
        self.tip = tip;
        Ok(())
    }

    pub fn moved(&mut self, id: Id, commit: &Commit) {
        self.add(id, commit);
        self.tip = Some(id);
    }

    fn add(&mut self, id: Id, commit: &Commit) {
        if let Some(name) = commit.meta.get(SOURCE) {
            let originals = commit.meta.get(SOURCE_TREE).cloned().unwrap_or_else(|| commit.tree.to_hex());
            self.by_name.entry(name.clone()).or_default().push((originals, id));
        }
    }

    /// Commits of a checkpoint of this name.
    pub fn versions_of(&self, name: &str) -> &[(String, Id)] {
        self.by_name.get(name).map_or(&[], Vec::as_slice)
    }

    /// The commit of a checkpoint of this name and content.
    pub fn with(&self, name: &str, tree: &Id) -> Option<Id> {
        let tree = tree.to_hex();
        self.versions_of(name).iter().find(|(t, _)| *t == tree).map(|(_, id)| *id)
    }
}
