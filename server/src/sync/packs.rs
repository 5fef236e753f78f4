//! Sync routes that receive packs in parts, then store them. `incoming` keeps the parts, `mdl-repo` checks and stores.

use crate::{
    api,
    content::STREAM_UNITS,
    incoming::{Holder, PackName},
    request::prelude::*,
    sync::serving,
};
use axum::body::Body as Bytes;
use futures_util::StreamExt;
use mdl_remote::Gap;
use mdl_repo::pack::PackId;
use std::mem;

/// Packs that are taken in at once.
const MAX_PACKS: usize = 4096;
/// Bytes of a part that are in memory before they are kept.
const KEEP: usize = 256 << 10;
const HASH: HeaderName = HeaderName::from_static("x-mdl-blake3");

#[derive(Debug, Deserialize, IntoParams)]
#[into_params(parameter_in = Query)]
pub(super) struct SizeQuery {
    /// Length of the pack in bytes.
    #[param(minimum = 1)]
    size: u64,
}

#[derive(Debug, Deserialize, IntoParams)]
#[into_params(parameter_in = Query)]
pub(super) struct PartQuery {
    /// Length of the pack in bytes.
    #[param(minimum = 1)]
    size: u64,
    /// How many bytes of the part are there already; the body is what comes after them.
    #[serde(default)]
    #[param(required = false)]
    from: u64,
}

/// How far a pack is.
#[derive(Debug, Serialize, ToSchema)]
pub(super) struct SyncLanding {
    /// Bytes of every part but the last.
    part_bytes: u64,
    /// Parts that are not all there.
    missing: Vec<SyncGap>,
}

/// A part that is not all there.
#[derive(Debug, Serialize, ToSchema)]
struct SyncGap {
    /// Its number, from 0.
    part: u64,
    /// How many of its bytes are there, from its start.
    from: u64,
}

/// A pack that was sent.
#[derive(Debug, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
struct SyncPack {
    /// Its name (64 hex digits).
    id: String,
    /// Its length in bytes.
    size: u64,
}

/// Packs that were sent.
#[derive(Debug, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub(super) struct SyncPacks {
    /// At most 4,096.
    packs: Vec<SyncPack>,
}

/// What was taken in.
#[derive(Debug, Serialize, ToSchema)]
pub(super) struct SyncTaken {
    /// Objects that were not here before.
    objects: u64,
    /// Their encoded bytes.
    bytes: u64,
}

fn named(app: &App, id: &str, size: u64) -> Result<PackName> {
    let named = (PackId::from_bytes(*api::id(id)?.as_bytes()), size);
    app.incoming().packs.check_size(named)?;
    Ok(named)
}

/// Which parts of a pack are missing
#[utoipa::path(
    get, path = "/packs/{id}", tag = "sync", params(SizeQuery), responses((status = 200, body = SyncLanding))
)]
pub(super) async fn show(
    Write(access): Write,
    AtId(id): AtId,
    Query(query): Query<SizeQuery>,
) -> Result<Json<SyncLanding>> {
    let named = named(&access.app, &id, query.size)?;
    work(move || {
        let missing = access.app.incoming().packs.missing(&access.holder()?, named)?;
        Ok(Json(SyncLanding {
            part_bytes: mdl_remote::PART,
            missing: missing.into_iter().map(|Gap { part, from }| SyncGap { part, from }).collect(),
        }))
    })
    .await
}

fn hash(headers: &HeaderMap) -> Result<[u8; 32]> {
    let wrong = || Problem::usage("the header X-Mdl-Blake3 wants the part's BLAKE3: 64 hexadecimal digits");
    let text = headers.get(HASH).and_then(|v| v.to_str().ok()).ok_or_else(wrong)?;
    Ok(*api::id(text).map_err(|_| wrong())?.as_bytes())
}

/// Send a part of a pack, or the rest of one
///
/// In any order, several at a time, and again if the answer was lost. What has come of a part stays when the line
/// breaks: ask what is missing, and send from there on.
#[utoipa::path(
    put, path = "/packs/{id}/parts/{part}", tag = "sync",
    params(
        ("part" = u64, Path), PartQuery,
        ("X-Mdl-Blake3" = String, Header, description = "BLAKE3 of the whole part: 64 hexadecimal digits"),
    ),
    request_body(content = Vec<u8>, content_type = "application/octet-stream"),
    responses((status = 204, description = "The part is there"))
)]
pub(super) async fn put(
    Write(access): Write,
    Path((_, _, id, part)): Path<(String, String, String, u64)>,
    Query(query): Query<PartQuery>,
    headers: HeaderMap,
    body: Bytes,
) -> Result<StatusCode> {
    let PartQuery { size, from } = query;
    let named = named(&access.app, &id, size)?;
    let said = hash(&headers)?;
    let len = match mdl_remote::range(size, part) {
        range if range.is_empty() => return Err(Problem::usage(format!("the pack has no part {part}"))),
        range => range.end - range.start,
    };
    let incoming = IncomingPart {
        holder: access.holder()?,
        app: access.app,
        named,
        part,
        at: from,
        left: len
            .checked_sub(from)
            .ok_or_else(|| Problem::usage(format!("part {part} has {len} bytes, and not {from} before these")))?,
    };
    // A task of its own: received bytes are kept even if the client is gone.
    tokio::spawn(incoming.keep(body, said)).await.map_err(Problem::internal)??;
    Ok(StatusCode::NO_CONTENT)
}

/// An incoming part.
struct IncomingPart {
    app: App,
    holder: Holder,
    named: PackName,
    part: u64,
    /// Where in the part the next byte goes.
    at: u64,
    /// How many bytes are to come.
    left: u64,
}

impl IncomingPart {
    /// Writes the body as it arrives, and checks the part's hash at the end.
    async fn keep(mut self, body: Bytes, said: [u8; 32]) -> Result<()> {
        let mut stream = body.into_data_stream();
        let mut waiting = Vec::new();
        let ended = loop {
            match stream.next().await {
                None => break Ok(()),
                Some(Err(e)) => break Err(Problem::usage(format!("the body broke off: {e}"))),
                Some(Ok(chunk)) if (waiting.len() + chunk.len()) as u64 > self.left => {
                    break Err(Problem::too_large(format!("more came than is missing of part {}", self.part)));
                }
                Some(Ok(chunk)) => waiting.extend_from_slice(&chunk),
            }
            if waiting.len() >= KEEP {
                self.put(mem::take(&mut waiting)).await?;
            }
        };
        self.put(waiting).await?;
        ended?;
        if self.left > 0 {
            return Err(Problem::usage(format!("part {} has {} bytes more than came", self.part, self.left)));
        }
        let IncomingPart { app, holder, named, part, .. } = self;
        work(move || match app.incoming().packs.pack(&holder, named)?.check(part, &said)? {
            true => Ok(()),
            false => Err(Problem::refused("the part's BLAKE3 is another").hint("send it again")),
        })
        .await
    }

    async fn put(&mut self, bytes: Vec<u8>) -> Result<()> {
        if bytes.is_empty() {
            return Ok(());
        }
        let (app, holder) = (self.app.clone(), self.holder.clone());
        let IncomingPart { named, part, at, .. } = *self;
        let len = bytes.len() as u64;
        app.metrics().received.inc_by(len);
        work(move || Ok(app.incoming().packs.pack(&holder, named)?.put(part, at, &bytes)?)).await?;
        (self.at, self.left) = (self.at + len, self.left - len);
        Ok(())
    }
}

/// Take in packs that were sent
///
/// Every object in them is checked and decoded before any of it counts; a delta's base may be in another of the packs,
/// or here. 409 with `X-Error-Code: PartsMissing`: something has not arrived. When the answer was lost, the same
/// request gets it again.
#[utoipa::path(
    post, path = "/packs/take", tag = "sync", request_body = SyncPacks,
    responses((status = 200, body = SyncTaken))
)]
pub(super) async fn take(Write(access): Write, Body(asked): Body<SyncPacks>) -> Result<Json<SyncTaken>> {
    if asked.packs.len() > MAX_PACKS {
        return Err(Problem::too_large(format!("more than {MAX_PACKS} packs")));
    }
    let packs = asked.packs.iter().map(|p| named(&access.app, &p.id, p.size));
    let packs = packs.collect::<Result<Vec<PackName>>>()?;
    // A task of its own: it stores what was sent even if the client is gone.
    let task = tokio::spawn(async move {
        let (app, holder) = (access.app.clone(), access.holder()?);
        let alone = app.incoming().packs.taking.lock(holder.repo.clone()).await;
        let permit = app.content().decoders.permit(&access.party(), STREAM_UNITS).await?;
        work(move || {
            let (_alone, _permit) = (alone, permit);
            app.incoming().packs.take(&access.repo, &holder, packs, &serving(&app))
        })
        .await
    });
    let taken = task.await.map_err(Problem::internal)??;
    Ok(Json(SyncTaken { objects: taken.objects, bytes: taken.bytes }))
}
