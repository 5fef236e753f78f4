//! Incoming file: private, hashed while it is written, bounded in size, deleted on drop.

use crate::{
    incoming::{
        Incoming,
        quota::{Holder, Reservation},
        room,
    },
    problem::{Problem, Result, storage_failed},
    request::extract::Chunks,
};
use futures_util::StreamExt;
use sha2::{Digest, Sha256};
use std::{
    fmt::Display,
    fs,
    io::{BufWriter, Write},
    path::Path,
    pin::pin,
};
use tempfile::{NamedTempFile, TempPath};

/// Bytes gathered before they are written.
const BATCH: usize = 1 << 20;

/// A file that was received. Dropping it removes it.
#[derive(Debug)]
pub struct IncomingFile {
    path: TempPath,
    /// Length in bytes.
    pub len: u64,
    /// SHA-256 of the bytes.
    pub sha256: [u8; 32],
    reservation: Reservation,
}

impl IncomingFile {
    /// Where it is.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Moves it to `to`, of the same file system, durably. Its quota reservation passes to the caller.
    pub(super) fn keep(self, to: &Path) -> Result<Reservation> {
        let dir = to.parent().unwrap_or(Path::new("."));
        let synced = fs::File::open(&self.path).and_then(|f| f.sync_all());
        synced.map_err(storage_failed)?;
        self.path.persist(to).map_err(|e| storage_failed(e.error))?;
        fs::File::open(dir).and_then(|d| d.sync_all()).map_err(storage_failed)?;
        Ok(self.reservation)
    }
}

impl Incoming {
    /// Receives a file of at most `max` bytes; `len` is its length, where that is known. After an error nothing is left
    /// behind.
    pub(crate) async fn receive<E: Display>(
        &self,
        holder: &Holder,
        stream: impl Chunks<E>,
        len: Option<u64>,
        max: u64,
    ) -> Result<IncomingFile> {
        let max = max.min(self.max_upload);
        if len.is_some_and(|len| len > max) {
            return Err(room::too_large(max));
        }
        let mut reservation = self.room.quota.reserve(holder, len.unwrap_or(0))?;
        let file = NamedTempFile::new_in(self.room.request_files()).map_err(storage_failed)?;
        let (file, path) = file.into_parts();
        let mut sink = Sink { file, hasher: Sha256::new() };
        let (mut len, mut stream, mut batch) = (0, pin!(stream), Vec::new());
        while let Some(chunk) = stream.next().await {
            let chunk = chunk.map_err(|e| Problem::usage(format!("the upload broke off: {e}")))?;
            len += chunk.len() as u64;
            if len > max {
                return Err(room::too_large(max));
            }
            if len > reservation.bytes {
                reservation.grow(len - reservation.bytes)?;
            }
            batch.extend_from_slice(&chunk);
            if batch.len() >= BATCH {
                (sink, batch) = sink.write(batch).await?;
            }
        }
        let (sink, _) = sink.write(batch).await?;
        reservation.shrink_to(len);
        Ok(IncomingFile { path, len, sha256: sink.hasher.finalize().into(), reservation })
    }
}

impl Incoming {
    /// Makes a file of `len` bytes of what `write` puts, as if it had been received: bounded and counted alike, and
    /// begun only where the disk has room for it. It blocks. After an error nothing is left behind.
    pub(crate) fn make(
        &self,
        holder: &Holder,
        len: u64,
        write: impl FnOnce(&mut dyn FnMut(&[u8]) -> Result<()>) -> Result<()>,
    ) -> Result<IncomingFile> {
        if len > self.max_upload {
            return Err(room::too_large(self.max_upload));
        }
        let reservation = self.room.quota.reserve(holder, len)?;
        self.room.need_disk(len)?;
        let file = NamedTempFile::new_in(self.room.request_files()).map_err(storage_failed)?;
        let (file, path) = file.into_parts();
        let (mut file, mut hasher, mut written) = (BufWriter::with_capacity(BATCH, file), Sha256::new(), 0);
        write(&mut |bytes| {
            written += bytes.len() as u64;
            if written > len {
                return Err(room::too_large(len));
            }
            hasher.update(bytes);
            file.write_all(bytes).map_err(storage_failed)
        })?;
        file.flush().map_err(storage_failed)?;
        Ok(IncomingFile { path, len: written, sha256: hasher.finalize().into(), reservation })
    }
}

struct Sink {
    file: fs::File,
    hasher: Sha256,
}

impl Sink {
    /// Hashing and writing block: not where requests are answered.
    async fn write(mut self, mut batch: Vec<u8>) -> Result<(Sink, Vec<u8>)> {
        crate::app::work(move || {
            self.hasher.update(&batch);
            self.file.write_all(&batch).map_err(storage_failed)?;
            batch.clear();
            Ok((self, batch))
        })
        .await
    }
}
