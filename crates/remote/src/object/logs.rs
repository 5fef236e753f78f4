//! Append logs in a bucket: one object per append, beside a base.
//!
//! The pieces of `logs/X` are `logs/X.d/TIME-NONCE`; a log is its base, then its pieces in the order of their names.
//! TIME is milliseconds in hex, later than that of every piece which was there before: a clock that is behind must not
//! put a move before the one it follows.

use super::{
    bucket::{Bucket, fresh_nonce},
    failure::failed,
    swap,
};
use bytes::Bytes;
use futures_util::{StreamExt, TryStreamExt, stream};
use mdl_repo::{
    RepoError, Result,
    storage::{Key, MAX_VALUE, Prefix, StoredKey, Swap, too_large},
};
use object_store::ObjectMeta;
use std::{
    collections::BTreeMap,
    io,
    time::{Duration, SystemTime, UNIX_EPOCH},
};

/// Below this prefix a key may be appended to.
const LOGS: &str = "logs/";
/// Pieces that are asked for at once.
const AT_ONCE: usize = 16;
/// How often a log is read again whose pieces were replaced meanwhile.
const TRIES: usize = 8;

pub(super) fn is_log(key: &str) -> bool {
    key.starts_with(LOGS)
}

fn folder(key: &str) -> String {
    format!("{key}.d/")
}

/// The time of a piece, by the last part of its name.
fn time_of(name: &str) -> Option<u64> {
    let (time, nonce) = name.split_once('-')?;
    let hex = |s: &str, n| s.len() == n && s.bytes().all(|b| b.is_ascii_hexdigit());
    (hex(time, 16) && hex(nonce, 32)).then(|| u64::from_str_radix(time, 16).ok())?
}

/// The log that an object belongs to, if it is a piece.
fn log_of(key: &str) -> Option<&str> {
    let (folder, name) = key.rsplit_once('/')?;
    time_of(name)?;
    folder.strip_suffix(".d").filter(|log| is_log(log))
}

/// The pieces of a log, in order, and how long they are together.
async fn pieces(bucket: &Bucket, key: &str) -> Result<(Vec<String>, u64)> {
    let mut listed = bucket.objects(&folder(key)).await?;
    listed.retain(|(k, _)| log_of(k) == Some(key));
    let len = listed.iter().map(|(_, meta)| meta.size).sum();
    let mut keys: Vec<String> = listed.into_iter().map(|(k, _)| k).collect();
    keys.sort();
    Ok((keys, len))
}

/// A later time than that of every piece; asks only for those that claim to be from the future.
async fn next_time(bucket: &Bucket, key: &str) -> Result<u64> {
    let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    let now = u64::try_from(now.as_millis()).unwrap_or(u64::MAX);
    let (all, offset) = (bucket.path(&folder(key))?, bucket.path(&format!("{}{now:016x}", folder(key)))?);
    let later: Vec<ObjectMeta> = bucket
        .store
        .list_with_offset(Some(&all), &offset)
        .try_collect()
        .await
        .map_err(|e| failed("list", &bucket.at(&folder(key)), &e))?;
    let latest = later.iter().filter_map(|m| time_of(m.location.filename()?)).max();
    Ok(latest.map_or(now, |t| now.max(t.saturating_add(1))))
}

pub(super) async fn append(bucket: &Bucket, key: &str, bytes: Bytes) -> Result<()> {
    if !is_log(key) {
        let refusal = io::Error::new(io::ErrorKind::InvalidInput, "only a log can be appended to");
        return Err(RepoError::io(format!("cannot append to {}", bucket.at(key)))(refusal));
    }
    let time = next_time(bucket, key).await?;
    let piece = format!("{}{time:016x}-{}", folder(key), fresh_nonce()?);
    bucket.put(&piece, bytes).await
}

/// A log as it was read.
struct Log {
    base: Option<Bytes>,
    pieces: Vec<String>,
    joined: Option<Vec<u8>>,
}

/// The base and the pieces, joined; together they have at most so many bytes.
pub(super) async fn get(bucket: &Bucket, key: &str, most: u64) -> Result<Option<Vec<u8>>> {
    Ok(read(bucket, key, most).await?.joined)
}

async fn read(bucket: &Bucket, key: &str, most: u64) -> Result<Log> {
    for _ in 0..TRIES {
        // Pieces first: were the base read before, and both replaced between, the log would seem empty.
        let (pieces, len) = pieces(bucket, key).await?;
        let left = most.checked_sub(len).ok_or_else(|| too_large(key, most))?;
        let base = swap::live_within(bucket, key, left).await?;
        let each = stream::iter(pieces.clone()).map(|name| async move { bucket.value_within(&name, most).await });
        let each: Vec<_> = each.buffered(AT_ONCE).try_collect().await?;
        // A piece deleted since the listing went into a new base.
        if each.iter().all(Option::is_some) {
            let is_there = base.is_some() || !pieces.is_empty();
            let all = base.clone().into_iter().chain(each.into_iter().flatten().map(|v| v.bytes));
            let joined = is_there.then(|| all.flatten().collect());
            return Ok(Log { base, pieces, joined });
        }
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    let busy = io::Error::new(io::ErrorKind::WouldBlock, "it is replaced again and again");
    Err(RepoError::io(format!("cannot read {}", bucket.at(key)))(busy))
}

/// Sets the base, then removes the pieces that were there before. A reader between the two finds both.
pub(super) async fn replace(bucket: &Bucket, key: &str, bytes: Bytes) -> Result<()> {
    let (old, _) = pieces(bucket, key).await?;
    bucket.put(key, bytes).await?;
    remove_all(bucket, old).await
}

/// Replaces all of a log by a new base, if the log is `expected`. What is appended meanwhile stays, after the base. A
/// kill leaves the new base and the old pieces: lines twice, none less.
pub(super) async fn swap(bucket: &Bucket, key: &str, expected: Option<Bytes>, new: Option<Bytes>) -> Result<Swap> {
    let log = read(bucket, key, MAX_VALUE).await?;
    if log.joined.as_deref() != expected.as_deref() {
        return Ok(Swap::Lost(log.joined));
    }
    if let Swap::Lost(_) = swap::swap(bucket, key, log.base, new).await? {
        return Ok(Swap::Lost(get(bucket, key, MAX_VALUE).await?));
    }
    remove_all(bucket, log.pieces).await?;
    Ok(Swap::Done)
}

/// Removes the base and the pieces.
pub(super) async fn delete(bucket: &Bucket, key: &str) -> Result<()> {
    let (old, _) = pieces(bucket, key).await?;
    // Cut off here, an older log is left, and deleting again finishes.
    remove_all(bucket, old).await?;
    bucket.remove(key).await
}

async fn remove_all(bucket: &Bucket, keys: Vec<String>) -> Result<()> {
    let each = stream::iter(keys).map(|key| async move { bucket.remove(&key).await });
    each.buffer_unordered(AT_ONCE).try_collect().await
}

/// A listing with each log as one key below `prefix`, sorted.
pub(super) fn joined(prefix: &Prefix, listed: Vec<StoredKey>) -> Vec<StoredKey> {
    let mut out: BTreeMap<Key, StoredKey> = BTreeMap::new();
    for mut stored in listed {
        if let Some(log) = log_of(&stored.key).and_then(|log| Key::parse(log).ok()) {
            stored.key = log;
        }
        if !stored.key.starts_with(prefix.as_str()) {
            continue;
        }
        let entry = out.entry(stored.key.clone()).or_insert_with(|| StoredKey { size: 0, ..stored.clone() });
        entry.size += stored.size;
        entry.modified = entry.modified.max(stored.modified);
    }
    out.into_values().collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_pieces_belong_to_a_log() {
        let nonce = "0".repeat(32);
        assert_eq!(log_of(&format!("logs/a.d/{:016x}-{nonce}", 7)), Some("logs/a"));
        for key in ["logs/a", "logs/a.d/x", "logs/a.d/7-0"] {
            assert_eq!(log_of(key), None, "{key}");
        }
        assert_eq!(log_of(&format!("refs/a.d/{:016x}-{nonce}", 7)), None);
    }
}
