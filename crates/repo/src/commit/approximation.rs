//! The approximation of a version that is stored exactly as well: in a pack of its own, as a difference to the
//! parent's.
//!
//! It comes first, so that the exact contents can be stored as what it leaves out.

use crate::{
    commit::{
        new_file::{Content, NewFile},
        write::ingest_all,
    },
    pruned::{standing_tree, with_tree},
    repo::Repo,
};
use mdl_lossy::Prepared;
use mdl_objects::{Commit, Id};
use mdl_store::{
    Progress, Result,
    object_db::Files,
    transaction::WriteTransaction,
    write::{FileState, Ingest, Policy, Report, Sink, changed, store_trees},
};

/// A stored approximation.
#[derive(Debug)]
pub(super) struct Approximation {
    pub files: Files,
    pub tree: Id,
    /// What its tensors took.
    pub report: Report,
    /// Bytes of its objects.
    pub bytes: u64,
}

impl Approximation {
    /// Stores the files that a search has prepared, durably; `parent` is the version before as it stands.
    pub fn store(
        repo: &Repo,
        transaction: &WriteTransaction<'_>,
        list: &[NewFile],
        parent: Option<&Commit>,
        (prepared, policy): (&Prepared, Policy),
        progress: &dyn Progress,
    ) -> Result<Approximation> {
        let old = parent.map(|c| repo.odb().files(&c.approximation.unwrap_or(c.tree))).transpose()?.unwrap_or_default();
        // The parent was pinned with all that it refers to.
        let mut pack = transaction.pack([])?;
        let sink = Sink::Pack(&mut pack);
        let hints = &prepared.hints;
        let mut ingest = Ingest { odb: repo.odb(), sink, policy, hints, progress, report: Report::default() };
        let files = ingest_all(&mut ingest, list, &old, Some(prepared))?;
        let tree = store_trees(&mut ingest, &files)?;
        let (bytes, report) = (ingest.payload_bytes(), std::mem::take(&mut ingest.report));
        drop(ingest);
        transaction.publish(pack)?;
        Ok(Approximation { files, tree, report, bytes })
    }
}

/// Refuses files that were written to since they were judged.
pub(super) fn refuse_written_since(list: &[NewFile], prepared: &Prepared) -> Result<()> {
    for f in list {
        let (Content::Disk(path), Some(before)) = (&f.content, prepared.states.get(&f.rel)) else { continue };
        if FileState::from_path(path)?.written_since(before) {
            return Err(changed(&f.rel));
        }
    }
    Ok(())
}

/// A version with the tree that it gives today: after its exact contents went, the approximation's.
pub(super) fn as_it_stands(repo: &Repo, id: &Id) -> Result<Commit> {
    let commit = repo.odb().commit(id)?;
    let tree = standing_tree(repo, id, &commit)?;
    Ok(with_tree(commit, tree))
}
