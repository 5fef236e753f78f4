//! Clone, fetch and push over HTTP: the server's side of the sync protocol. Specified in docs/protocol.md.

mod ids;
mod offer;
mod packs;
mod pruned;
mod read;
mod refs;
pub(crate) mod standalone;

use crate::{
    api::gone::StopWhen,
    request::{
        prelude::*,
        routes::{Need, Needs},
    },
};
use axum::extract::DefaultBodyLimit;
use mdl_repo::Progress;
use utoipa_axum::{
    router::{OpenApiRouter, UtoipaMethodRouterExt},
    routes,
};

/// Version of the protocol.
const PROTOCOL: u32 = 1;
/// Bytes of JSON of one request.
const MAX_JSON: usize = 16 << 20;
/// Media type of plans, ids and packs.
const OCTETS: &str = "application/octet-stream";

/// The routes, below `/sync` of a repository.
pub fn routes() -> OpenApiRouter<App> {
    let long = || DefaultBodyLimit::max(MAX_JSON);
    OpenApiRouter::new()
        .routes(routes!(refs::list).needs(Need::Read))
        .routes(routes!(refs::move_all).needs(Need::Write))
        .routes(routes!(offer::offer).needs(Need::Read).layer(long()))
        .routes(routes!(offer::whole).needs(Need::Read).layer(long()))
        .routes(routes!(read::read).needs(Need::Read).layer(long()))
        .routes(routes!(ids::lacking).needs(Need::Read))
        .routes(routes!(ids::known).needs(Need::Read))
        .routes(routes!(packs::take).needs(Need::Write))
        .routes(routes!(packs::show).needs(Need::Write))
        .routes(routes!(packs::put).needs(Need::Write))
        .routes(routes!(pruned::note).needs(Need::Write).layer(long()))
}

/// Goes on until the server stops, even if the client is gone: a retry finds what was done.
fn serving(app: &App) -> impl Progress {
    StopWhen(move || app.is_stopping())
}

/// Error about what a client sent: damage in it is the client's, not the server's.
pub(crate) fn theirs(error: RepoError) -> Problem {
    match error {
        RepoError::Corrupt { .. } => {
            tracing::warn!(%error, "refused what was sent");
            Problem::refused(error.to_string()).hint("run `mdl fsck` where it came from, then send it again")
        }
        RepoError::Stopped { .. } => Problem::busy("the server is stopping", 5),
        error => error.into(),
    }
}

/// Octets as an answer.
fn octets(bytes: Vec<u8>) -> Response {
    ([(header::CONTENT_TYPE, OCTETS)], bytes).into_response()
}

/// Parses ids of a JSON body.
fn ids_of(what: &str, texts: &[String], max: usize) -> Result<Vec<Id>> {
    if texts.len() > max {
        return Err(Problem::too_large(format!("more than {max} {what}")));
    }
    texts.iter().map(|text| crate::api::id(text)).collect()
}
