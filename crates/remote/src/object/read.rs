//! Range reads: through the block cache where a key never changes and the range is short, straight from the store
//! otherwise.

use super::{
    blocks::{Ask, BLOCK, Blocks},
    bucket::Bucket,
};
use crate::runtime::block_on;
use bytes::Bytes;
use futures_util::{StreamExt, TryStreamExt, stream};
use mdl_repo::{RepoError, Result};
use std::{ops::Range, sync::Arc};

/// Above this a range is not cached: it would push out what is asked for again.
const SHORT: u64 = 4 * BLOCK;

/// Bytes that one request asks for; longer ranges are asked for in pieces, some at a time.
const PIECE: u64 = 8 << 20;
const AT_ONCE: usize = 8;

/// Where names are hashes of the contents.
pub(super) fn immutable(key: &str) -> bool {
    key.starts_with("packs/")
}

fn short(key: &str) -> RepoError {
    RepoError::corrupt(key, "shorter than it should be")
}

fn end_of(key: &str, offset: u64, buf: &[u8]) -> Result<u64> {
    offset.checked_add(buf.len() as u64).ok_or_else(|| short(key))
}

/// Fills `buf` from `offset` of a value that is here.
pub(super) fn within(key: &str, value: &[u8], offset: u64, buf: &mut [u8]) -> Result<()> {
    let range = usize::try_from(offset).ok().and_then(|o| value.get(o..o.checked_add(buf.len())?));
    buf.copy_from_slice(range.ok_or_else(|| short(key))?);
    Ok(())
}

/// Fills `buf` from `offset` of an object, past the cache.
pub(super) fn straight(bucket: &Bucket, key: &str, offset: u64, buf: &mut [u8]) -> Result<()> {
    let end = end_of(key, offset, buf)?;
    let (from, owned) = (bucket.clone(), key.to_owned());
    let pieces = block_on(async move { fetch(&from, &owned, offset..end).await })??;
    let mut rest = buf;
    for piece in pieces {
        let (now, later) = rest.split_at_mut_checked(piece.len()).ok_or_else(|| short(key))?;
        now.copy_from_slice(&piece);
        rest = later;
    }
    if rest.is_empty() { Ok(()) } else { Err(short(key)) }
}

async fn fetch(bucket: &Bucket, key: &str, range: Range<u64>) -> Result<Vec<Bytes>> {
    let starts = stream::iter((range.start..range.end).step_by(PIECE as usize));
    let asked = starts.map(|start| async move {
        let wanted = start..range.end.min(start.saturating_add(PIECE));
        let bytes = bucket.range(key, wanted.clone()).await?;
        // A short one in the middle would move all that follow.
        if bytes.len() as u64 == wanted.end - wanted.start { Ok(bytes) } else { Err(short(key)) }
    });
    asked.buffered(AT_ONCE).try_collect().await
}

/// Fills `buf` from `offset` of an object that never changes: through the cache, unless the range is long.
pub(super) fn cached(bucket: &Bucket, blocks: &Blocks, key: &str, offset: u64, buf: &mut [u8]) -> Result<()> {
    let end = end_of(key, offset, buf)?;
    if end - offset > SHORT {
        return straight(bucket, key, offset, buf);
    }
    let name: Arc<str> = key.into();
    let mut at = offset;
    while at < end {
        let first = at / BLOCK;
        let parts = match blocks.ask(&name, first..end.div_ceil(BLOCK)) {
            Ask::Have(bytes) => vec![bytes],
            Ask::Fetch(fetch) => {
                let (from, owned) = (bucket.clone(), key.to_owned());
                let range = fetch.range.start * BLOCK..fetch.range.end.saturating_mul(BLOCK);
                fetch.finish(&block_on(async move { from.range(&owned, range).await })??)
            }
        };
        let before = at;
        for (number, part) in (first..).zip(&parts) {
            at += copy(part, at - number * BLOCK, &mut buf[(at - offset) as usize..]);
            if at < (number + 1).saturating_mul(BLOCK) {
                break;
            }
        }
        if at == before {
            return Err(short(key));
        }
    }
    Ok(())
}

/// Copies what a block has from `from` on; returns how much that was.
fn copy(block: &[u8], from: u64, to: &mut [u8]) -> u64 {
    let there = block.get(from as usize..).unwrap_or_default();
    let n = there.len().min(to.len());
    to[..n].copy_from_slice(&there[..n]);
    n as u64
}
