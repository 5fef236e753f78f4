//! Route `GET .../files/{rev}/{path}`: a file's bytes at a revision.

use crate::{
    content::{self, Asked, Validator},
    request::prelude::*,
};

/// The file of this path in the version of a revision, and that version.
pub(super) fn find(repo: &Repo, rev: &str, path: &str) -> Result<(Version, Entry)> {
    let version = Version::read(repo, revision::resolve(repo, rev)?)?;
    let missing = || RepoError::not_found(Missing::File, path);
    let entry = version.files(repo)?.remove(path).ok_or_else(missing)?;
    Ok((version, entry))
}

/// Download a file, or a part of it
#[utoipa::path(
    get, path = "/files/{rev}/{*path}", tag = "contents",
    params(
        ("Range" = Option<String>, Header, description = "One range of bytes."),
        ("If-None-Match" = Option<String>, Header), ("If-Range" = Option<String>, Header),
    ),
    responses(
        (status = 200, description = "The file", body = serde_json::Value, content_type = "*/*"),
        (status = 206, description = "A part of it", body = serde_json::Value, content_type = "*/*"),
        (status = 304, description = "The client has it"),
    )
)]
pub(super) async fn get(Read(access): Read, Path(at): Path<AtFile>, asked: Asked) -> Result<Response> {
    let path = at.path.clone();
    let (_, entry) = access.work(move |repo| find(repo, &at.rev, &at.path)).await?;
    content::respond(&access.reader(), &path, &entry, &asked, Validator::Id).await
}

/// Ask for a file's length and ETag
#[utoipa::path(
    head, path = "/files/{rev}/{*path}", tag = "contents", params(("If-None-Match" = Option<String>, Header)),
    responses(
        (status = 200, description = "There is such a file"),
        (status = 304, description = "The client has it"),
        (status = "default", description = "As for GET, without the document"),
    )
)]
pub(super) async fn head(read: Read, at: Path<AtFile>, asked: Asked) -> Result<Response> {
    get(read, at, asked).await
}
