//! Sync route for pruned marks: versions the client pruned, whose contents must not count as missing.

use crate::{
    api,
    app::{App, work},
    auth::Write,
    problem::{Problem, ProblemDocument, Result},
    request::{
        extract::Body,
        routes::{Need, Needs},
    },
};
use axum::extract::DefaultBodyLimit;
use http::StatusCode;
use mdl_objects::Id;
use mdl_repo::PrunedMark;
use serde::Deserialize;
use utoipa::ToSchema;
use utoipa_axum::{router::OpenApiRouter, routes};

/// Marks of one request, bytes of the rules of one, and the bytes of JSON that hold them.
const MAX_MARKS: usize = 2048;
const LONGEST: usize = 4096;
const MAX_JSON: usize = 16 << 20;

pub(super) fn routes() -> OpenApiRouter<App> {
    OpenApiRouter::new().routes(routes!(note).needs(Need::Write)).layer(DefaultBodyLimit::max(MAX_JSON))
}

/// A version that was pruned.
#[derive(Debug, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
struct SyncMark {
    /// Its commit (64 hex digits).
    commit: String,
    /// When: milliseconds since 1970.
    time_ms: i64,
    /// The rules none of which kept it, in words; at most 4,096 bytes.
    rules: String,
}

/// Versions that were pruned.
#[derive(Debug, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
struct SyncMarks {
    /// At most 2,048.
    pruned: Vec<SyncMark>,
}

fn read(asked: SyncMark) -> Result<(Id, PrunedMark)> {
    if asked.rules.len() > LONGEST {
        return Err(Problem::too_large(format!("rules of more than {LONGEST} bytes")));
    }
    let mark = PrunedMark { time_ms: asked.time_ms, rules: asked.rules };
    Ok((api::id(&asked.commit)?, mark))
}

/// Note which versions were pruned where they come from
///
/// After their commits were sent, before refs move. A mark counts only for a commit that is here without its contents
/// and that no ref reaches yet; others are passed over. Asking again does no more.
#[utoipa::path(
    post,
    path = "/repos/{owner}/{name}/sync/pruned",
    tag = "sync",
    params(("owner" = String, Path), ("name" = String, Path)),
    request_body = SyncMarks,
    responses(
        (status = 204, description = "Noted"),
        (status = "default", body = ProblemDocument, content_type = "application/problem+json"),
    )
)]
async fn note(Write(access): Write, Body(asked): Body<SyncMarks>) -> Result<StatusCode> {
    if asked.pruned.len() > MAX_MARKS {
        return Err(Problem::too_large(format!("more than {MAX_MARKS} marks")));
    }
    let marks = asked.pruned.into_iter().map(read).collect::<Result<Vec<_>>>()?;
    work(move || {
        mdl_remote::sync::receive_pruned(&access.repo, &marks)?;
        Ok(StatusCode::NO_CONTENT)
    })
    .await
}
