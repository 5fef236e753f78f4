//! Response bodies of stored files: streamed from the cache, also while it is filled, or decoded for this one request.

use crate::{
    app::{App, work},
    content::{
        Reader,
        cache::{Decoded, Failure, State},
        decoders::{PART, Permit, STREAM_UNITS},
        disk_buffer::{Sink, body_from_producer},
        fill,
    },
    problem::{Problem, Result},
    tasks::fair::Party,
};
use axum::body::Body;
use bytes::Bytes;
use futures_util::{Stream, StreamExt, TryStreamExt, stream};
use mdl_objects::{Entry, Mode};
use mdl_repo::Silent;
use std::{io, os::unix::fs::FileExt, pin::Pin, sync::Arc};
use tokio::task::JoinHandle;

/// Bytes read from a decoded file at a time.
const PIECE: u64 = 512 << 10;
/// Bytes decoded at a time for a part of a file: enough that segments on the border are a small share.
const CHUNK: u64 = 32 << 20;
/// Parts up to this length are decoded by themselves; for longer ones the whole file is.
const SMALL_PART: u64 = 64 << 20;
/// Files and parts that are read at once.
const SMALL: u64 = 1 << 20;

type Pieces = Pin<Box<dyn Stream<Item = Result<Bytes>> + Send>>;

/// Bytes `start..end` of a file. Fails with what can be known before the first byte: absent or damaged objects, I/O
/// errors, too many that wait. Later failures cut the body off.
pub async fn from_range(reader: &Reader, entry: &Entry, start: u64, end: u64) -> Result<Body> {
    let (app, len) = (&reader.app, end.saturating_sub(start));
    if len == 0 {
        return Ok(Body::empty());
    }
    if entry.mode == Mode::Blob && entry.size <= SMALL {
        return small(reader, entry, start, len, None).await;
    }
    let part = Part { reader: reader.clone(), entry: entry.clone(), end };
    let here = app.content().cache.get(entry).filter(|d| serves(d, start, len));
    if let Some(decoded) = here {
        app.metrics().cache_hits.inc();
        if let Some(body) = part.clone().read_file(decoded, start).await? {
            return Ok(body);
        }
    }
    if len > SMALL_PART || len == entry.size {
        if let Some(decoded) = fill::decoded(reader, entry).await?
            && let Some(body) = part.clone().read_file(decoded, start).await?
        {
            return Ok(body);
        }
        if len == entry.size {
            let (repo, entry) = (reader.repo.clone(), entry.clone());
            let make = move |sink: Sink<'_>| Ok(repo.odb().stream_files(&entry, &Silent, sink)?);
            return stream_body(app, &reader.party, len, STREAM_UNITS, make).await;
        }
    }
    if len <= SMALL {
        let permit = app.content().decoders.permit(&reader.party, PART).await?;
        return small(reader, entry, start, len, Some(permit)).await;
    }
    begun(app, part.decoded(start), len).await
}

/// A body of `len` bytes, which `make` hands to its sink while it holds `units` of memory for a client. Fails with what
/// `make` runs into before its first bytes, or where too many wait for memory (503).
pub async fn stream_body<F>(app: &App, party: &Party, len: u64, units: u32, make: F) -> Result<Body>
where
    F: FnOnce(Sink<'_>) -> Result<()> + Send + 'static,
{
    let permit = app.content().decoders.permit(party, units).await?;
    let pieces = body_from_producer(&app.content().disk_buffer, party, move |sink| {
        let _permit = permit;
        make(sink)
    });
    begun(app, Box::pin(pieces), len).await
}

/// Waits for the first piece before the response starts: until then an error can still have a status. A later
/// error cuts the body off: the last piece is held back until all was made, so that a complete body is right.
async fn begun(app: &App, mut pieces: Pieces, len: u64) -> Result<Body> {
    let first = match pieces.next().await {
        Some(first) => first?,
        None if len == 0 => return Ok(Body::empty()),
        None => return Err(Problem::internal("nothing was made")),
    };
    let state = Sending { pieces, held: Some(first), left: len };
    Ok(counted(app, stream::try_unfold(state, Sending::next)))
}

struct Sending {
    pieces: Pieces,
    held: Option<Bytes>,
    left: u64,
}

impl Sending {
    async fn next(mut self) -> Result<Option<(Bytes, Sending)>> {
        let Some(now) = self.held.take() else { return Ok(None) };
        let wrong = || Problem::internal("a body has not the length that was promised");
        self.left = self.left.checked_sub(now.len() as u64).ok_or_else(wrong)?;
        self.held = self.pieces.next().await.transpose()?;
        if self.held.is_none() && self.left > 0 {
            return Err(wrong());
        }
        Ok(Some((now, self)))
    }
}

/// Returns whether to wait for a file that is being decoded instead of decoding a range of it: if it is almost there.
fn serves(decoded: &Decoded, start: u64, len: u64) -> bool {
    match decoded.state() {
        State::Done => true,
        State::Partly(n) => n >= start || len > SMALL_PART,
        State::Waiting | State::Failed(_) => false,
    }
}

fn counted(app: &App, stream: impl Stream<Item = Result<Bytes>> + Send + 'static) -> Body {
    let sent = app.metrics().sent.clone();
    let counted = stream.inspect_ok(move |bytes| {
        sent.inc_by(bytes.len() as u64);
    });
    // The connection ends before all bytes came: that is how the client learns of an error.
    Body::from_stream(counted.map_err(|problem| io::Error::other(problem.message)))
}

async fn small(reader: &Reader, entry: &Entry, start: u64, len: u64, permit: Option<Permit>) -> Result<Body> {
    let (repo, entry) = (reader.repo.clone(), entry.clone());
    let bytes = work(move || {
        let _permit = permit;
        Ok(repo.odb().read_range(&entry, start, len)?)
    })
    .await?;
    reader.app.metrics().sent.inc_by(bytes.len() as u64);
    Ok(Body::from(bytes))
}

/// A piece that is being read.
type Reading = JoinHandle<io::Result<Bytes>>;

fn read(decoded: &Arc<Decoded>, at: u64, end: u64) -> Reading {
    let (decoded, len) = (decoded.clone(), (end - at).min(PIECE) as usize);
    tokio::task::spawn_blocking(move || {
        let mut buffer = vec![0; len];
        decoded.file.read_exact_at(&mut buffer, at)?;
        Ok(buffer.into())
    })
}

/// What is left to send of a decoded file.
enum Left {
    /// From this byte on; the next piece may be being read already.
    File(u64, Option<Reading>),
    /// The disk cache failed: the rest is decoded for this request by itself.
    Decoded(Pieces),
}

/// Bytes of a file up to an end, for one request.
#[derive(Clone)]
struct Part {
    reader: Reader,
    entry: Entry,
    end: u64,
}

impl Part {
    /// From a decoded file; none: the disk failed before its first byte was there.
    async fn read_file(self, decoded: Arc<Decoded>, start: u64) -> Result<Option<Body>> {
        match decoded.reached((start + 1).min(self.end)).await {
            Ok(()) => {}
            Err(Failure::Disk) => return Ok(None),
            Err(failure) => return Err(failure.into()),
        }
        let app = self.reader.app.clone();
        let pieces = stream::try_unfold(Left::File(start, None), move |left| {
            let (part, decoded) = (self.clone(), decoded.clone());
            async move {
                let mut pieces = match left {
                    Left::File(at, _) if at >= part.end => return Ok(None),
                    Left::File(at, ahead) => match piece(&decoded, at, part.end, ahead).await {
                        Ok((bytes, ahead)) => {
                            let next = at + bytes.len() as u64;
                            return Ok(Some((bytes, Left::File(next, ahead))));
                        }
                        Err(Failure::Disk) => part.decoded(at),
                        Err(failure) => return Err(failure.into()),
                    },
                    Left::Decoded(pieces) => pieces,
                };
                let bytes = pieces.next().await.transpose()?;
                Ok::<_, Problem>(bytes.map(|bytes| (bytes, Left::Decoded(pieces))))
            }
        });
        Ok(Some(counted(&app, pieces)))
    }

    /// Decoded by itself, some at a time: memory is waited for anew each time.
    fn decoded(self, start: u64) -> Pieces {
        let chunks = stream::unfold(start, move |at| {
            let chunk = (at < self.end).then(|| self.clone().chunk(at));
            async move { Some((chunk?.await, at + CHUNK)) }
        });
        Box::pin(chunks.flatten())
    }

    async fn chunk(self, at: u64) -> Pieces {
        let (content, party, len) = (self.reader.app.content(), &self.reader.party, (self.end - at).min(CHUNK));
        let permit = match content.decoders.permit(party, PART).await {
            Ok(permit) => permit,
            Err(problem) => return Box::pin(stream::iter([Err(problem)])),
        };
        let (repo, entry) = (self.reader.repo.clone(), self.entry.clone());
        Box::pin(body_from_producer(&content.disk_buffer, party, move |sink| {
            let _permit = permit;
            let bytes = repo.odb().read_range(&entry, at, len)?;
            if bytes.len() as u64 != len {
                return Err(Problem::internal("a file is shorter than it says"));
            }
            Ok(sink(&bytes)?)
        }))
    }
}

/// A piece of a decoded file; the next one is read while it is sent.
async fn piece(
    decoded: &Arc<Decoded>,
    at: u64,
    end: u64,
    ahead: Option<Reading>,
) -> std::result::Result<(Bytes, Option<Reading>), Failure> {
    let now = match ahead {
        Some(now) => now,
        None => {
            decoded.reached((at + PIECE).min(end)).await?;
            read(decoded, at, end)
        }
    };
    let read_now = now.await.map_err(io::Error::other).flatten();
    let bytes = read_now.map_err(|error| {
        tracing::warn!(%error, "a decoded file cannot be read");
        Failure::Disk
    })?;
    let next = at + bytes.len() as u64;
    let there = match decoded.state() {
        State::Done => true,
        State::Partly(n) => n >= (next + PIECE).min(end),
        State::Waiting | State::Failed(_) => false,
    };
    Ok((bytes, (next < end && there).then(|| read(decoded, next, end))))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::options::Options;
    use http_body_util::BodyExt;
    use mdl_repo::RepoError;

    async fn of(len: u64, make: impl FnOnce(Sink<'_>) -> Result<()> + Send + 'static) -> Option<Vec<u8>> {
        let dir = tempfile::tempdir().expect("a directory");
        let app = App::new(Options::new(dir.path()), Arc::new(mdl_codec::CpuEngine::default())).expect("an app");
        let body = stream_body(&app, &Party::new("ada", "a/x"), len, 1, make).await.ok()?;
        Some(body.collect().await.ok()?.to_bytes().to_vec())
    }

    #[tokio::test]
    async fn a_complete_body_is_right() {
        let long = vec![7u8; (3 << 20) + 5];
        let made = long.clone();
        assert_eq!(of(long.len() as u64, move |send| Ok(send(&made)?)).await, Some(long));
        assert_eq!(of(0, |_| Ok(())).await, Some(Vec::new()));
        assert_eq!(of(3, |send| Ok(send(b"ab")?)).await, None, "too short");
        assert_eq!(of(1, |send| Ok(send(b"ab")?)).await, None, "too long");
        assert_eq!(of(1, |_| Ok(())).await, None, "nothing");
        let late = |send: Sink<'_>| {
            send(b"ab")?;
            Err(RepoError::corrupt("tensor", "wrong at its end").into())
        };
        assert_eq!(of(2, late).await, None, "all bytes came, and they were wrong");
    }
}
