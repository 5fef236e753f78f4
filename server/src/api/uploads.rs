//! Routes `.../uploads`: resumable uploads. `incoming` keeps their bytes, a later commit uses them.

use crate::{
    incoming::{OFFSET, Upload},
    request::prelude::*,
};

const LENGTH: HeaderName = HeaderName::from_static("upload-length");

/// A file to be uploaded in parts.
#[derive(Debug, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub(super) struct NewUpload {
    /// Length in bytes.
    size: u64,
    /// SHA-256 in hexadecimal digits: checked when the last byte has arrived.
    #[schema(pattern = "^[0-9a-fA-F]{64}$")]
    sha256: Option<String>,
}

/// An upload and its offset.
#[derive(Debug, Serialize, ToSchema)]
pub(super) struct UploadInfo {
    /// Its name, for `uploads` of a commit.
    id: String,
    /// Its total size in bytes.
    size: u64,
    /// Bytes that arrived: offset of the next part.
    offset: u64,
    /// Its expected SHA-256.
    sha256: Option<String>,
    /// Whether all of it arrived (and its SHA-256 was checked): commits can take it.
    complete: bool,
    /// When it is dropped if nothing more arrives: milliseconds since 1970.
    expires_ms: i64,
}

/// Uploads of a repository.
#[derive(Debug, Serialize, ToSchema)]
pub(super) struct UploadList {
    uploads: Vec<UploadInfo>,
}

fn info(upload: Upload) -> UploadInfo {
    UploadInfo {
        complete: upload.offset == upload.plan.size,
        id: upload.id,
        size: upload.plan.size,
        offset: upload.offset,
        sha256: upload.plan.sha256,
        expires_ms: upload.expires_ms,
    }
}

fn progress(upload: &Upload) -> [(HeaderName, HeaderValue); 3] {
    [
        (OFFSET, HeaderValue::from(upload.offset)),
        (LENGTH, HeaderValue::from(upload.plan.size)),
        (header::CACHE_CONTROL, HeaderValue::from_static("no-store")),
    ]
}

/// List uploads under way
#[utoipa::path(get, path = "/uploads", tag = "uploads", responses((status = 200, body = UploadList)))]
pub(super) async fn list(Write(access): Write) -> Result<Json<UploadList>> {
    let all = work(move || access.app.incoming().uploads.all(&access.key()?)).await?;
    Ok(Json(UploadList { uploads: all.into_iter().map(info).collect() }))
}

/// Begin an upload
///
/// It may take any number of requests. It is dropped when nothing arrived for a day, and when a commit has taken it.
#[utoipa::path(
    post, path = "/uploads", tag = "uploads", request_body = NewUpload,
    responses((status = 201, body = UploadInfo, headers(("Location" = String, description = "The upload"))))
)]
pub(super) async fn begin(Write(access): Write, Body(new): Body<NewUpload>) -> Result<impl IntoResponse> {
    let digits = |s: &String| s.len() == 64 && s.bytes().all(|b| b.is_ascii_hexdigit());
    if !new.sha256.as_ref().is_none_or(digits) {
        return Err(Problem::usage("sha256 wants 64 hexadecimal digits"));
    }
    let sha256 = new.sha256.map(|s| s.to_ascii_lowercase());
    let upload = access.app.incoming().uploads.begin(access.holder()?, new.size, sha256).await?;
    let location = super::location(&access.name, "uploads", &upload.id)?;
    Ok((StatusCode::CREATED, location, progress(&upload), Json(info(upload))))
}

/// Ask how far an upload is
#[utoipa::path(
    get, path = "/uploads/{id}", tag = "uploads",
    responses(
        (status = 200, body = UploadInfo, headers(
            ("Upload-Offset" = u64, description = "Bytes that arrived"),
            ("Upload-Length" = u64, description = "Bytes it is to have"),
        )),
    )
)]
pub(super) async fn show(Write(access): Write, AtId(id): AtId) -> Result<impl IntoResponse> {
    let upload = work(move || access.app.incoming().uploads.find(&access.key()?, &id)).await?;
    Ok((progress(&upload), Json(info(upload))))
}

/// Ask how far an upload is, by headers alone
#[utoipa::path(
    head, path = "/uploads/{id}", tag = "uploads",
    responses(
        (status = 200, headers(
            ("Upload-Offset" = u64, description = "Bytes that arrived"),
            ("Upload-Length" = u64, description = "Bytes it is to have"),
        )),
        (status = "default", description = "As for GET, without a body"),
    )
)]
pub(super) async fn show_head(Write(access): Write, AtId(id): AtId) -> Result<impl IntoResponse> {
    let upload = work(move || access.app.incoming().uploads.find(&access.key()?, &id)).await?;
    Ok(progress(&upload))
}

/// Send a piece
///
/// Whatever arrives counts, even if the connection breaks: ask for `Upload-Offset` and go on from there. A piece for an
/// upload that another request is still sending to takes it over.
#[utoipa::path(
    patch, path = "/uploads/{id}", tag = "uploads",
    params(("Upload-Offset" = u64, Header, description = "Where the piece belongs: how far the upload is")),
    request_body(content = Vec<u8>, content_type = "application/octet-stream"),
    responses(
        (status = 200, body = UploadInfo, headers(("Upload-Offset" = u64, description = "Bytes that arrived"))),
        (status = 409, description = "The upload is elsewhere; `Upload-Offset` says where"),
    )
)]
pub(super) async fn append(
    Write(access): Write,
    AtId(id): AtId,
    headers: HeaderMap,
    body: axum::body::Body,
) -> Result<impl IntoResponse> {
    let number = |name: HeaderName| headers.get(name)?.to_str().ok()?.parse::<u64>().ok();
    let offset = number(OFFSET).ok_or_else(|| Problem::usage("the header Upload-Offset wants a number of bytes"))?;
    let len = number(header::CONTENT_LENGTH);
    let received = access.app.metrics().received.clone();
    // A task of its own: when the client goes away, what has arrived is still written.
    let task = tokio::spawn(async move {
        access.app.incoming().uploads.append(&access.key()?, &id, offset, len, body.into_data_stream()).await
    });
    let upload = task.await.map_err(Problem::internal)??;
    received.inc_by(upload.offset.saturating_sub(offset));
    Ok((progress(&upload), Json(info(upload))))
}

/// Drop an upload
#[utoipa::path(delete, path = "/uploads/{id}", tag = "uploads", responses((status = 204)))]
pub(super) async fn remove(Write(access): Write, AtId(id): AtId) -> Result<StatusCode> {
    access.app.incoming().uploads.remove(&access.key()?, &id).await?;
    Ok(StatusCode::NO_CONTENT)
}
