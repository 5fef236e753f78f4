//! Sync route `read`: byte ranges of packs, many in one answer.
//!
//! Everything is checked before the first byte, so that a refusal has a message. A later failure cuts the body off.

use crate::{
    api,
    api::Binary,
    app::{App, work},
    auth::{Access, Read},
    problem::{Problem, ProblemDocument, Result},
    request::{
        extract::Body,
        routes::{Need, Needs},
    },
    sync::OCTETS,
};
use axum::{
    body::Body as Bytes,
    extract::{DefaultBodyLimit, State},
    response::{IntoResponse, Response},
};
use futures_util::stream;
use http::{HeaderValue, header};
use mdl_repo::{
    Repo,
    pack::PackId,
    storage::{Key, LocalStorage, Storage},
};
use serde::Deserialize;
use std::{collections::HashMap, io, sync::Arc};
use utoipa::ToSchema;
use utoipa_axum::{router::OpenApiRouter, routes};

/// Ranges of one request, and the bytes of JSON that say them.
const MAX_PIECES: usize = 1 << 16;
const MAX_JSON: usize = 16 << 20;
/// Bytes of one answer.
const MAX_BYTES: u64 = 64 << 20;
/// Bytes that are read at a time.
const BATCH: u64 = 1 << 20;

pub(super) fn routes() -> OpenApiRouter<App> {
    OpenApiRouter::new().routes(routes!(read).needs(Need::Read)).layer(DefaultBodyLimit::max(MAX_JSON))
}

/// Bytes of a pack.
#[derive(Debug, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
struct SyncPiece {
    /// The pack (64 hex digits), as a plan named it.
    pack: String,
    /// Where in it.
    offset: u64,
    /// How many.
    len: u64,
}

/// Ranges that are wanted, end to end.
#[derive(Debug, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
struct SyncPieces {
    /// At most 65,536, and 64 MiB together.
    pieces: Vec<SyncPiece>,
}

/// Where a pack is.
struct Place {
    key: Key,
    size: u64,
    whole: bool,
}

/// A range in a pack that is there.
struct Range {
    place: usize,
    offset: u64,
    len: u64,
}

/// Everything that is to be sent.
struct Reading {
    repo: Arc<Repo>,
    whole: LocalStorage,
    places: Vec<Place>,
    batches: Vec<Vec<Range>>,
}

impl Reading {
    fn new(app: &App, access: &Access) -> Result<Reading> {
        Ok(Reading {
            repo: access.repo.clone(),
            whole: app.transfers().whole.of(app, &access.key()?),
            places: Vec::new(),
            batches: Vec::new(),
        })
    }

    fn place(&mut self, text: &str) -> Result<usize> {
        let pack = PackId::from_bytes(*api::id(text)?.as_bytes());
        let key = pack.key();
        let (size, whole) = match self.repo.storage().size(&key)? {
            Some(size) => (size, false),
            None => {
                let gone = || Problem::not_found("pack", pack).code("PackGone").hint("ask for a new plan");
                (self.whole.size(&key)?.ok_or_else(gone)?, true)
            }
        };
        self.places.push(Place { key, size, whole });
        Ok(self.places.len() - 1)
    }

    /// Checks every piece, and splits them into what is read at a time.
    fn plan(&mut self, pieces: &[SyncPiece]) -> Result<()> {
        let mut known: HashMap<&str, usize> = HashMap::new();
        let mut room = 0;
        for piece in pieces {
            let place = match known.get(piece.pack.as_str()) {
                Some(place) => *place,
                None => *known.entry(&piece.pack).or_insert(self.place(&piece.pack)?),
            };
            let end = piece.offset.checked_add(piece.len);
            if end.is_none_or(|end| end > self.places[place].size) {
                return Err(Problem::usage(format!("{} bytes at {} are not in that pack", piece.len, piece.offset)));
            }
            let (mut offset, mut left) = (piece.offset, piece.len);
            while left > 0 {
                if room == 0 {
                    self.batches.push(Vec::new());
                    room = BATCH;
                }
                let len = left.min(room);
                self.batches.last_mut().into_iter().for_each(|b| b.push(Range { place, offset, len }));
                (offset, left, room) = (offset + len, left - len, room - len);
            }
        }
        Ok(())
    }

    fn read(&self, batch: usize) -> Result<Vec<u8>> {
        let mut out = Vec::new();
        for range in self.batches.get(batch).into_iter().flatten() {
            let Some(place) = self.places.get(range.place) else {
                continue;
            };
            let start = out.len();
            out.resize(start + range.len as usize, 0);
            let buffer = out.get_mut(start..).unwrap_or_default();
            match place.whole {
                true => self.whole.read_at(&place.key, range.offset, buffer)?,
                false => self.repo.storage().read_at(&place.key, range.offset, buffer)?,
            }
        }
        Ok(out)
    }
}

/// Bytes of packs
///
/// The ranges end to end, and nothing else. 404 with `X-Error-Code: PackGone` says that a pack has been replaced since
/// the plan was made: ask for a new plan.
#[utoipa::path(
    post,
    path = "/repos/{owner}/{name}/sync/read",
    tag = "sync",
    params(("owner" = String, Path), ("name" = String, Path)),
    request_body = SyncPieces,
    responses(
        (status = 200, body = Binary, content_type = "application/octet-stream"),
        (status = "default", body = ProblemDocument, content_type = "application/problem+json"),
    )
)]
async fn read(State(app): State<App>, Read(access): Read, Body(asked): Body<SyncPieces>) -> Result<Response> {
    let total = asked.pieces.iter().map(|p| p.len).fold(0, u64::saturating_add);
    if asked.pieces.len() > MAX_PIECES || total > MAX_BYTES {
        let message = format!("more than {MAX_PIECES} pieces, or than {MAX_BYTES} bytes");
        return Err(Problem::too_large(message).hint("ask for them in several requests"));
    }
    let inner = app.clone();
    let reading = work(move || {
        let mut reading = Reading::new(&inner, &access)?;
        reading.plan(&asked.pieces)?;
        Ok(Arc::new(reading))
    })
    .await?;
    let sent = app.metrics().sent.clone();
    let body = stream::try_unfold(0, move |batch| {
        let (reading, sent) = (reading.clone(), sent.clone());
        async move {
            if batch >= reading.batches.len() {
                return Ok(None);
            }
            let bytes = work(move || reading.read(batch)).await;
            let bytes = bytes.map_err(|problem| io::Error::other(problem.message))?;
            sent.inc_by(bytes.len() as u64);
            Ok::<_, io::Error>(Some((bytes, batch + 1)))
        }
    });
    let headers =
        [(header::CONTENT_TYPE, HeaderValue::from_static(OCTETS)), (header::CONTENT_LENGTH, HeaderValue::from(total))];
    Ok((headers, Bytes::from_stream(body)).into_response())
}
