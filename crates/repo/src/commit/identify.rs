//! Computes the ids that a directory would have as a version, without storing it.

use crate::{repo::Repo, work_tree::walk};
use mdl_objects::{Entry, Id};
use mdl_store::{
    Progress, RepoError, Result,
    object_db::Files,
    write::{Chains, Hints, Ingest, Policy, Report, Sink, ingest_cached, store_trees},
};
use std::path::Path;

/// The tree that a commit of this directory (or file) without a policy would have. Files that look as they did when
/// they were last hashed are not read.
pub fn identify(repo: &Repo, source: &Path, progress: &dyn Progress) -> Result<Id> {
    tree_of(repo, source, repo.config.follow_symlinks(), progress)
}

/// As `identify`, with what symbolic links point at in their place whatever the settings say.
pub fn identify_linked(repo: &Repo, source: &Path, progress: &dyn Progress) -> Result<Id> {
    tree_of(repo, source, true, progress)
}

fn tree_of(repo: &Repo, source: &Path, follow_symlinks: bool, progress: &dyn Progress) -> Result<Id> {
    let source = std::path::absolute(source).map_err(RepoError::io("cannot find the current directory"))?;
    let list = walk(&source, follow_symlinks)?;
    let policy = Policy { chains: Chains::NONE, allow_damaged: false };
    let mut ingest = Ingest {
        odb: repo.odb(),
        sink: Sink::Ids,
        policy,
        hints: &Hints::default(),
        progress,
        report: Report::default(),
    };
    progress.begin("hashing", list.iter().map(|f| f.size).sum());
    let mut files = Files::new();
    for f in &list {
        let done = ingest_cached(&mut ingest, &f.path, &f.rel, None)?;
        let entry =
            Entry { name: String::new(), mode: done.mode, executable: f.executable, size: done.size, id: done.id };
        files.insert(f.rel.clone(), entry);
    }
    progress.end();
    store_trees(&mut ingest, &files)
}
