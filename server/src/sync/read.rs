//! Sync route `read`: byte ranges of packs, many in one answer.
//!
//! Everything is checked before the first byte, so that a refusal has a message. A later failure cuts the body off.

use crate::{
    api::{self, Binary},
    request::prelude::*,
    sync::{OCTETS, standalone},
};
use axum::body::Body as Bytes;
use futures_util::stream;
use mdl_repo::{
    pack::PackId,
    storage::{Key, LocalStorage, Storage},
};
use std::{collections::HashMap, io, sync::Arc};

/// Ranges of one request.
const MAX_PIECES: usize = 1 << 16;
/// Bytes of one answer.
const MAX_BYTES: u64 = 64 << 20;
/// Bytes that are read at a time.
const BATCH: u64 = 1 << 20;

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
pub(super) struct SyncPieces {
    /// At most 65,536, and 64 MiB together.
    pieces: Vec<SyncPiece>,
}

/// A pack that is there.
struct Place {
    /// Whether it is one of the standalone packs, not one of the repository's.
    standalone: bool,
    key: Key,
    size: u64,
}

/// A range in a pack that is there.
struct Range {
    place: Arc<Place>,
    offset: u64,
    len: u64,
}

fn find(repo: &Repo, standalone: &LocalStorage, text: &str) -> Result<Place> {
    let pack = PackId::from_bytes(*api::id(text)?.as_bytes());
    let key = pack.key();
    if let Some(size) = repo.storage().size(&key)? {
        return Ok(Place { standalone: false, key, size });
    }
    let gone = || Problem::not_found("pack", pack).code("PackGone").hint("ask for a new plan");
    let size = standalone.size(&key)?.ok_or_else(gone)?;
    Ok(Place { standalone: true, key, size })
}

/// Checks every piece, and splits them into what is read at a time.
fn batches(repo: &Repo, standalone: &LocalStorage, pieces: &[SyncPiece]) -> Result<Vec<Vec<Range>>> {
    let mut places: HashMap<&str, Arc<Place>> = HashMap::new();
    let (mut batches, mut batch, mut room) = (Vec::new(), Vec::new(), BATCH);
    for piece in pieces {
        let place = match places.get(piece.pack.as_str()) {
            Some(place) => place.clone(),
            None => places.entry(&piece.pack).or_insert(Arc::new(find(repo, standalone, &piece.pack)?)).clone(),
        };
        let end = piece.offset.checked_add(piece.len);
        if end.is_none_or(|end| end > place.size) {
            return Err(Problem::usage(format!("{} bytes at {} are not in that pack", piece.len, piece.offset)));
        }
        let (mut offset, mut left) = (piece.offset, piece.len);
        while left > 0 {
            let len = left.min(room);
            batch.push(Range { place: place.clone(), offset, len });
            (offset, left, room) = (offset + len, left - len, room - len);
            if room == 0 {
                batches.push(std::mem::take(&mut batch));
                room = BATCH;
            }
        }
    }
    if !batch.is_empty() {
        batches.push(batch);
    }
    Ok(batches)
}

fn read_batch(repo: &Repo, standalone: &LocalStorage, batch: &[Range]) -> Result<Vec<u8>> {
    let mut out = Vec::new();
    for Range { place, offset, len } in batch {
        let start = out.len();
        out.resize(start + *len as usize, 0);
        let storage: &dyn Storage = if place.standalone { standalone } else { repo.storage() };
        storage.read_at(&place.key, *offset, out.get_mut(start..).unwrap_or_default())?;
    }
    Ok(out)
}

/// Bytes of packs
///
/// The ranges end to end, and nothing else. 404 with `X-Error-Code: PackGone` says that a pack has been replaced since
/// the plan was made: ask for a new plan.
#[utoipa::path(
    post, path = "/read", tag = "sync", request_body = SyncPieces,
    responses((status = 200, body = Binary, content_type = "application/octet-stream"))
)]
pub(super) async fn read(Read(access): Read, Body(asked): Body<SyncPieces>) -> Result<Response> {
    let total = asked.pieces.iter().map(|p| p.len).fold(0, u64::saturating_add);
    if asked.pieces.len() > MAX_PIECES || total > MAX_BYTES {
        let message = format!("more than {MAX_PIECES} pieces, or than {MAX_BYTES} bytes");
        return Err(Problem::too_large(message).hint("ask for them in several requests"));
    }
    let (repo, sent) = (access.repo.clone(), access.app.metrics().sent.clone());
    let found = work(move || {
        let standalone = standalone::storage_for(&access.app, &access.key()?);
        Ok((batches(&access.repo, &standalone, &asked.pieces)?, Arc::new(standalone)))
    });
    let (batches, standalone) = found.await?;
    let body = stream::try_unfold(batches.into_iter(), move |mut batches| {
        let (repo, standalone, sent) = (repo.clone(), standalone.clone(), sent.clone());
        async move {
            let Some(batch) = batches.next() else { return Ok(None) };
            let bytes = work(move || read_batch(&repo, &standalone, &batch)).await;
            let bytes = bytes.map_err(|problem| io::Error::other(problem.message))?;
            sent.inc_by(bytes.len() as u64);
            Ok::<_, io::Error>(Some((bytes, batches)))
        }
    });
    let headers =
        [(header::CONTENT_TYPE, HeaderValue::from_static(OCTETS)), (header::CONTENT_LENGTH, HeaderValue::from(total))];
    Ok((headers, Bytes::from_stream(body)).into_response())
}
