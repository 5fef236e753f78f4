//! Notes on versions, sent and received: two places' notes become one, key by key.
//!
//! Notes go with every fetch, clone and push. They are no branch: both sides may have added some, and neither is to
//! wait for the other. So what the other side has is fetched and taken in here, and what comes of it is sent, by
//! compare-and-swap with what was seen there; who loses begins anew.

use crate::{
    fetch::receive,
    peer::{Advertised, Peer},
    push::{Push, push},
    sync::Want,
};
use mdl_objects::Id;
use mdl_repo::{NOTES, Progress, RefName, Repo, RepoError, Result, merge_notes};

/// How often a push is tried anew because notes were added there meanwhile.
const TRIES: usize = 16;

fn here(repo: &Repo) -> Result<Option<Id>> {
    repo.refs().get(&RefName::parse(NOTES)?)
}

/// Fetches the notes there and takes them in. Returns whether the notes here changed.
///
/// # Errors
/// The other side cannot be reached; its notes are damaged; an I/O error.
pub fn fetch_notes(repo: &Repo, peer: &dyn Peer, there: &Advertised, progress: &dyn Progress) -> Result<bool> {
    let before = here(repo)?;
    let Some(theirs) = there.get(NOTES).filter(|id| Some(*id) != before) else { return Ok(false) };
    receive(repo, peer, Want { tips: vec![theirs], ..Want::default() }, progress)?;
    Ok(Some(merge_notes(repo, &theirs)?) != before)
}

/// Sends the notes here, with what is there taken in before. Returns whether the notes there changed.
///
/// # Errors
/// As [`fetch_notes`]; the other side takes no notes, or they were changed there again and again.
pub fn push_notes(repo: &Repo, peer: &dyn Peer, progress: &dyn Progress) -> Result<bool> {
    if here(repo)?.is_none() {
        return Ok(false);
    }
    for tries in 1..=TRIES {
        let there = peer.refs()?;
        fetch_notes(repo, peer, &there, progress)?;
        let (new, theirs) = (here(repo)?, there.get(NOTES));
        if new == theirs {
            return Ok(false);
        }
        let wanted = Push { name: NOTES.to_owned(), new, force: true, lease: Some(theirs) };
        let outcomes = push(repo, peer, &[wanted], "notes", progress)?.refs;
        match outcomes.into_iter().next().map_or(Ok(()), |(_, outcome)| outcome) {
            Err(RepoError::Conflict { .. }) if tries < TRIES => {}
            done => return done.map(|()| true),
        }
    }
    Err(RepoError::Overtaken)
}
