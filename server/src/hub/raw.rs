//! Serves an uploaded LFS object from the server's own disk, whole or a range.

use crate::{
    content::{Asked, ByteResponse},
    problem::{Problem, Result},
};
use axum::{body::Body, response::Response};
use bytes::Bytes;
use futures_util::stream;
use std::{io::SeekFrom, ops::Range, path::Path};
use tokio::{
    fs::File,
    io::{AsyncReadExt, AsyncSeekExt},
};

/// Bytes read at a time.
const PIECE: u64 = 256 << 10;

/// Answers GET or HEAD of a file that never changes, which `etag` names.
pub(super) async fn respond(path: &Path, size: u64, etag: String, asked: &Asked) -> Result<Response> {
    let file = File::open(path).await.map_err(Problem::internal)?;
    ByteResponse::attachment("file", size, etag).answer(asked, async |bytes| body(file, bytes).await).await
}

async fn body(mut file: File, bytes: Range<u64>) -> Result<Body> {
    file.seek(SeekFrom::Start(bytes.start)).await.map_err(Problem::internal)?;
    let left = bytes.end - bytes.start;
    Ok(Body::from_stream(stream::try_unfold((file, left), |(mut file, left)| async move {
        if left == 0 {
            return Ok(None);
        }
        let mut piece = vec![0; left.min(PIECE) as usize];
        file.read_exact(&mut piece).await?;
        let left = left - piece.len() as u64;
        Ok::<_, std::io::Error>(Some((Bytes::from(piece), (file, left))))
    })))
}
