//! Tells whether bytes on disk are in a version, so that overwriting them loses nothing.

use crate::{
    history::{history, named_commits},
    pruned::pruned,
    repo::Repo,
};
use mdl_objects::{Entry, Id, Mode};
use mdl_store::{
    RepoError, Result,
    write::{Chains, DiskFile, FileState, Hints, Ingest, Policy, Report, Sink},
};
use std::{
    collections::{HashMap, HashSet},
    fs,
    os::unix::fs::PermissionsExt,
    path::Path,
};

/// A file that was read from its first byte to its last without being written to.
#[derive(Clone, Copy, Debug)]
pub(super) struct Read {
    /// What it would be in a tree.
    pub file: (Mode, Id),
    pub executable: bool,
    pub state: FileState,
    /// Whether a write through a memory map would move the state.
    pub told: bool,
}

fn is_executable(path: &Path) -> Result<bool> {
    let found = fs::metadata(path).map_err(RepoError::io(format!("cannot look at {}", path.display())))?;
    Ok(found.permissions().mode() & 0o100 != 0)
}

/// The object that a file is, whatever the stat cache says; none if it is written to meanwhile.
pub(super) fn object_of(repo: &Repo, path: &Path, rel: &str) -> Result<Option<Read>> {
    let policy = Policy { chains: Chains::NONE, allow_damaged: true };
    let (sink, progress) = (Sink::Ids, &mdl_store::Silent);
    let mut ingest =
        Ingest { odb: repo.odb(), sink, policy, hints: &Hints::default(), progress, report: Report::default() };
    // No state tells of it: it moves the inode's time, as links do.
    let executable = is_executable(path)?;
    let (state, told) = FileState::exposed(path)?;
    let found = match ingest.file(path, rel, None) {
        Err(RepoError::FileChanged { .. }) => return Ok(None),
        found => found?,
    };
    let after = FileState::from_path(path)?;
    Ok((!after.written_since(&state)).then_some(Read { file: (found.mode, found.id), executable, state, told }))
}

/// The file as it is, if that is what a version holds. The stat cache is not asked, since the file is about to be
/// removed.
pub(super) fn clean(repo: &Repo, f: &DiskFile, old: Option<&Entry>) -> Result<Option<Read>> {
    let Some(old) = old.filter(|old| (f.size, f.executable) == (old.size, old.executable)) else {
        return Ok(None);
    };
    let found = object_of(repo, &f.path, &f.rel)?;
    Ok(found.filter(|now| (now.file, now.executable) == ((old.mode, old.id), old.executable)))
}

/// Which of these files are in no version that a ref or HEAD reaches, by name. That some pack has the bytes is not
/// enough: an aborted commit may have left them, and the next collection then deletes them.
pub(super) fn in_no_version(repo: &Repo, files: HashMap<String, (Mode, Id)>) -> Result<Vec<String>> {
    let mut wanted: HashSet<(Mode, Id)> = files.values().copied().collect();
    let mut seen = HashSet::new();
    if !wanted.is_empty() {
        let pruned = pruned(repo)?;
        let tips: Vec<Id> = named_commits(repo, "")?.into_iter().map(|(_, id)| id).collect();
        for step in history(repo, &tips)? {
            let step = step?;
            // Contents of pruned versions will be deleted, so bytes are not safe there; nor in the exact files of aged
            // ones.
            if pruned.get(&step.id).is_some() {
                continue;
            }
            strike(repo, &pruned.lasting_tree(&step.id, &step.commit), &mut wanted, &mut seen)?;
            if wanted.is_empty() {
                break;
            }
        }
    }
    let lost = files.into_iter().filter(|(_, file)| wanted.contains(file));
    let mut names: Vec<String> = lost.map(|(rel, _)| rel).collect();
    names.sort();
    Ok(names)
}

/// Removes from the list what is anywhere below a tree; trees seen before are skipped.
fn strike(repo: &Repo, tree: &Id, wanted: &mut HashSet<(Mode, Id)>, seen: &mut HashSet<Id>) -> Result<()> {
    let mut stack = vec![*tree];
    while let Some(id) = stack.pop() {
        if !seen.insert(id) {
            continue;
        }
        for e in repo.odb().tree(&id)?.entries {
            if e.mode == Mode::Tree {
                stack.push(e.id);
            } else {
                wanted.remove(&(e.mode, e.id));
            }
        }
    }
    Ok(())
}
