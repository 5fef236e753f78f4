//! Stores files ahead of their commit: each rank of a sharded save puts its own, one of them joins all into a version.

use crate::{
    commit::{
        branch_target,
        disk_room::{need_room, with_room},
        new_file::{NewFile, StoredFile, check_names},
        store_ahead,
    },
    repo::Repo,
    sealed::{open, seal},
};
use mdl_objects::Id;
use mdl_store::{
    ErrorKind, Progress, Result,
    progress::go_on,
    reachability::Root,
    storage::{Prefix, Storage},
    transaction::WriteTransaction,
    write::{Hints, STORING},
};
use std::time::SystemTime;

/// Prefix of the notes of objects kept for the time of grace.
const STAGED: Prefix = Prefix::fixed("staged/");
const HEADER: &str = "mdl staged 1";

/// Stores files durably without making a version of them: deltas are taken to the version at the tip of `branch`
/// (or HEAD). Files that are never joined are collected by `gc` once their grace period is over.
pub fn stage(repo: &Repo, files: &[NewFile], branch: Option<&str>, progress: &dyn Progress) -> Result<Vec<StoredFile>> {
    check_names(files)?;
    with_room(repo, progress, || stage_once(repo, files, branch, progress))
}

fn stage_once(
    repo: &Repo,
    files: &[NewFile],
    branch: Option<&str>,
    progress: &dyn Progress,
) -> Result<Vec<StoredFile>> {
    let transaction = WriteTransaction::begin(repo)?;
    let parent = branch_target(repo, branch)?.parent;
    let commit = parent.map(|id| repo.odb().commit(&id)).transpose()?;
    need_room(repo, files, commit.as_ref())?;
    let mut pack = transaction.pack(parent.into_iter().chain(files.iter().filter_map(NewFile::stored_id)))?;
    let done = store_ahead(repo, files, commit.as_ref(), (&mut pack, &Hints::default(), false), progress)?;
    go_on(progress, STORING)?;
    // Objects stored before may be in an old pack. New packs are kept for the time of grace anyway, but for what
    // `maintenance::free` collects, in a storage with locks.
    let noted = |id: &Id| repo.storage().excludes() || pack.get(id).is_none();
    let noted: Vec<Id> = done.iter().filter_map(StoredFile::id).filter(noted).collect();
    transaction.publish(pack)?;
    pin_staged(&transaction, noted)?;
    Ok(done)
}

/// Notes that these objects, which no ref reaches yet, are relied on from now on for the time of grace.
fn pin_staged(transaction: &WriteTransaction<'_>, mut objects: Vec<Id>) -> Result<()> {
    objects.sort();
    objects.dedup();
    if objects.is_empty() {
        return Ok(());
    }
    let names: Vec<String> = objects.iter().map(Id::to_hex).collect();
    let note = seal(HEADER, &names)?;
    // One note for the same objects, whose time begins anew.
    let key = STAGED.key(blake3::hash(&note).to_hex().as_str())?;
    transaction.note(&key, &note, objects)
}

/// Ids that staged files keep alive.
///
/// # Errors
/// A note that a newer program wrote; an I/O error. One that is damaged keeps nothing.
pub(crate) fn staged_roots(storage: &dyn Storage, horizon: SystemTime) -> Result<Vec<Root>> {
    let mut roots = Vec::new();
    for stored in storage.list(&STAGED)?.into_iter().filter(|s| s.modified > horizon) {
        let Some(bytes) = storage.get(&stored.key)? else {
            continue;
        };
        let names: Vec<String> = match open(HEADER, &stored.key, &bytes) {
            Err(e) if e.kind() == ErrorKind::Corrupt => continue,
            read => read?,
        };
        let ids = names.iter().filter_map(|name| name.parse().ok());
        roots.extend(ids.map(|id| Root::noted(stored.key.to_string(), id)));
    }
    Ok(roots)
}

/// Deletes the notes that were written by `horizon`.
pub(crate) fn sweep_staged(storage: &dyn Storage, horizon: SystemTime) -> Result<()> {
    let mut over = storage.list(&STAGED)?.into_iter().filter(|s| s.modified <= horizon);
    over.try_for_each(|s| storage.delete(&s.key))
}
