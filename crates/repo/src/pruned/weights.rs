//! Versions without their optimizer state: what a mark says they lack, and the proof that the rest is theirs.
//!
//! A mark lists the files that its tree lacks. With them put back, the tree has the id that the commit names. So a mark
//! can be checked where the commit's own tree is long gone, or never was, and nothing else can take a version's place.

use crate::pruned::PrunedMark;
use mdl_objects::{Commit, Entry, Id, Mode};
use mdl_store::{
    RepoError, Result, Silent,
    object_db::{Files, Odb},
    write::{Chains, Hints, Ingest, Policy, Report, Sink, store_trees},
};
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;

/// A file that a version lost, as its tree had it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct LeftOut {
    /// Whether `id` is a manifest's, else a blob's.
    pub manifest: bool,
    /// Its contents.
    pub id: Id,
    /// Bytes.
    pub size: u64,
    /// Whether it is executable.
    pub executable: bool,
}

/// Files that a version lost, by their paths.
pub type LeftOutFiles = BTreeMap<String, LeftOut>;

impl LeftOut {
    /// Of an entry of a tree.
    #[must_use]
    pub fn from_entry(entry: &Entry) -> LeftOut {
        let Entry { mode, executable, size, id, .. } = *entry;
        LeftOut { manifest: mode == Mode::Manifest, id, size, executable }
    }

    fn entry(&self) -> Entry {
        let mode = if self.manifest { Mode::Manifest } else { Mode::Blob };
        Entry { name: String::new(), mode, executable: self.executable, size: self.size, id: self.id }
    }
}

/// The tree that a version's tree without optimizer state is a part of: that of its approximation, if it has one.
#[must_use]
pub fn whole_tree(commit: &Commit) -> Id {
    commit.approximation.unwrap_or(commit.tree)
}

/// Whether what a mark names may stand for a version: the approximation that its commit names, or a part of that one's
/// files (of the commit's files where there is none). No other tree, whatever the record says. The tree of a part must
/// be here.
///
/// # Errors
/// An I/O error. A tree that is damaged or not here may not stand.
pub fn may_stand(odb: &Odb, commit: &Commit, mark: &PrunedMark) -> Result<bool> {
    let Some(tree) = mark.stand_in else { return Ok(true) };
    if mark.without.is_empty() {
        return Ok(Some(tree) == commit.approximation);
    }
    match odb.files(&tree).and_then(|files| is_part(odb, files, &mark.without, &whole_tree(commit))) {
        Err(e @ RepoError::Io { .. }) => Err(e),
        done => Ok(done.unwrap_or(false)),
    }
}

/// Whether these files and the ones left out are those of a tree, and neither are all of it.
pub(crate) fn is_part(odb: &Odb, files: Files, without: &LeftOutFiles, whole: &Id) -> Result<bool> {
    let (kept, mut all) = (files.len(), files);
    all.extend(without.iter().map(|(path, file)| (path.clone(), file.entry())));
    let is_sum = kept > 0 && !without.is_empty() && all.len() == kept + without.len();
    // Of a file and a directory of one name a tree would have the directory only, and hide the file.
    let is_inside = |path: &String| path.match_indices('/').any(|(end, _)| all.contains_key(&path[..end]));
    Ok(is_sum && !all.keys().any(is_inside) && tree_id(odb, &all)? == *whole)
}

/// The id of the tree of these files, without storing it.
fn tree_id(odb: &Odb, files: &Files) -> Result<Id> {
    let policy = Policy { chains: Chains::NONE, allow_damaged: false };
    let (sink, hints, report) = (Sink::Ids, &Hints::default(), Report::default());
    store_trees(&mut Ingest { odb, sink, policy, hints, progress: &Silent, report }, files)
}
