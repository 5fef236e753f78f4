//! Sync routes `lacking` and `known`: which objects the server lacks, which commits its refs reach. Ids as raw bytes.

use crate::{
    api::Binary,
    request::{extract::gather, prelude::*},
    sync::octets,
};
use axum::body::Body;
use std::collections::HashSet;

/// Ids of one request.
const MAX_IDS: usize = 1 << 18;
const ID: usize = 32;

async fn read(body: Body) -> Result<Vec<Id>> {
    let bytes = gather(body.into_data_stream(), MAX_IDS * ID, "").await?;
    let (ids, rest) = bytes.as_chunks::<ID>();
    if !rest.is_empty() {
        return Err(Problem::usage("ids have 32 bytes each, and nothing between them"));
    }
    Ok(ids.iter().map(|id| Id::from_bytes(*id)).collect())
}

/// Those that are in the set, in the order they came in, each as often.
fn answer(ids: &[Id], set: &HashSet<Id>) -> Response {
    octets(ids.iter().filter(|id| set.contains(*id)).flat_map(|id| *id.as_bytes()).collect())
}

/// Which of these objects the repository lacks
///
/// Ids of 32 bytes, end to end, at most 262,144; the answer has those that are lacking, in the same form.
#[utoipa::path(
    post, path = "/lacking", tag = "sync",
    request_body(content = Vec<u8>, content_type = "application/octet-stream"),
    responses((status = 200, body = Binary, content_type = "application/octet-stream"))
)]
pub(super) async fn lacking(Read(access): Read, body: Body) -> Result<Response> {
    let ids = read(body).await?;
    work(move || Ok(answer(&ids, &mdl_remote::missing_here(&access.repo, &ids)?))).await
}

/// Which of these commits the repository's refs reach
///
/// As `lacking`: ids in, ids out.
#[utoipa::path(
    post, path = "/known", tag = "sync",
    request_body(content = Vec<u8>, content_type = "application/octet-stream"),
    responses((status = 200, body = Binary, content_type = "application/octet-stream"))
)]
pub(super) async fn known(Read(access): Read, body: Body) -> Result<Response> {
    let ids = read(body).await?;
    work(move || Ok(answer(&ids, &mdl_remote::sync::held_of(&access.repo, &ids)?))).await
}
