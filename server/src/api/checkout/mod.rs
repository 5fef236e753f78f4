//! Route `GET .../checkout/{rev}`: a version as one stream, its files as a tar or its tensors as safetensors.

mod archive;
mod gather;

use crate::{
    api::stream,
    app::{App, work},
    auth::Read,
    content::{Asked, ByteResponse, POUR, Reader},
    problem::{ProblemDocument, Result},
    request::{
        extract::{Path, Query},
        revision,
        routes::{Need, Needs},
    },
};
use archive::Archive;
use axum::{body::Body, extract::State, response::Response};
use gather::Gathered;
use mdl_objects::Id;
use mdl_repo::{Repo, check_path};
use serde::Deserialize;
use utoipa::{IntoParams, ToSchema};
use utoipa_axum::{router::OpenApiRouter, routes};

pub(super) fn routes() -> OpenApiRouter<App> {
    OpenApiRouter::new().routes(routes!(checkout).needs(Need::Read))
}

/// What a version comes in.
#[derive(Clone, Copy, Debug, Default, Deserialize, ToSchema)]
#[serde(rename_all = "lowercase")]
enum Format {
    /// Its files.
    #[default]
    Tar,
    /// Its tensors.
    Safetensors,
}

#[derive(Debug, Deserialize, IntoParams)]
#[into_params(parameter_in = Query)]
struct CheckoutQuery {
    /// Default: `tar`.
    #[serde(default)]
    #[param(inline, required = false)]
    format: Format,
    /// Only files that match: `*.safetensors` in any directory, `a/*.json` in one, `{a,b}*` either.
    only: Option<String>,
}

/// A version laid out.
enum Layout {
    Tar(Archive),
    Safetensors(Gathered),
}

impl Layout {
    fn of(repo: &Repo, commit: &Id, query: &CheckoutQuery) -> Result<Layout> {
        let only: Vec<String> = query.only.iter().cloned().collect();
        let files = mdl_repo::files_matching(repo, commit, &only)?;
        if matches!(query.format, Format::Tar) {
            // What a checkout writes nowhere, no archive brings.
            files.keys().try_for_each(|path| check_path(path))?;
        }
        Ok(match query.format {
            Format::Tar => Layout::Tar(Archive::new(files, repo.odb().commit(commit)?.author.time_ms)?),
            Format::Safetensors => Layout::Safetensors(Gathered::new(repo, &files)?),
        })
    }

    const fn len(&self) -> u64 {
        match self {
            Layout::Tar(a) => a.len,
            Layout::Safetensors(g) => g.len,
        }
    }

    const fn media_type(&self) -> &'static str {
        match self {
            Layout::Tar(_) => "application/x-tar",
            Layout::Safetensors(_) => "application/octet-stream",
        }
    }

    fn stream_files(&self, repo: &Repo, sink: stream::Sink<'_>) -> Result<()> {
        match self {
            Layout::Tar(a) => a.stream_files(repo.odb(), sink),
            Layout::Safetensors(g) => g.stream_files(repo.odb(), sink),
        }
    }
}

/// Download a version
///
/// `tar`: its files, the executable bit kept, all with the time of the commit; the same version is the same archive,
/// byte for byte. `safetensors`: all tensors of its files under their names, as one file; where files share a name, it
/// has `PATH:` in front in each. A tensor that several names share is there once for each.
#[utoipa::path(
    get,
    path = "/repos/{owner}/{name}/checkout/{rev}",
    tag = "contents",
    params(
        ("owner" = String, Path), ("name" = String, Path),
        ("rev" = String, Path, description = "Revision; its slashes percent-encoded."),
        CheckoutQuery, ("If-None-Match" = Option<String>, Header),
    ),
    responses(
        (status = 200, description = "The version", content(
            (super::Binary = "application/x-tar"), (super::Binary = "application/octet-stream"),
        )),
        (status = 304, description = "The client has it"),
        (status = "default", body = ProblemDocument, content_type = "application/problem+json"),
    )
)]
async fn checkout(
    State(app): State<App>,
    Read(access): Read,
    Path((_, _, rev)): Path<(String, String, String)>,
    Query(query): Query<CheckoutQuery>,
    asked: Asked,
) -> Result<Response> {
    let repo = access.repo.clone();
    let (layout, etag) = work(move || {
        let commit = revision::resolve(&repo, &rev)?;
        let layout = Layout::of(&repo, &commit, &query)?;
        let asked = format!("{commit} {:?} {:?}", query.format, query.only);
        Ok((layout, blake3::hash(asked.as_bytes()).to_hex().to_string()))
    })
    .await?;
    let mut response = ByteResponse::attachment("bytes", layout.len(), etag);
    (response.ranges, response.media_type) = (false, layout.media_type());
    response.answer(&asked, async |_| send(&app, &access.reader(), layout).await).await
}

async fn send(app: &App, reader: &Reader, layout: Layout) -> Result<Body> {
    let repo = reader.repo.clone();
    stream::body(app, &reader.party, layout.len(), POUR, move |sink| layout.stream_files(&repo, sink)).await
}
