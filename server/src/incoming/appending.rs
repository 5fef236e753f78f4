//! Appends the parts of a resumable upload.
//!
//! Every byte that arrived before a connection broke counts: the client asks for the offset and goes on from there.

use crate::{
    app::work,
    incoming::uploads::{Upload, Uploads, Writer, missing},
    problem::{Problem, Result, storage_failed},
    registry::RepoKey,
    request::extract::Chunks,
};
use futures_util::StreamExt;
use http::{HeaderName, HeaderValue};
use std::{
    fmt::Display,
    fs::{File, OpenOptions},
    io::Write,
    pin::pin,
    sync::Arc,
};

/// Bytes gathered before they are written.
const BATCH: usize = 1 << 20;

/// Header with the offset of an upload.
pub(crate) const OFFSET: HeaderName = HeaderName::from_static("upload-offset");

impl Uploads {
    /// Appends a part at `offset`; `len` is its length, if known. If the upload is elsewhere, the true offset is in the
    /// refusal's header.
    pub(crate) async fn append<E: Display>(
        self: &Arc<Self>,
        repo: &RepoKey,
        id: &str,
        offset: u64,
        len: Option<u64>,
        stream: impl Chunks<E>,
    ) -> Result<Upload> {
        let path = self.path(repo, id)?;
        self.find(repo, id)?;
        let _held = self.lock(&path).await?;
        let upload = self.find(repo, id)?;
        if upload.offset != offset {
            let message = format!("the upload is at {}, not at {offset}", upload.offset);
            return Err(Problem::conflict(message).header(OFFSET, HeaderValue::from(upload.offset)));
        }
        let room = upload.plan.size.saturating_sub(offset);
        if len.is_some_and(|len| len > room) {
            return Err(longer(upload.plan.size));
        }
        let file = OpenOptions::new().append(true).open(&path);
        let file = file.map_err(|e| match e.kind() {
            std::io::ErrorKind::NotFound => missing(id),
            _ => storage_failed(e),
        })?;
        write(self.writer(&path), file, room, upload.plan.size, stream).await?;
        let plan = upload.plan;
        let now = self.find(repo, id)?;
        if now.offset < plan.size {
            return Ok(now);
        }
        // Hashing a long file takes as long as reading it.
        let uploads = self.clone();
        work(move || uploads.check(&path, &plan)).await?;
        self.find(repo, id)
    }
}

/// Writes the body until it ends, breaks off, or another request wants the upload.
async fn write<E: Display>(
    writer: Writer,
    mut file: File,
    mut room: u64,
    size: u64,
    stream: impl Chunks<E>,
) -> Result<()> {
    let (mut stream, mut batch) = (pin!(stream), Vec::with_capacity(BATCH));
    let ended = loop {
        let chunk = tokio::select! {
            biased;
            () = writer.wanted.notified() => break Err(Problem::conflict("another request took the upload over")),
            chunk = stream.next() => chunk,
        };
        let chunk = match chunk {
            None => break Ok(()),
            Some(Err(e)) => break Err(Problem::usage(format!("the upload broke off: {e}"))),
            Some(Ok(chunk)) => chunk,
        };
        match room.checked_sub(chunk.len() as u64) {
            Some(left) => room = left,
            None => break Err(longer(size)),
        }
        batch.extend_from_slice(&chunk);
        if batch.len() >= BATCH {
            (file, batch) = put(file, batch).await?;
        }
    };
    put(file, batch).await?;
    ended
}

fn longer(size: u64) -> Problem {
    Problem::too_large(format!("more than the {size} bytes that the upload is to have"))
}

async fn put(mut file: File, mut batch: Vec<u8>) -> Result<(File, Vec<u8>)> {
    work(move || {
        file.write_all(&batch).map_err(storage_failed)?;
        batch.clear();
        Ok((file, batch))
    })
    .await
}
