//! Lists sessions and how far each is.

use crate::{
    repo::Repo,
    shards::{
        Keys, SHARDS, parts,
        record::Record,
        state::{Decision, StoredState, id},
    },
};
use mdl_objects::Id;
use mdl_store::Result;
use std::collections::BTreeMap;

/// A session of a sharded commit.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Session {
    /// Its name.
    pub name: String,
    /// Ranks that have put, or that were joined.
    pub ranks: Vec<u32>,
    /// Files that they have put; of a finished session, those of the version.
    pub files: u64,
    /// Sum of the files' lengths.
    pub logical_bytes: u64,
    /// Encoded bytes that storing them added.
    pub stored_bytes: u64,
    /// When the last of them was put, or the version was made: milliseconds since 1970.
    pub time_ms: Option<i64>,
    /// The commit that it became.
    pub commit: Option<Id>,
}

/// The sessions that `gc` has not swept yet, by name.
pub fn sessions(repo: &Repo) -> Result<Vec<Session>> {
    let mut found: BTreeMap<String, Vec<u32>> = BTreeMap::new();
    for key in repo.storage().keys(&SHARDS)? {
        if let Some((session, name)) = parts(&key) {
            found.entry(session).or_default().extend(name.parse::<u32>().ok());
        }
    }
    found.into_iter().map(|(name, ranks)| session(repo, name, ranks)).collect()
}

fn session(repo: &Repo, name: String, mut ranks: Vec<u32>) -> Result<Session> {
    let keys = Keys::for_session(&name)?;
    if let Some(decided) = StoredState::read(repo.storage(), &keys)?.state.decided {
        return finished(repo, name, &decided);
    }
    ranks.sort_unstable();
    let mut session = Session { name, ..Session::default() };
    for rank in ranks {
        // One that is gone was joined or swept meanwhile.
        let Some((record, _)) = Record::read(repo.storage(), &keys, rank)? else {
            continue;
        };
        session.ranks.push(rank);
        session.files += record.files.len() as u64;
        session.logical_bytes += record.logical_bytes;
        session.stored_bytes += record.stored_bytes;
        session.time_ms = session.time_ms.max(Some(record.time_ms));
    }
    Ok(session)
}

fn finished(repo: &Repo, name: String, decided: &Decision) -> Result<Session> {
    let commit = id(&decided.commit)?;
    // Deleted since, and collected, or not: that the session is finished stays true.
    let found = repo.odb().commit(&commit).ok();
    let summary = found.as_ref().map(|c| c.summary).unwrap_or_default();
    Ok(Session {
        name,
        ranks: (0..).take(decided.shards.len()).collect(),
        files: summary.files,
        logical_bytes: summary.logical_bytes,
        stored_bytes: summary.stored_bytes,
        time_ms: found.map(|c| c.author.time_ms),
        commit: Some(commit),
    })
}
