//! Updates refs at the end of a transfer, once everything they reach is seen to be there.

use crate::sync::{WHAT, marks::unmark};
use mdl_objects::{Commit, Id, Kind, Signature};
use mdl_repo::{
    Level, Repo, age_arrived, check_notes, history, move_ref, peel, pruned,
    pruned::{lacks_contents, with_tree},
    reaches,
};
use mdl_store::{
    Progress, RepoError, Result,
    object_db::references,
    progress::go_on,
    refs::{HEADS, NOTES, REMOTES, RefName, TAGS},
    transaction::WriteTransaction,
};
use serde::Serialize;
use std::collections::HashSet;

/// A ref that is to move.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct RefMove {
    /// Full name: a branch, a tag, or `refs/remotes/...`.
    pub name: String,
    /// The value it must have now; none: it does not exist.
    pub expected: Option<Id>,
    /// Its new value; none: it is deleted.
    pub new: Option<Id>,
    /// Whether what it held may be left behind: without it a branch moves only forward, and a tag not at all.
    pub force: bool,
}

/// Refuses tips whose history or contents are not all here. What refs reach already is taken for whole.
///
/// `partial`: contents may be absent, commits may not.
pub fn check_connected(repo: &Repo, tips: &[Id], partial: bool, progress: &dyn Progress) -> Result<()> {
    revived_by(repo, tips, partial, progress).map(drop)
}

/// As `check_connected`. Returns the versions that came to life again: on record as pruned, reached by no ref, and
/// their contents are here all the same.
fn revived_by(repo: &Repo, tips: &[Id], partial: bool, progress: &dyn Progress) -> Result<Vec<Id>> {
    let mut revived = Vec::new();
    let held = held_commits(repo)?;
    let pruned = pruned(repo)?;
    let (mut seen, mut walked) = (HashSet::new(), HashSet::new());
    let mut stack = tips.iter().map(|tip| peel(repo, tip)).collect::<Result<Vec<_>>>()?;
    while let Some(id) = stack.pop() {
        if held.contains(&id) || !seen.insert(id) {
            continue;
        }
        go_on(progress, WHAT)?;
        repo.odb().find(&id, Kind::Commit)?;
        let commit = repo.odb().commit(&id)?;
        stack.extend_from_slice(&commit.parents);
        if pruned.get(&id).is_some() && lacks_contents(repo, &id)? {
            continue;
        }
        if Level::ALL.iter().any(|level| pruned.at(*level, &id).is_some()) {
            revived.push(id);
        }
        if !partial {
            let tree = pruned.standing_tree(repo.odb(), &id, &commit)?;
            find_contents(repo, &with_tree(commit, tree), &mut walked)?;
        }
    }
    Ok(revived)
}

/// Commits that refs reach.
pub(super) fn held_commits(repo: &Repo) -> Result<HashSet<Id>> {
    let mut starts = Vec::new();
    for (_, id) in repo.refs().list("refs/")? {
        // A policy's text is no commit.
        starts.extend(peel(repo, &id).ok());
    }
    history(repo, &starts)?.map(|step| step.map(|s| s.id)).collect()
}

/// Which of these commits refs reach: all that they need is here, but for what was pruned.
pub fn held_of(repo: &Repo, commits: &[Id]) -> Result<HashSet<Id>> {
    repo.odb().refresh();
    let held = held_commits(repo)?;
    Ok(commits.iter().filter(|id| held.contains(*id)).copied().collect())
}

/// Looks up all that a commit holds, and was not walked before as an object of that kind.
fn find_contents(repo: &Repo, commit: &Commit, walked: &mut HashSet<(Id, Kind)>) -> Result<()> {
    let mut stack: Vec<(Id, Kind)> = commit.contents().collect();
    while let Some((id, kind)) = stack.pop() {
        if !walked.insert((id, kind)) {
            continue;
        }
        match kind {
            Kind::Tree | Kind::Manifest => stack.extend(references(kind, &id, &repo.odb().read(&id, kind)?)?),
            _ => drop(repo.odb().find(&id, kind)?),
        }
    }
    Ok(())
}

/// Moves refs, one after the other, to what has arrived. Returns what became of each.
///
/// # Errors
/// Something that they are to hold is not all here: then none was moved. For each ref: `Conflict` where it stands
/// elsewhere; a move that is not forward and not forced; a bad name; an I/O error.
pub fn receive_refs(
    repo: &Repo,
    moves: &[RefMove],
    partial: bool,
    who: Option<&Signature>,
    message: &str,
    progress: &dyn Progress,
) -> Result<Vec<Result<()>>> {
    // One time of keeping collectors out for the look and the moves.
    let transaction = WriteTransaction::begin(repo)?;
    let tips: Vec<Id> = moves.iter().filter_map(|m| m.new).collect();
    transaction.pin(tips.iter().copied())?;
    let whole = revived_by(repo, &tips, partial, progress)?;
    unmark(repo, &transaction, &whole)?;
    let done: Vec<Result<()>> = moves.iter().map(|m| receive_ref(repo, &transaction, m, who, message)).collect();
    for (m, _) in moves.iter().zip(&done).filter(|(_, done)| done.is_ok()) {
        if let Some(new) = m.new.filter(|_| m.name.starts_with(HEADS) || m.name.starts_with(REMOTES)) {
            // The refs have moved; what cannot be noted now is noted with the next move.
            let _ = age_arrived(repo, &transaction, new);
        }
    }
    Ok(done)
}

fn receive_ref(
    repo: &Repo,
    transaction: &WriteTransaction<'_>,
    m: &RefMove,
    who: Option<&Signature>,
    message: &str,
) -> Result<()> {
    let name = RefName::parse(&m.name)?;
    let found = repo.refs().get(&name)?;
    if found == m.new {
        // A lost answer, asked for again; or another client pushed the same.
        return Ok(());
    }
    if found != m.expected {
        return Err(RepoError::Conflict { name: m.name.clone(), expected: m.expected, found });
    }
    if let (Some(old), Some(new), false) = (found, m.new, m.force)
        && let Some(loss) = loss(repo, &m.name, old, new, "exists")?
    {
        return Err(loss);
    }
    if name == RefName::parse(NOTES)? {
        // Whatever they are, readers of versions will read them.
        m.new.iter().try_for_each(|id| check_notes(repo, id))?;
    }
    if name.starts_with(REMOTES) || name == RefName::parse(NOTES)? {
        let who = repo.config().moved_by(who);
        return transaction.update_ref(&name, m.expected, m.new, &who, message);
    }
    move_ref(repo, &m.name, m.expected, m.new, who.cloned(), message)
}

/// Why a ref may not move so without force: a tag never, a branch only forward. `exists` says where the tag is.
pub(crate) fn loss(repo: &Repo, name: &str, old: Id, new: Id, exists: &str) -> Result<Option<RepoError>> {
    if let Some(tag) = name.strip_prefix(TAGS) {
        let message = format!("tag {tag} {exists} and is another");
        return Ok(Some(RepoError::user(message, "tags do not move unless forced")));
    }
    if repo.odb().has(&old)? && reaches(repo, &new, &old)? {
        return Ok(None);
    }
    let short = name.strip_prefix(HEADS).or(name.strip_prefix(REMOTES)).unwrap_or(name);
    Ok(Some(RepoError::NotForward { name: short.to_owned(), old, new }))
}
