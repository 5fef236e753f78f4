//! Sync routes `lacking` and `known`: which objects the server lacks, which commits its refs reach. Ids as raw bytes.

use crate::{
    api::Binary,
    app::{App, work},
    auth::Read,
    problem::{Problem, ProblemDocument, Result},
    request::routes::{Need, Needs},
    sync::{OCTETS, gather},
};
use axum::{
    body::Body,
    response::{IntoResponse, Response},
};
use http::header;
use mdl_objects::Id;
use std::collections::HashSet;
use utoipa_axum::{router::OpenApiRouter, routes};

/// Ids of one request.
const MAX_IDS: usize = 1 << 18;
const ID: usize = 32;

pub(super) fn routes() -> OpenApiRouter<App> {
    OpenApiRouter::new().routes(routes!(lacking).needs(Need::Read)).routes(routes!(known).needs(Need::Read))
}

async fn read(body: Body) -> Result<Vec<Id>> {
    let bytes = gather(body, MAX_IDS * ID).await?;
    let (ids, rest) = bytes.as_chunks::<ID>();
    if !rest.is_empty() {
        return Err(Problem::usage("ids have 32 bytes each, and nothing between them"));
    }
    Ok(ids.iter().map(|id| Id::from_bytes(*id)).collect())
}

/// Those that are in the set, in the order they came in, each as often.
fn answer(ids: &[Id], set: &HashSet<Id>) -> Response {
    let found = ids.iter().filter(|id| set.contains(*id));
    let bytes: Vec<u8> = found.flat_map(|id| *id.as_bytes()).collect();
    ([(header::CONTENT_TYPE, OCTETS)], bytes).into_response()
}

/// Which of these objects the repository lacks
///
/// Ids of 32 bytes, end to end, at most 262,144; the answer has those that are lacking, in the same form.
#[utoipa::path(
    post,
    path = "/repos/{owner}/{name}/sync/lacking",
    tag = "sync",
    params(("owner" = String, Path), ("name" = String, Path)),
    request_body(content = Vec<u8>, content_type = "application/octet-stream"),
    responses(
        (status = 200, body = Binary, content_type = "application/octet-stream"),
        (status = "default", body = ProblemDocument, content_type = "application/problem+json"),
    )
)]
async fn lacking(Read(access): Read, body: Body) -> Result<Response> {
    let ids = read(body).await?;
    work(move || Ok(answer(&ids, &mdl_remote::lacking_here(&access.repo, &ids)?))).await
}

/// Which of these commits the repository's refs reach
///
/// As `lacking`: ids in, ids out.
#[utoipa::path(
    post,
    path = "/repos/{owner}/{name}/sync/known",
    tag = "sync",
    params(("owner" = String, Path), ("name" = String, Path)),
    request_body(content = Vec<u8>, content_type = "application/octet-stream"),
    responses(
        (status = 200, body = Binary, content_type = "application/octet-stream"),
        (status = "default", body = ProblemDocument, content_type = "application/problem+json"),
    )
)]
async fn known(Read(access): Read, body: Body) -> Result<Response> {
    let ids = read(body).await?;
    work(move || Ok(answer(&ids, &mdl_remote::sync::held_of(&access.repo, &ids)?))).await
}
