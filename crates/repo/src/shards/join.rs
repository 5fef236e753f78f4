//! Joins the shards of a session's ranks into one version.

use crate::{
    commit::{CommitRequest, Committed, Content, NewFile, StoredFile, Written, check_names, write_commit},
    repo::Repo,
    shards::{
        Keys,
        finish::{finish_session, has_moved, settle},
        record::Record,
        state::{Decision, StoredState},
    },
};
use mdl_store::{Missing, Progress, RepoError, Result, storage::Storage};
use std::{
    collections::{BTreeMap, btree_map},
    path::Path,
};

/// Which session is to be finished, and the version's message and metadata.
#[derive(Clone, Debug, Default)]
pub struct JoinRequest {
    /// The session.
    pub session: String,
    /// Number of ranks: each of 0 to `ranks - 1` must have put.
    pub ranks: u32,
    /// The version's message and metadata. `files` are added to those of the ranks; `source` is not looked at.
    pub commit: CommitRequest,
}

/// Makes one version of the files that the ranks of a session have put, and moves the branch to it. For a session that
/// is finished already, returns the version that it became; the rest of the request is not looked at.
///
/// # Errors
/// Ranks that have not put are named, and nothing is committed; so where two ranks have put different files of one
/// name, or a rank beyond `ranks` has put. `NotFound`: no such session; what a rank put was collected. `Conflict`
/// and others as in `commit`. Whatever the error, the call may be made again.
pub fn join_shards(repo: &Repo, request: &JoinRequest, progress: &dyn Progress) -> Result<Committed> {
    let keys = Keys::for_session(&request.session)?;
    let storage = repo.storage();
    if request.ranks == 0 {
        return Err(RepoError::usage("no ranks are to be joined", "say how many ranks there are"));
    }
    loop {
        let seen = StoredState::read(storage, &keys)?;
        if seen.state.decided.is_some() {
            match finish_session(repo, &keys, request)? {
                Some(done) => return Ok(done),
                None => continue,
            }
        }
        if seen.is_untouched() {
            if storage.keys(&keys.prefix)?.is_empty() {
                return Err(RepoError::not_found(Missing::Session, &request.session));
            }
            // From here on a rank that puts changes the token, and what is read below is read again.
            seen.swap(storage, &keys, seen.renewed())?;
            continue;
        }
        if let Some(done) = join_once(repo, &keys, &seen, request, progress)? {
            return Ok(done);
        }
    }
}

/// Reads, writes and decides. None: the session has changed meanwhile.
fn join_once(
    repo: &Repo,
    keys: &Keys,
    seen: &StoredState,
    request: &JoinRequest,
    progress: &dyn Progress,
) -> Result<Option<Committed>> {
    let (written, shards) = match joined(repo, keys, request, progress) {
        // What was to be joined may have been joined, and be gone, meanwhile.
        Err(_) if StoredState::read(repo.storage(), keys)?.state != seen.state => return Ok(None),
        done => done?,
    };
    // After the branch was read, which the decision says it stands at: it cannot get onto it unseen any more.
    for lost in &seen.state.given_up {
        if has_moved(repo, lost)? {
            seen.swap(repo.storage(), keys, seen.deciding(lost.clone()))?;
            return Ok(None);
        }
    }
    let decision = decision(&written, shards);
    let Some(decided) = seen.swap(repo.storage(), keys, seen.deciding(decision.clone()))? else {
        return Ok(None);
    };
    settle(repo, &written.transaction, keys, &decided, &decision, &written.target, &written.commit, request)?;
    Ok(Some(written.into_committed()))
}

/// The version of what the ranks have put, on no ref yet, and the records that are in it.
fn joined<'r>(
    repo: &'r Repo,
    keys: &Keys,
    request: &JoinRequest,
    progress: &dyn Progress,
) -> Result<(Written<'r>, Vec<String>)> {
    let (mut files, checks) = records(repo, keys, request)?;
    files.extend(request.commit.files.iter().flatten().cloned());
    check_names(&files)?;
    let commit = CommitRequest { source: None, files: Some(files.clone()), ..request.commit.clone() };
    let written = write_commit(repo, &commit, Path::new(""), &files, None, progress)?;
    Ok((written, checks))
}

/// The files that the ranks have put, if all have, and what tells their records from others.
fn records(repo: &Repo, keys: &Keys, request: &JoinRequest) -> Result<(Vec<NewFile>, Vec<String>)> {
    let storage = repo.storage();
    refuse_strangers(storage, keys, request)?;
    let (mut missing, mut checks) = (Vec::new(), Vec::new());
    let mut all: BTreeMap<String, (u32, StoredFile)> = BTreeMap::new();
    for rank in 0..request.ranks {
        let Some((record, check)) = Record::read(storage, keys, rank)? else {
            missing.push(rank);
            continue;
        };
        checks.push(check);
        for (rel, stored) in record.files {
            match all.entry(rel) {
                btree_map::Entry::Vacant(free) => drop(free.insert((rank, stored))),
                btree_map::Entry::Occupied(taken) if taken.get().1.is_same(&stored) => {}
                btree_map::Entry::Occupied(taken) => return Err(differ(taken.key(), taken.get().0, rank)),
            }
        }
    }
    if !missing.is_empty() {
        return Err(not_all(&missing, request));
    }
    refuse_collected(repo, &all)?;
    let file = |(rel, (_, stored)): (String, (u32, StoredFile))| NewFile {
        rel,
        executable: stored.executable(),
        content: Content::Stored(stored),
    };
    Ok((all.into_iter().map(file).collect(), checks))
}

/// Names the ranks whose files are gone. The commit looks again, when no collector can run.
fn refuse_collected(repo: &Repo, all: &BTreeMap<String, (u32, StoredFile)>) -> Result<()> {
    repo.odb().refresh();
    for (rel, (rank, stored)) in all {
        if stored.find(repo.odb())?.is_none() {
            return Err(RepoError::not_found(
                Missing::Shard,
                format!("{rel} of rank {rank}: it was collected; let the rank put again"),
            ));
        }
    }
    Ok(())
}

fn decision(written: &Written<'_>, shards: Vec<String>) -> Decision {
    Decision {
        commit: written.id.to_hex(),
        branch: written.target.head.branch().map(str::to_owned),
        from: written.target.tip.map(|id| id.to_hex()),
        settled: false,
        shards,
    }
}

/// A rank beyond those that are to be joined: the version would silently lack what it has put.
fn refuse_strangers(storage: &dyn Storage, keys: &Keys, request: &JoinRequest) -> Result<()> {
    let keys = storage.keys(&keys.prefix)?;
    let ranks = keys.iter().filter_map(|key| super::parts(key)?.1.parse::<u32>().ok());
    match ranks.max() {
        Some(last) if last >= request.ranks => Err(RepoError::user(
            format!(
                "rank {last} has put a shard of session {}, and {} ranks are to be joined",
                request.session, request.ranks
            ),
            "ranks count from 0; say how many there are",
        )),
        _ => Ok(()),
    }
}

fn not_all(missing: &[u32], request: &JoinRequest) -> RepoError {
    let shown: Vec<String> = missing.iter().take(20).map(u32::to_string).collect();
    let more = match missing.len() - shown.len() {
        0 => String::new(),
        n => format!(" and {n} more"),
    };
    let (ranks, have) = match missing.len() {
        1 => ("rank", "has"),
        _ => ("ranks", "have"),
    };
    RepoError::user(
        format!(
            "{ranks} {}{more} of {} {have} put nothing to session {}; nothing was committed",
            shown.join(", "),
            request.ranks,
            request.session
        ),
        "let them put, then finish again; the others' shards stay as they are",
    )
}

fn differ(rel: &str, a: u32, b: u32) -> RepoError {
    RepoError::user(
        format!("ranks {a} and {b} have put different files under the name {rel}; nothing was committed"),
        "let one of them put again without it, or under another name",
    )
}
