//! Takes away what sessions leave: records that are older than the time of grace, whether they were joined or not. Neighbours:
//! `gc` calls it before it deletes a pack. It must not know what a record says.

use super::{SHARDS, STATE, parts};
use crate::{
    Result,
    storage::{Key, Storage},
};
use std::{collections::BTreeMap, time::SystemTime};

/// Deletes the keys of sessions none of which was written after `horizon`; returns how many keys. `dry_run` only counts.
///
/// # Errors
/// The medium failed.
pub(crate) fn sweep(storage: &dyn Storage, horizon: SystemTime, dry_run: bool) -> Result<u64> {
    let mut sessions: BTreeMap<String, Vec<(Key, SystemTime)>> = BTreeMap::new();
    for stored in storage.list(&SHARDS)? {
        if let Some((session, _)) = parts(&stored.key) {
            sessions.entry(session).or_default().push((stored.key, stored.modified));
        }
    }
    let mut swept = 0;
    for mut keys in sessions.into_values() {
        if keys.iter().any(|(_, modified)| *modified > horizon) {
            continue;
        }
        // What says that the session is finished goes last: cut off in between, nobody takes it for one that is not.
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
