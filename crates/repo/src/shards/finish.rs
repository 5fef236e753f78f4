//! Finishes a session: moves the ref to the commit that was decided on, for itself or for a finisher that died, and
//! notes it in the state.

use crate::{
    commit::{Committed, Target, advance},
    repo::Repo,
    shards::{
        Keys,
        join::JoinRequest,
        state::{Decision, StoredState, id},
    },
};
use mdl_objects::{Commit, Id, Kind};
use mdl_store::{
    ErrorKind, RepoError, Result,
    refs::{Head, RefName},
    transaction::WriteTransaction,
    write::Report,
};

/// Finishes what a `join` has decided. None: it was given up, or the session is another one by now.
pub(super) fn finish_session(repo: &Repo, keys: &Keys, request: &JoinRequest) -> Result<Option<Committed>> {
    // No collector may take the commit before the ref holds it; and what it left is read with it kept out.
    let transaction = WriteTransaction::begin(repo)?;
    let seen = StoredState::read(repo.storage(), keys)?;
    let Some(decision) = seen.state.decided.clone() else {
        return Ok(None);
    };
    let commit = id(&decision.commit)?;
    let found = repo.odb().commit(&commit)?;
    let target = target(&decision)?;
    match settle(repo, &transaction, keys, &seen, &decision, &target, &found, request) {
        // The `join` that decided was too late. This one is not.
        Err(e) if is_refusal(&e) => Ok(None),
        done => done.map(|()| Some(committed(repo, commit, found, decision))),
    }
}

/// Moves the ref, unless it has moved, and notes that it has.
#[expect(clippy::too_many_arguments, reason = "what was decided, for whom, and under what")]
pub(super) fn settle(
    repo: &Repo,
    transaction: &WriteTransaction<'_>,
    keys: &Keys,
    seen: &StoredState,
    decision: &Decision,
    target: &Target,
    commit: &Commit,
    request: &JoinRequest,
) -> Result<()> {
    if decision.settled {
        return Ok(());
    }
    if !has_moved(repo, decision)? {
        let who = repo.config.moved_by(request.commit.author.as_ref());
        let moved = advance(transaction, target, id(&decision.commit)?, commit, &who);
        if let Err(e) = moved
            && (!is_refusal(&e) || !has_moved(repo, decision)?)
        {
            // After an I/O error the move may have happened: the next finisher looks.
            if is_refusal(&e) {
                seen.swap(repo.storage(), keys, seen.reopened())?;
            }
            return Err(e);
        }
    }
    let settled = Decision { settled: true, ..decision.clone() };
    // An error here would say that nothing happened. If it stays unsaid, the ref and its log say it.
    if let Ok(Some(_)) = seen.swap(repo.storage(), keys, seen.deciding(settled)) {
        // No longer read, and long. What stays is swept.
        for rank in (0..).take(decision.shards.len()) {
            let _ = keys.rank(rank).and_then(|key| repo.storage().delete(&key));
        }
    }
    Ok(())
}

/// Whether the ref is at the commit, or has been.
pub(super) fn has_moved(repo: &Repo, decision: &Decision) -> Result<bool> {
    let commit = id(&decision.commit)?;
    let (at, log) = match &decision.branch {
        Some(branch) => {
            let name = RefName::branch(branch)?;
            (repo.refs().get(&name)?, name)
        }
        None => match repo.refs().head()? {
            Head::Detached(at) => (Some(at), RefName::HEAD),
            Head::Branch(_) => (None, RefName::HEAD),
        },
    };
    Ok(at == Some(commit) || repo.refs().reflog(&log)?.iter().any(|e| e.new == Some(commit)))
}

fn committed(repo: &Repo, id: Id, commit: Commit, decision: Decision) -> Committed {
    // What is told is what is there: a version that was pruned since has no report any more.
    let report = commit.report.and_then(|id| repo.odb().read(&id, Kind::Blob).ok());
    let report = report.and_then(|bytes| serde_json::from_slice::<Report>(&bytes).ok());
    Committed {
        id,
        branch: decision.branch,
        parent: commit.parents.first().copied(),
        summary: commit.summary,
        report: report.unwrap_or_default(),
        quality: None,
    }
}

/// Whether the ref cannot be moved to this commit, now or later: another writer has moved it, or it cannot be made.
fn is_refusal(e: &RepoError) -> bool {
    matches!(e.kind(), ErrorKind::Conflict | ErrorKind::User)
}

fn target(decision: &Decision) -> Result<Target> {
    let from = decision.from.as_deref().map(id).transpose()?;
    let head = decision.branch.clone().map(Head::Branch).or(from.map(Head::Detached));
    let head = head.ok_or_else(|| RepoError::corrupt("the state of a session", "it names no ref"))?;
    Ok(Target { head, tip: from, parent: from })
}
