//! Bodies of responses: from a decoded file, as far as it has come, or decoded for this one request. Neighbours: `respond` says which
//! bytes. It must not know headers.

use super::{
    cache::{Decoded, State},
    decoders::{PART, POUR},
    fill,
    overflow::produced,
};
use crate::{
    app::{App, work},
    problem::{Problem, Result},
};
use axum::body::Body;
use bytes::Bytes;
use futures_util::{Stream, StreamExt, stream};
use mdl_objects::{Entry, Mode};
use mdl_repo::{Repo, Silent};
use std::{os::unix::fs::FileExt, sync::Arc};
use tokio::task::JoinHandle;

/// Bytes read from a decoded file at a time.
const PIECE: u64 = 512 << 10;
/// Bytes decoded at a time for a part of a file: enough that segments on the border are a small share.
const CHUNK: u64 = 32 << 20;
/// Parts up to this length are decoded by themselves; for longer ones the whole file is.
const SMALL_PART: u64 = 64 << 20;
/// Files that are read at once.
const SMALL_FILE: u64 = 1 << 20;

/// Bytes `start..end` of a file.
///
/// # Errors
/// What can be known before the first byte: absent or damaged objects, the medium failed. Later failures cut the body off.
pub async fn of(app: &App, repo: &Arc<Repo>, entry: &Entry, start: u64, end: u64) -> Result<Body> {
    let len = end.saturating_sub(start);
    if len == 0 {
        return Ok(Body::empty());
    }
    if entry.mode == Mode::Blob && entry.size <= SMALL_FILE {
        return small(app, repo, entry, start, len).await;
    }
    let here = app.content().cache.get(entry).filter(|d| serves(d, start, len));
    if let Some(decoded) = here {
        app.metrics().cache_hits.inc();
        return file(app, decoded, start, end).await;
    }
    if len > SMALL_PART || len == entry.size {
        if let Some(decoded) = fill::decoded(app, repo, entry).await? {
            return file(app, decoded, start, end).await;
        }
        if len == entry.size {
            return Ok(counted(app, poured(app, repo, entry)));
        }
    }
    parts(app, repo, entry, start, end).await
}

/// Whether waiting for a file that is being decoded is better than decoding a part of it: when it is just about to get there.
fn serves(decoded: &Decoded, start: u64, len: u64) -> bool {
    match decoded.state() {
        State::Done => true,
        State::Partly(n) => n >= start || len > SMALL_PART,
        State::Failed(_) => false,
    }
}

fn counted<S>(app: &App, stream: S) -> Body
where
    S: Stream<Item = Result<Bytes>> + Send + 'static,
{
    let sent = app.metrics().sent.clone();
    Body::from_stream(stream.map(move |piece| match piece {
        Ok(bytes) => {
            sent.inc_by(bytes.len() as u64);
            Ok(bytes)
        }
        // The connection ends before all bytes came: that is how the client learns of it.
        Err(problem) => Err(std::io::Error::other(problem.message)),
    }))
}

async fn small(app: &App, repo: &Arc<Repo>, entry: &Entry, start: u64, len: u64) -> Result<Body> {
    let (repo, entry) = (repo.clone(), entry.clone());
    let bytes = work(move || Ok(repo.odb().read_range(&entry, start, len)?)).await?;
    app.metrics().sent.inc_by(bytes.len() as u64);
    Ok(Body::from(bytes))
}

type Reading = JoinHandle<std::io::Result<Bytes>>;

fn read(decoded: &Arc<Decoded>, at: u64, end: u64) -> Reading {
    let (decoded, len) = (decoded.clone(), (end - at).min(PIECE) as usize);
    tokio::task::spawn_blocking(move || {
        let mut buffer = vec![0; len];
        decoded.file.read_exact_at(&mut buffer, at)?;
        Ok(buffer.into())
    })
}

/// From a decoded file; the next piece is read while one is sent.
async fn file(app: &App, decoded: Arc<Decoded>, start: u64, end: u64) -> Result<Body> {
    decoded.reached((start + 1).min(end)).await?;
    let pieces = stream::try_unfold((start, None::<Reading>), move |(at, ahead)| {
        let decoded = decoded.clone();
        async move {
            if at >= end {
                return Ok(None);
            }
            let now = match ahead {
                Some(now) => now,
                None => {
                    decoded.reached((at + PIECE).min(end)).await?;
                    read(&decoded, at, end)
                }
            };
            let bytes = now.await.map_err(Problem::internal)?.map_err(Problem::internal)?;
            let next = at + bytes.len() as u64;
            let there = match decoded.state() {
                State::Done => true,
                State::Partly(n) => n >= (next + PIECE).min(end),
                State::Failed(_) => false,
            };
            let ahead = (next < end && there).then(|| read(&decoded, next, end));
            Ok::<_, Problem>(Some((bytes, (next, ahead))))
        }
    });
    Ok(counted(app, pieces))
}

/// A whole file for which the cache has no room.
fn poured(app: &App, repo: &Arc<Repo>, entry: &Entry) -> impl Stream<Item = Result<Bytes>> + Send + 'static {
    let (app, repo, entry) = (app.clone(), repo.clone(), entry.clone());
    stream::once(async move {
        let permit = app.content().decoders.permit(POUR).await;
        produced(app.content().overflow(), move |send| {
            let _permit = permit;
            repo.odb()
                .pour(&entry, &Silent, &mut |bytes| send(Bytes::copy_from_slice(bytes)))?;
            Ok(())
        })
    })
    .flatten()
}

/// A part of a file, decoded by itself.
async fn parts(app: &App, repo: &Arc<Repo>, entry: &Entry, start: u64, end: u64) -> Result<Body> {
    let decoders = app.content().decoders.clone();
    let one = move |repo: Arc<Repo>, entry: Entry, at: u64| {
        let decoders = decoders.clone();
        async move {
            let permit = decoders.permit(PART).await;
            work(move || {
                let _permit = permit;
                Ok(Bytes::from(repo.odb().read_range(&entry, at, (end - at).min(CHUNK))?))
            })
            .await
        }
    };
    // The first is decoded before the response begins: then what is wrong can still be said.
    let first = one(repo.clone(), entry.clone(), start).await?;
    let next = start + first.len() as u64;
    if next >= end {
        app.metrics().sent.inc_by(first.len() as u64);
        return Ok(Body::from(first));
    }
    let (repo, entry) = (repo.clone(), entry.clone());
    let rest = stream::try_unfold(next, move |at| {
        let decode = (at < end).then(|| one(repo.clone(), entry.clone(), at));
        async move {
            let Some(decode) = decode else { return Ok(None) };
            let bytes = decode.await?;
            if bytes.is_empty() {
                return Err(Problem::internal("a file is shorter than it says"));
            }
            let next = at + bytes.len() as u64;
            Ok(Some((bytes, next)))
        }
    });
    Ok(counted(app, stream::iter([Ok(first)]).chain(rest)))
}
