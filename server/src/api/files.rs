//! Route `GET .../files/{rev}/{path}`: a file's bytes at a revision.

use crate::{
    app::{App, work},
    auth::Read,
    content,
    content::{Asked, Validator},
    problem::{ProblemDocument, Result},
    request::{
        extract::Path,
        revision,
        routes::{Need, Needs},
    },
};
use axum::{extract::State, response::Response};
use mdl_objects::{Entry, Id};
use mdl_repo::{Missing, Repo, RepoError};
use utoipa_axum::{router::OpenApiRouter, routes};

pub(super) fn routes() -> OpenApiRouter<App> {
    OpenApiRouter::new().routes(routes!(get, head).needs(Need::Read))
}

/// The file of this path in the version of a revision, and that version.
pub(super) fn find(repo: &Repo, rev: &str, path: &str) -> Result<(Id, Entry)> {
    let commit = revision::resolve(repo, rev)?;
    let missing = || RepoError::not_found(Missing::File, path);
    let entry = mdl_repo::files(repo, &commit)?.remove(path).ok_or_else(missing)?;
    Ok((commit, entry))
}

type Where = Path<(String, String, String, String)>;

/// Download a file, or a part of it
#[utoipa::path(
    get,
    path = "/repos/{owner}/{name}/files/{rev}/{*path}",
    tag = "contents",
    params(
        ("owner" = String, Path), ("name" = String, Path),
        ("rev" = String, Path, description = "Revision; its slashes percent-encoded."), ("path" = String, Path),
        ("Range" = Option<String>, Header, description = "One range of bytes."),
        ("If-None-Match" = Option<String>, Header), ("If-Range" = Option<String>, Header),
    ),
    responses(
        (status = 200, description = "The file", body = serde_json::Value, content_type = "*/*"),
        (status = 206, description = "A part of it", body = serde_json::Value, content_type = "*/*"),
        (status = 304, description = "The client has it"),
        (status = "default", body = ProblemDocument, content_type = "application/problem+json"),
    )
)]
async fn get(
    State(app): State<App>,
    Read(access): Read,
    Path((_, _, rev, path)): Where,
    asked: Asked,
) -> Result<Response> {
    let (repo, wanted) = (access.repo.clone(), path.clone());
    let (_, entry) = work(move || find(&repo, &rev, &wanted)).await?;
    content::respond(&app, &access.reader(), &path, &entry, &asked, Validator::Id).await
}

/// Ask for a file's length and ETag
#[utoipa::path(
    head,
    path = "/repos/{owner}/{name}/files/{rev}/{*path}",
    tag = "contents",
    params(
        ("owner" = String, Path), ("name" = String, Path),
        ("rev" = String, Path, description = "Revision; its slashes percent-encoded."), ("path" = String, Path),
        ("If-None-Match" = Option<String>, Header),
    ),
    responses(
        (status = 200, description = "There is such a file"),
        (status = 304, description = "The client has it"),
        (status = "default", description = "As for GET, without the document"),
    )
)]
async fn head(app: State<App>, read: Read, path: Where, asked: Asked) -> Result<Response> {
    get(app, read, path, asked).await
}
