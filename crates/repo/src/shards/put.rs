//! Stores a rank's files like those of a commit, then writes its record.

use crate::{
    commit::{
        NewFile, StoredFile, branch_target, check_names,
        disk_room::{need_room, with_room},
        store_ahead,
    },
    repo::Repo,
    shards::{
        Keys,
        record::{Record, check},
        state::{Decision, StoredState},
    },
    work_tree::walk,
};
use mdl_objects::Id;
use mdl_store::{
    Progress, Remedy, RepoError, Result,
    lock::now_ms,
    pack::PackId,
    progress::go_on,
    transaction::WriteTransaction,
    write::{Hints, STORING},
};
use std::{collections::BTreeMap, path::PathBuf};

/// The files of a rank, and where they go.
#[derive(Clone, Debug, Default)]
pub struct ShardRequest {
    /// The session, a name like a branch's; all ranks of one version give the same.
    pub session: String,
    /// The rank, counted from 0. One that puts again replaces what it has put.
    pub rank: u32,
    /// Directories whose contents, and files which, are this rank's part of the tree.
    pub paths: Vec<PathBuf>,
    /// Further files of it, wherever they are: in memory, on disk, or stored before by [`stage`](crate::commit::stage).
    pub files: Vec<NewFile>,
    /// The version that deltas are taken to; none for the tip of `branch`.
    pub parent: Option<Id>,
    /// The branch that the version is for; none for HEAD's. It need not be there yet.
    pub branch: Option<String>,
    /// Put even if there are no files: a rank without files of the version is counted all the same.
    pub allow_empty: bool,
    /// Take damaged checkpoint files as plain bytes.
    pub allow_damaged: bool,
    /// Take what symbolic links point at.
    pub follow_symlinks: bool,
    /// What a quantiser says about the tensors it made.
    pub hints: Hints,
}

/// What putting did.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Shard {
    /// The session.
    pub session: String,
    /// The rank.
    pub rank: u32,
    /// Its files.
    pub files: u64,
    /// Tensors in them.
    pub tensors: u64,
    /// Tensors that the repository did not have.
    pub new_tensors: u64,
    /// Sum of the files' lengths.
    pub logical_bytes: u64,
    /// Encoded bytes that storing them added.
    pub stored_bytes: u64,
    /// The pack with what was new; none if nothing was.
    pub pack: Option<PackId>,
}

/// Stores a rank's files durably, for `join_shards` to make a version of. Files that are never joined are collected
/// by `gc` once their time of grace is over.
///
/// # Errors
/// The session is finished: what this rank has put since is in no version. Damaged or unsuitable files; no files; a
/// bad name; an I/O error: the rank has put what it had put before, or this.
pub fn put_shard(repo: &Repo, request: &ShardRequest, progress: &dyn Progress) -> Result<Shard> {
    let keys = Keys::for_session(&request.session)?;
    with_room(repo, progress, || put_shard_once(repo, &keys, request, progress))
}

fn put_shard_once(repo: &Repo, keys: &Keys, request: &ShardRequest, progress: &dyn Progress) -> Result<Shard> {
    let files = shard_files(repo, request)?;
    // No collector may run between the look-ups ("is it stored already?") and the record.
    let transaction = WriteTransaction::begin(repo)?;
    if let Some(d) = &StoredState::read(repo.storage(), keys)?.state.decided {
        return Err(too_late(request, d));
    }
    let parent = match request.parent {
        Some(id) => Some(id),
        None => branch_target(repo, request.branch.as_deref())?.parent,
    };
    let (files, pack) = put_files(repo, &transaction, request, &files, parent, progress)?;
    let record = Record {
        rank: request.rank,
        time_ms: now_ms(),
        parent: parent.map(|id| id.to_hex()),
        pack: pack.map(|p| p.to_string()),
        logical_bytes: files.values().map(|s| s.size).sum(),
        stored_bytes: files.values().map(|s| s.stored_bytes).sum(),
        files,
    };
    let bytes = record.bytes()?;
    // From here on it may be joined, and collectors go by it.
    transaction.note(&keys.rank(request.rank)?, &bytes, record.objects())?;
    note_put(repo, request, keys, &check(&bytes))?;
    Ok(shard(request, &record, pack))
}

fn shard_files(repo: &Repo, request: &ShardRequest) -> Result<Vec<NewFile>> {
    let follow = request.follow_symlinks || repo.config.follow_symlinks();
    let mut files = request.files.clone();
    for path in &request.paths {
        // Absolute, since the stat cache knows files by their path.
        let path = std::path::absolute(path).map_err(RepoError::io("cannot find the current directory"))?;
        files.extend(walk(&path, follow)?.into_iter().map(NewFile::from));
    }
    check_names(&files)?;
    if files.is_empty() && !request.allow_empty {
        return Err(RepoError::user(
            format!("there are no files to put for rank {}", request.rank),
            Remedy::AllowEmptyShard,
        ));
    }
    Ok(files)
}

fn put_files(
    repo: &Repo,
    transaction: &WriteTransaction<'_>,
    request: &ShardRequest,
    files: &[NewFile],
    parent: Option<Id>,
    progress: &dyn Progress,
) -> Result<(BTreeMap<String, StoredFile>, Option<PackId>)> {
    let commit = parent.map(|id| repo.odb().commit(&id)).transpose()?;
    need_room(repo, files, commit.as_ref())?;
    let mut pack = transaction.pack(parent.into_iter().chain(files.iter().filter_map(NewFile::stored_id)))?;
    progress.begin("storing", files.iter().map(NewFile::size).sum::<Result<_>>()?);
    let into = (&mut pack, &request.hints, request.allow_damaged);
    let done = store_ahead(repo, files, commit.as_ref(), into, progress)?;
    progress.end();
    go_on(progress, STORING)?;
    let pack = transaction.publish(pack)?;
    let files = files.iter().zip(done).map(|(file, mut stored)| {
        stored.stored_bytes += file.stored_bytes();
        (file.rel.clone(), stored)
    });
    Ok((files.collect(), pack))
}

/// Makes sure that the `join` that finishes the session has read this record, or is going to.
fn note_put(repo: &Repo, request: &ShardRequest, keys: &Keys, check: &str) -> Result<()> {
    loop {
        let seen = StoredState::read(repo.storage(), keys)?;
        match &seen.state.decided {
            Some(d) if d.shards.get(request.rank as usize).is_some_and(|c| c == check) => return Ok(()),
            Some(d) => return Err(too_late(request, d)),
            None if seen.is_untouched() => return Ok(()),
            None if seen.swap(repo.storage(), keys, seen.renewed())?.is_some() => return Ok(()),
            None => {}
        }
    }
}

fn too_late(request: &ShardRequest, decision: &Decision) -> RepoError {
    let short = decision.commit.get(..12).unwrap_or_default();
    RepoError::user(
        format!("rank {} is too late: session {} is finished, as commit {short}", request.rank, request.session),
        "what it put is in no version; a version of its own wants a session of another name",
    )
}

fn shard(request: &ShardRequest, record: &Record, pack: Option<PackId>) -> Shard {
    Shard {
        session: request.session.clone(),
        rank: request.rank,
        files: record.files.len() as u64,
        tensors: record.files.values().map(|s| s.tensors).sum(),
        new_tensors: record.files.values().map(|s| s.report.len() as u64).sum(),
        logical_bytes: record.logical_bytes,
        stored_bytes: record.stored_bytes,
        pack,
    }
}
