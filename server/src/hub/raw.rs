//! Serves an uploaded LFS object from the server's own disk, whole or a range.

use crate::{
    content::{Asked, Part, part},
    problem::{Problem, Result},
};
use axum::{
    body::Body,
    response::{IntoResponse, Response},
};
use bytes::Bytes;
use futures_util::stream;
use http::{HeaderMap, HeaderValue, Method, StatusCode, header};
use std::{io::SeekFrom, path::Path};
use tokio::{
    fs::File,
    io::{AsyncReadExt, AsyncSeekExt},
};

/// Bytes read at a time.
const PIECE: u64 = 256 << 10;

/// Answers GET or HEAD of a file that never changes, which `etag` names.
///
/// # Errors
/// An I/O error; a range that leaves the file.
pub(super) async fn respond(path: &Path, size: u64, etag: &str, asked: &Asked) -> Result<Response> {
    let mut file = File::open(path).await.map_err(Problem::internal)?;
    let (status, start, end) = match part(&asked.headers, size) {
        Part::Range { start, end } if asked.method == Method::GET => (StatusCode::PARTIAL_CONTENT, start, end),
        Part::Nothing if asked.method == Method::GET => {
            let problem = Problem::new(StatusCode::RANGE_NOT_SATISFIABLE, "range", "the range leaves the file");
            return Err(problem.header(header::CONTENT_RANGE, value(&format!("bytes */{size}"))?));
        }
        _ => (StatusCode::OK, 0, size),
    };
    let mut headers = HeaderMap::new();
    headers.insert(header::ETAG, value(&format!("\"{etag}\""))?);
    headers.insert(header::ACCEPT_RANGES, HeaderValue::from_static("bytes"));
    headers.insert(header::CONTENT_TYPE, HeaderValue::from_static("application/octet-stream"));
    headers.insert(header::CONTENT_DISPOSITION, HeaderValue::from_static("attachment"));
    headers.insert(header::CONTENT_LENGTH, HeaderValue::from(end - start));
    if status == StatusCode::PARTIAL_CONTENT {
        let range = format!("bytes {start}-{}/{size}", end.saturating_sub(1));
        headers.insert(header::CONTENT_RANGE, value(&range)?);
    }
    if asked.method == Method::HEAD {
        return Ok((status, headers).into_response());
    }
    file.seek(SeekFrom::Start(start)).await.map_err(Problem::internal)?;
    Ok((status, headers, body(file, end - start)).into_response())
}

fn value(text: &str) -> Result<HeaderValue> {
    HeaderValue::from_str(text).map_err(Problem::internal)
}

fn body(file: File, len: u64) -> Body {
    Body::from_stream(stream::try_unfold((file, len), |(mut file, left)| async move {
        if left == 0 {
            return Ok(None);
        }
        let mut piece = vec![0; left.min(PIECE) as usize];
        file.read_exact(&mut piece).await?;
        let left = left - piece.len() as u64;
        Ok::<_, std::io::Error>(Some((Bytes::from(piece), (file, left))))
    }))
}
