//! Sweeps old sessions: records keep what they name for the time of grace, and then go, whether they were joined or
//! not.

use crate::shards::{Keys, SHARDS, STATE, parts, record::Record};
use mdl_store::{
    ErrorKind, Result,
    reachability::Root,
    storage::{Key, Storage},
};
use std::{collections::BTreeMap, time::SystemTime};

/// A session's keys, and when each was written.
type Sessions = BTreeMap<String, Vec<(Key, SystemTime)>>;

fn sessions(storage: &dyn Storage) -> Result<Sessions> {
    let mut sessions = Sessions::new();
    for stored in storage.list(&SHARDS)? {
        if let Some((session, _)) = parts(&stored.key) {
            sessions.entry(session).or_default().push((stored.key, stored.modified));
        }
    }
    Ok(sessions)
}

fn is_over(keys: &[(Key, SystemTime)], horizon: SystemTime) -> bool {
    keys.iter().all(|(_, modified)| *modified <= horizon)
}

/// Ids that the records of sessions keep alive, those that `sweep` leaves.
///
/// # Errors
/// A record that a newer program wrote; an I/O error. One that is damaged cannot be joined, and holds nothing.
pub(crate) fn roots(storage: &dyn Storage, horizon: SystemTime) -> Result<Vec<Root>> {
    let mut roots = Vec::new();
    for (session, keys) in sessions(storage)? {
        if is_over(&keys, horizon) {
            continue;
        }
        // What no session can be called cannot be joined.
        let Ok(session_keys) = Keys::for_session(&session) else {
            continue;
        };
        let ranks = keys.iter().filter_map(|(key, _)| parts(key)?.1.parse::<u32>().ok());
        for rank in ranks {
            let record = match Record::read(storage, &session_keys, rank) {
                Err(e) if e.kind() == ErrorKind::Corrupt => None,
                read => read?,
            };
            let ids = record.iter().flat_map(|(record, _)| record.objects());
            roots.extend(ids.map(|id| Root::noted(format!("rank {rank} of session {session}"), id)));
        }
    }
    Ok(roots)
}

/// Deletes the keys of sessions none of which was written after `horizon`; returns how many keys. `dry_run` only
/// counts.
pub(crate) fn sweep(storage: &dyn Storage, horizon: SystemTime, dry_run: bool) -> Result<u64> {
    let mut swept = 0;
    for mut keys in sessions(storage)?.into_values() {
        if !is_over(&keys, horizon) {
            continue;
        }
        // The state that says "finished" goes last: cut off in between, the session is not taken for an unfinished one.
        keys.sort_by_key(|(key, _)| parts(key).is_some_and(|(_, name)| name == STATE));
        for (key, _) in keys {
            swept += 1;
            if !dry_run {
                storage.delete(&key)?;
            }
        }
    }
    Ok(swept)
}
