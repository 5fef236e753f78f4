//! Clone, fetch and push over HTTP: the server's side of the sync protocol. Specified in docs/protocol.md.

mod ids;
mod offer;
mod packs;
mod pruned;
mod read;
mod refs;
mod whole;

use crate::{
    app::App,
    content::Permit,
    options::Options,
    problem::{Problem, Result},
    tasks::fair::Party,
};
use axum::body::Body;
use futures_util::StreamExt;
use http::StatusCode;
use mdl_objects::Id;
use mdl_repo::{Progress, RepoError};
use std::time::Duration;
use utoipa_axum::router::OpenApiRouter;
use whole::Whole;

/// Version of the protocol.
const PROTOCOL: u32 = 1;
/// How long an unfinished transfer is kept after its last request.
const KEPT: Duration = Duration::from_secs(24 * 3600);
/// Media type of plans, ids and packs.
const OCTETS: &str = "application/octet-stream";

/// State of transfers between two requests.
#[derive(Debug)]
pub struct Transfers {
    whole: Whole,
}

impl Transfers {
    /// Nothing yet.
    pub fn new(options: &Options) -> Transfers {
        Transfers { whole: Whole::new(options.cache) }
    }

    /// Drops abandoned transfers.
    pub fn rest(&self, app: &App) {
        self.whole.rest(app, KEPT);
    }
}

/// The routes, below `/api/v1`.
pub fn routes() -> OpenApiRouter<App> {
    OpenApiRouter::new()
        .merge(refs::routes())
        .merge(offer::routes())
        .merge(read::routes())
        .merge(ids::routes())
        .merge(packs::routes())
        .merge(pruned::routes())
}

/// Goes on until the server stops, even if the client is gone: a retry finds what was done.
struct Serving(App);

impl Progress for Serving {
    fn begin(&self, _what: &str, _total: u64) {}
    fn advance(&self, _n: u64) {}
    fn end(&self) {}

    fn stopped(&self) -> bool {
        self.0.is_stopping()
    }
}

/// Memory to decode in.
async fn permit(app: &App, party: &Party) -> Result<Permit> {
    app.content().decoders().permit(party, crate::content::POUR).await
}

/// Error about what a client sent: damage in it is the client's, not the server's.
pub(crate) fn theirs(error: RepoError) -> Problem {
    match error {
        RepoError::Corrupt { .. } => {
            tracing::warn!(%error, "refused what was sent");
            Problem::new(StatusCode::UNPROCESSABLE_ENTITY, "user", error.to_string())
                .hint("run `mdl fsck` where it came from, then send it again")
        }
        RepoError::Stopped { .. } => Problem::busy("the server is stopping", 5),
        error => error.into(),
    }
}

/// Parses ids of a JSON body.
fn ids_of(what: &str, texts: &[String], max: usize) -> Result<Vec<Id>> {
    if texts.len() > max {
        return Err(Problem::too_large(format!("more than {max} {what}")));
    }
    texts.iter().map(|text| crate::api::id(text)).collect()
}

/// Reads a whole short body.
async fn gather(body: Body, max: usize) -> Result<Vec<u8>> {
    let mut stream = body.into_data_stream();
    let mut out = Vec::new();
    while let Some(chunk) = stream.next().await {
        let chunk = chunk.map_err(|e| Problem::usage(format!("the body broke off: {e}")))?;
        if out.len() + chunk.len() > max {
            return Err(Problem::too_large(format!("more than {max} bytes")));
        }
        out.extend_from_slice(&chunk);
    }
    Ok(out)
}
